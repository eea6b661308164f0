//! Which control groups there are, with their open files, kept from sample to sample.
//!
//! A group is its directory, by inode: the files of one that was removed fail, and one that has its name later is another.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;

use super::values::{FILE_COUNT, FILES};
use crate::os::host_node::{HostNode, ShortFile, allow_open_files};
use crate::sampling::{Selection, Shortfall};

/// Most groups of the tree that are looked at, and most of a sample: 16,384 are 11 MB of a frame.
pub(super) const GROUPS_MAX: usize = 16_384;
/// A longer file counts as cut. The longest, `io.stat`, has some 100 bytes a device.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Entries of a directory come in portions that fit here.
const LISTING_BYTES: usize = 32 << 10;
/// A longer path the kernel would not open.
const PATH_BYTES_MAX: usize = 4096;
/// A file that a group does not have is asked for again at one listing in this many.
const ABSENT_LISTINGS: usize = 4;
/// Files that are opened beside those of groups.
const OTHER_FILES: usize = 256;
/// Share of the open files that may be kept here; processes have another half.
const SHARE: usize = 4;
/// The kernel says so of a file whose group, or whose controller there, is gone.
const ENODEV: i32 = 19;
/// The group's pressure accounting is off.
const EOPNOTSUPP: i32 = 95;
/// The process, or the whole host, has as many files open as it may.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: HostNode,
    depth_max: u32,
    selection: Selection,
    groups: Vec<Group>,
    free: Vec<usize>,
    order: Vec<usize>, // of groups: by path, a group before those below it
    next: Vec<usize>,  // the order to come; empty between listings
    old_at: usize,     // how far the old order is dealt with, during a listing
    names: Vec<u8>,
    children: Vec<Child>,
    path: Vec<u8>,
    listing: Vec<MaybeUninit<u8>>,
    raw: Vec<u8>,
    used: usize,
    kept: usize,
    kept_max: usize,
    listings: usize,
    listing_shortfall: Shortfall,
    shortfall: Shortfall,
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    /// Inode of its directory.
    pub(super) id: u64,
    /// As its parent lists it; some file systems number a directory in two ways.
    listed_inode: u64,
    /// From the root, ended by a zero byte; `.` for the root.
    path: Vec<u8>,
    node: Option<HostNode>, // none where too many are open
    files: [Option<ShortFile>; FILE_COUNT],
    is_absent: [bool; FILE_COUNT], // when it was last asked for
    is_wanted: bool,
    is_read: bool,
    at: usize,
    lengths: [Option<usize>; FILE_COUNT],
    /// How many values each file had at most.
    pub(super) most: [usize; FILE_COUNT],
}

/// A directory that was listed; its name lies in `names`.
#[derive(Debug, Clone, Copy)]
struct Child {
    at: usize,
    length: usize,
    inode: u64,
}

impl Group {
    fn empty() -> Self {
        Self {
            id: 0,
            listed_inode: 0,
            path: Vec::new(),
            node: None,
            files: [const { None }; FILE_COUNT],
            is_absent: [false; FILE_COUNT],
            is_wanted: false,
            is_read: false,
            at: 0,
            lengths: [None; FILE_COUNT],
            most: [0; FILE_COUNT],
        }
    }

    /// Its path without the root's `.` and without the zero byte.
    pub(super) fn path(&self) -> &[u8] {
        let path = self.path.strip_suffix(b"\0").unwrap_or(&self.path);
        if path == b"." { b"" } else { path }
    }

    /// What was read of a file, if it was there.
    pub(super) fn content<'a>(&self, file: usize, raw: &'a [u8]) -> Option<&'a [u8]> {
        let before: usize = self.lengths.iter().take(file).flatten().sum();
        let length = self.lengths.get(file).copied().flatten()?;
        raw.get(self.at + before..self.at + before + length)
    }

    fn open_files(&self) -> usize {
        self.files.iter().flatten().count()
    }
}

impl Tree {
    pub(super) fn new(root: HostNode, depth_max: u32, selection: Selection) -> io::Result<Self> {
        let mut tree = Self {
            root,
            depth_max,
            selection,
            groups: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            next: Vec::new(),
            old_at: 0,
            names: Vec::new(),
            children: Vec::new(),
            path: Vec::new(),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES],
            raw: Vec::new(),
            used: 0,
            kept: 0,
            kept_max: allow_open_files(0) / SHARE,
            listings: 0,
            listing_shortfall: Shortfall::NONE,
            shortfall: Shortfall::NONE,
        };
        tree.list()?;
        // The two orders take turns.
        tree.next.reserve(tree.order.capacity());
        Ok(tree)
    }

    /// Groups that were listed.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// What the last [`read`](Self::read) lacked.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall | self.listing_shortfall
    }

    /// Calls with each group that was read, in order, and the buffer that holds what was.
    pub(super) fn for_each(&mut self, mut call: impl FnMut(&mut Group, &[u8])) {
        for index in &self.order {
            if let Some(group) = self.groups.get_mut(*index).filter(|group| group.is_read) {
                call(group, &self.raw);
            }
        }
    }

    /// Brings the order up to what is there now.
    pub(super) fn list(&mut self) -> io::Result<()> {
        self.listing_shortfall = Shortfall::NONE;
        self.listings = self.listings.wrapping_add(1);
        self.old_at = 0;
        self.names.clear();
        self.children.clear();
        self.path.clear();
        self.path.extend_from_slice(b".\0");
        let inode = self.root.ownership()?.inode;
        self.walk(inode, 0);
        while let Some(gone) = self.order.get(self.old_at).copied() {
            self.release(gone);
            self.old_at += 1;
        }
        std::mem::swap(&mut self.order, &mut self.next);
        self.next.clear();
        Ok(())
    }

    /// Takes the group at `path` into the next order, and those below it. Recursion ends at `depth_max`, at most 64.
    fn walk(&mut self, inode: u64, depth: u32) {
        if self.next.len() >= GROUPS_MAX {
            self.listing_shortfall |= Shortfall::TOO_MANY;
            return;
        }
        let index = match self.known(inode) {
            Some(index) => index,
            None => match self.add(inode) {
                Ok(index) => index,
                Err(error) => {
                    self.listing_shortfall |= reason(&error);
                    return;
                }
            },
        };
        self.next.push(index);
        if depth >= self.depth_max {
            return;
        }
        let first = self.children.len();
        if let Err(error) = self.list_children(index) {
            self.listing_shortfall |= reason(&error);
        }
        let Self { names, children, .. } = self;
        let name = |child: &Child| names.get(child.at..child.at + child.length);
        if let Some(children) = children.get_mut(first..) {
            children.sort_unstable_by(|left, right| name(left).cmp(&name(right)));
        }
        let names_before = self.children.get(first..).unwrap_or_default().iter().map(|child| child.at).min();
        let length = self.path.len();
        for at in first..self.children.len() {
            let Some(child) = self.children.get(at).copied() else { break };
            self.path.pop();
            if depth == 0 {
                self.path.clear();
            } else {
                self.path.push(b'/');
            }
            let name = self.names.get(child.at..child.at + child.length).unwrap_or_default();
            self.path.extend_from_slice(name);
            self.path.push(0);
            if self.path.len() <= PATH_BYTES_MAX {
                self.walk(child.inode, depth + 1);
            } else {
                self.listing_shortfall |= Shortfall::TOO_MANY;
            }
            self.path.truncate(length - 1);
            self.path.push(0);
            if depth == 0 {
                self.path.clear();
                self.path.extend_from_slice(b".\0");
            }
        }
        self.children.truncate(first);
        if let Some(before) = names_before {
            self.names.truncate(before);
        }
    }

    /// The group of the old order that has this path, if it still is the same; groups in front of it are gone.
    fn known(&mut self, inode: u64) -> Option<usize> {
        while let Some(index) = self.order.get(self.old_at).copied() {
            let group = self.groups.get_mut(index)?;
            match by_path(&group.path, &self.path) {
                Ordering::Greater => return None,
                Ordering::Equal if group.listed_inode == inode => {
                    // A controller may have been switched on: some groups are asked at each listing.
                    if index % ABSENT_LISTINGS == self.listings % ABSENT_LISTINGS {
                        group.is_absent = [false; FILE_COUNT];
                    }
                    self.old_at += 1;
                    return Some(index);
                }
                _ => {
                    self.release(index);
                    self.old_at += 1;
                }
            }
        }
        None
    }

    fn add(&mut self, listed_inode: u64) -> io::Result<usize> {
        let path = CStr::from_bytes_with_nul(&self.path).map_err(|_| ErrorKind::InvalidInput)?;
        let node = self.root.node(path)?;
        let id = node.ownership()?.inode;
        let index = self.free.pop().unwrap_or_else(|| {
            self.groups.push(Group::empty());
            self.free.reserve(self.groups.len());
            self.groups.len() - 1
        });
        let count = self.groups.len();
        let Some(group) = self.groups.get_mut(index) else { return Ok(index) };
        group.path.clear();
        group.path.extend_from_slice(&self.path);
        (group.id, group.listed_inode) = (id, listed_inode);
        // The root's name in patterns is a slash.
        let name = if group.path().is_empty() { b"/" } else { group.path() };
        group.is_wanted = self.selection.wants(name);
        if self.kept >= self.kept_max {
            self.kept_max = allow_open_files(SHARE * (FILE_COUNT + 1) * (count + OTHER_FILES)) / SHARE;
        }
        if self.kept < self.kept_max {
            group.node = Some(node);
            self.kept += 1;
        }
        Ok(index)
    }

    fn release(&mut self, index: usize) {
        let Some(group) = self.groups.get_mut(index) else { return };
        self.kept -= group.open_files() + usize::from(group.node.is_some());
        let path = std::mem::take(&mut group.path);
        *group = Group { path, ..Group::empty() };
        self.free.push(index);
    }

    fn list_children(&mut self, index: usize) -> io::Result<()> {
        let Self { root, groups, names, children, listing, .. } = self;
        let Some(group) = groups.get(index) else { return Ok(()) };
        let opened;
        let node = if let Some(node) = &group.node {
            node
        } else {
            opened = reopened(root, group)?;
            &opened
        };
        let mut is_too_many = false;
        node.directories(listing, |name, inode| {
            if children.len() < 2 * GROUPS_MAX {
                let name = name.to_bytes();
                children.push(Child { at: names.len(), length: name.len(), inode });
                names.extend_from_slice(name);
            } else {
                is_too_many = true;
            }
        })?;
        self.listing_shortfall |= Shortfall::TOO_MANY.unless(!is_too_many);
        Ok(())
    }

    /// Reads all groups that are wanted.
    pub(super) fn read(&mut self) {
        self.used = 0;
        self.shortfall = Shortfall::NONE;
        for at in 0..self.order.len() {
            let Some(index) = self.order.get(at).copied() else { break };
            if self.groups.get(index).is_some_and(|group| group.is_wanted)
                && let Err(error) = self.read_group(index)
            {
                self.shortfall |= reason(&error);
            }
        }
    }

    /// Reads one group. One that is gone is left out: none of its files is there.
    fn read_group(&mut self, index: usize) -> io::Result<()> {
        let Self { root, groups, raw, used, kept, kept_max, shortfall, .. } = self;
        let Some(group) = groups.get_mut(index) else { return Ok(()) };
        group.is_read = false;
        group.at = *used;
        group.lengths = [None; FILE_COUNT];
        let opened;
        let node = if let Some(node) = &group.node {
            node
        } else {
            opened = reopened(root, group)?;
            &opened
        };
        let mut lacks = Shortfall::NONE;
        let places = FILES.iter().zip(&mut group.files).zip(&mut group.is_absent).zip(&mut group.lengths);
        for (((name, file), is_absent), length) in places {
            if *is_absent {
                continue;
            }
            let end = *used + FILE_BYTES_MAX;
            if raw.len() < end {
                raw.resize(end.max(2 * raw.len()), 0);
            }
            let room = raw.get_mut(*used..end).unwrap_or_default();
            match read_file(file, node, name, room, kept) {
                Ok(bytes) => {
                    lacks |= Shortfall::CUT.unless(bytes < FILE_BYTES_MAX);
                    *length = Some(bytes);
                    *used += bytes;
                    group.is_read = true;
                }
                Err(error) => {
                    let is_off = error.raw_os_error() == Some(EOPNOTSUPP);
                    let is_gone = error.raw_os_error() == Some(ENODEV);
                    // What is refused is asked for, and marked, each time.
                    *is_absent = is_off || is_gone || error.kind() == ErrorKind::NotFound;
                    let was_there = file.take().is_some();
                    *kept -= usize::from(was_there);
                    lacks |= if is_gone { Shortfall::MISSING } else { Shortfall::NONE };
                    lacks |= if is_off { Shortfall::NONE } else { reason(&error) };
                }
            }
            // Beyond the number of files that may be kept open, they are opened at each sample.
            if *kept > *kept_max {
                *kept -= usize::from(file.take().is_some());
            }
        }
        // Of a group that went nothing is missing.
        *shortfall |= if group.is_read { lacks } else { Shortfall::NONE };
        Ok(())
    }
}

fn read_file(
    file: &mut Option<ShortFile>,
    node: &HostNode,
    name: &CStr,
    room: &mut [u8],
    kept: &mut usize,
) -> io::Result<usize> {
    if file.is_none() {
        *file = Some(node.file(name)?);
        *kept += 1;
    }
    file.as_ref().map_or(Ok(0), |file| file.read(room))
}

/// The group's directory by its path, if it still is the same one.
fn reopened(root: &HostNode, group: &Group) -> io::Result<HostNode> {
    let path = CStr::from_bytes_with_nul(&group.path).map_err(|_| ErrorKind::InvalidInput)?;
    let node = root.node(path)?;
    if node.ownership()?.inode == group.id { Ok(node) } else { Err(ErrorKind::NotFound.into()) }
}

/// Why a group is left out; one that went meanwhile is none.
fn reason(error: &io::Error) -> Shortfall {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound, _) | (_, Some(ENODEV)) => Shortfall::NONE,
        (ErrorKind::PermissionDenied, _) => Shortfall::DENIED,
        (_, Some(ENFILE | EMFILE)) => Shortfall::TOO_MANY,
        _ => Shortfall::UNREADABLE,
    }
}

/// A group before those below it, and these before its neighbours: a slash and the end come before any other byte.
fn by_path(left: &[u8], right: &[u8]) -> Ordering {
    let key = |byte: &u8| match *byte {
        0 => 0_u16,
        b'/' => 1,
        byte => u16::from(byte) + 1,
    };
    // The root is before all.
    match (left == b".\0", right == b".\0") {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => left.iter().map(key).cmp(right.iter().map(key)),
    }
}
