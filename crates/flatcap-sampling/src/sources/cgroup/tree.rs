//! The control groups of the host and their files. The files stay open from sample to sample.
//!
//! A group is identified by the inode of its directory. Reading the files of a removed group fails.
//! A later group with the same name has another inode and is treated as a different group.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;

use flatcap_os::directory_handle::{DirectoryHandle, FileHandle, raise_open_files_limit};

use super::io_stat::FILE_BYTES_MAX;
use super::values::{FILE_COUNT, FILES};
use crate::{Incomplete, NameFilter};

/// Maximum number of groups in the tree and in a sample. 16,384 groups take 11 MB of a frame.
pub(super) const GROUPS_MAX: usize = 16_384;
/// Size of the buffer for a file. The longest file, `io.stat`, has about 100 bytes per device.
const FILE_BYTES: usize = 64 << 10;
/// Size of the buffer for directory entries, which are read in portions.
const LISTING_BYTES: usize = 32 << 10;
/// Maximum length of a path. The kernel rejects longer paths.
const PATH_BYTES_MAX: usize = 4096;
/// Number of listings from one attempt to open the files that a group lacks to the next attempt.
const ABSENT_LISTINGS: usize = 4;
/// Number of open files that the recorder needs for other purposes.
const OTHER_FILES: usize = 256;
/// The cgroup source keeps open at most 1 / `OPEN_FILES_SHARE` of the files that the process may
/// open. The process source may use half of the allowed open files.
const OPEN_FILES_SHARE: usize = 4;
/// Error of accessing a file if its group was removed, or if the controller of the file is off in
/// that group.
const ENODEV: i32 = 19;
/// Error of accessing a pressure file if pressure accounting is off for the group.
const EOPNOTSUPP: i32 = 95;
/// Error of opening a file if the whole host has reached its limit of open files. The next constant
/// is the error if the recorder's process has reached its limit.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// The control groups of the host, their order and their open files.
#[derive(Debug)]
pub(super) struct CgroupTree {
    root: DirectoryHandle,
    depth_max: u32,
    selection: NameFilter,
    groups: Vec<ControlGroup>,
    free: Vec<usize>,
    order: Vec<usize>,      // indices of groups by path; a group precedes its descendants
    next_order: Vec<usize>, // the next order; empty between listings
    old_order_at: usize,    // position in `order` during a listing
    names: Vec<u8>,
    children: Vec<ListedChild>,
    path: Vec<u8>,
    listing: Vec<MaybeUninit<u8>>,
    raw: Vec<u8>,
    raw_used: usize,
    files_open: usize,
    files_open_max: usize,
    listings: usize,
    listing_incomplete: Incomplete,
    incomplete: Incomplete,
}

/// One control group.
#[derive(Debug, Default)]
pub(super) struct ControlGroup {
    /// Inode of the group's directory.
    pub(super) id: u64,
    /// Inode that the listing of the parent directory shows for this group. This inode may differ
    /// from the directory's own inode, because some file systems number a directory in two ways.
    listed_inode: u64,
    /// Path from the root, ended by a zero byte. The root has the path `.`.
    path: Vec<u8>,
    node: Option<DirectoryHandle>, // `None` if too many files are open
    files: [Option<FileHandle>; FILE_COUNT],
    is_absent: [bool; FILE_COUNT], // whether each file was absent at the last attempt to open it
    is_wanted: bool,
    is_read: bool,
    at: usize,
    lengths: [Option<usize>; FILE_COUNT],
    /// Largest number of values that each file has had.
    pub(super) values_max: [usize; FILE_COUNT],
}

/// A child directory that was found by a listing. Its name is in `names`.
#[derive(Debug, Clone, Copy)]
struct ListedChild {
    at: usize,
    length: usize,
    inode: u64,
}

impl ControlGroup {
    /// Returns the path without the root's `.` and without the zero byte.
    pub(super) fn path(&self) -> &[u8] {
        let path = self.path.strip_suffix(b"\0").unwrap_or(&self.path);
        if path == b"." { b"" } else { path }
    }

    /// Returns the content read from a file, or `None` if the group lacks the file.
    pub(super) fn content<'a>(&self, file: usize, raw: &'a [u8]) -> Option<&'a [u8]> {
        let before: usize = self.lengths.iter().take(file).flatten().sum();
        let length = self.lengths.get(file).copied().flatten()?;
        raw.get(self.at + before..self.at + before + length)
    }

    fn open_files(&self) -> usize {
        self.files.iter().flatten().count()
    }
}

impl CgroupTree {
    pub(super) fn new(root: DirectoryHandle, depth_max: u32, selection: NameFilter) -> io::Result<Self> {
        let mut tree = Self {
            root,
            depth_max,
            selection,
            groups: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            next_order: Vec::new(),
            old_order_at: 0,
            names: Vec::new(),
            children: Vec::new(),
            path: Vec::new(),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES],
            raw: Vec::new(),
            raw_used: 0,
            files_open: 0,
            files_open_max: raise_open_files_limit(0) / OPEN_FILES_SHARE,
            listings: 0,
            listing_incomplete: Incomplete::NONE,
            incomplete: Incomplete::NONE,
        };
        tree.list()?;
        // Both orders need the same capacity, because they are swapped at each listing.
        tree.next_order.reserve(tree.order.capacity());
        Ok(tree)
    }

    /// Returns the number of listed groups.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// Returns the reasons for which the last [`read`](Self::read) was incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete | self.listing_incomplete
    }

    /// Calls `call` with each group that was read, in order, and the buffer with its content.
    pub(super) fn for_each(&mut self, mut call: impl FnMut(&mut ControlGroup, &[u8])) {
        for index in &self.order {
            if let Some(group) = self.groups.get_mut(*index).filter(|group| group.is_read) {
                call(group, &self.raw);
            }
        }
    }

    /// Lists the tree again and updates the order.
    pub(super) fn list(&mut self) -> io::Result<()> {
        self.listing_incomplete = Incomplete::NONE;
        self.listings = self.listings.wrapping_add(1);
        self.old_order_at = 0;
        self.names.clear();
        self.children.clear();
        self.path.clear();
        self.path.extend_from_slice(b".\0");
        let inode = self.root.ownership()?.inode;
        self.walk(inode, 0);
        while let Some(gone) = self.order.get(self.old_order_at).copied() {
            self.release(gone);
            self.old_order_at += 1;
        }
        std::mem::swap(&mut self.order, &mut self.next_order);
        self.next_order.clear();
        Ok(())
    }

    /// Adds the group at `path` and its descendants to the next order. Recursion ends at
    /// `depth_max`, which is at most 64.
    fn walk(&mut self, inode: u64, depth: u32) {
        if self.next_order.len() >= GROUPS_MAX {
            self.listing_incomplete |= Incomplete::TOO_MANY;
            return;
        }
        let index = match self.find_listed(inode) {
            Some(index) => index,
            None => match self.add(inode) {
                Ok(index) => index,
                Err(error) => {
                    self.listing_incomplete |= incomplete_reason(&error);
                    return;
                }
            },
        };
        self.next_order.push(index);
        if depth >= self.depth_max {
            return;
        }
        let first = self.children.len();
        if let Err(error) = self.list_children(index) {
            self.listing_incomplete |= incomplete_reason(&error);
        }
        let Self { names, children, .. } = self;
        let name = |child: &ListedChild| names.get(child.at..child.at + child.length);
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
                self.listing_incomplete |= Incomplete::TOO_MANY;
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

    /// Returns the group of the old order that has this path and inode. Releases the groups before
    /// this one in the old order, because these groups no longer exist.
    fn find_listed(&mut self, inode: u64) -> Option<usize> {
        while let Some(index) = self.order.get(self.old_order_at).copied() {
            let group = self.groups.get_mut(index)?;
            match by_path(&group.path, &self.path) {
                Ordering::Greater => return None,
                Ordering::Equal if group.listed_inode == inode => {
                    // A controller may have been enabled since the last attempt, so some groups are
                    // tried again at each listing.
                    if index % ABSENT_LISTINGS == self.listings % ABSENT_LISTINGS {
                        group.is_absent = [false; FILE_COUNT];
                    }
                    self.old_order_at += 1;
                    return Some(index);
                }
                _ => {
                    self.release(index);
                    self.old_order_at += 1;
                }
            }
        }
        None
    }

    fn add(&mut self, listed_inode: u64) -> io::Result<usize> {
        let path = CStr::from_bytes_with_nul(&self.path).map_err(|_| ErrorKind::InvalidInput)?;
        let node = self.root.open_directory(path)?;
        let id = node.ownership()?.inode;
        let index = self.free.pop().unwrap_or_else(|| {
            self.groups.push(ControlGroup::default());
            self.free.reserve(self.groups.len());
            self.groups.len() - 1
        });
        let count = self.groups.len();
        let Some(group) = self.groups.get_mut(index) else { return Ok(index) };
        group.path.clear();
        group.path.extend_from_slice(&self.path);
        (group.id, group.listed_inode) = (id, listed_inode);
        // The root has the name `/` for patterns.
        let name = if group.path().is_empty() { b"/" } else { group.path() };
        group.is_wanted = self.selection.matches(name);
        if self.files_open >= self.files_open_max {
            self.files_open_max =
                raise_open_files_limit(OPEN_FILES_SHARE * (FILE_COUNT + 1) * (count + OTHER_FILES))
                    / OPEN_FILES_SHARE;
        }
        if self.files_open < self.files_open_max {
            group.node = Some(node);
            self.files_open += 1;
        }
        Ok(index)
    }

    fn release(&mut self, index: usize) {
        let Some(group) = self.groups.get_mut(index) else { return };
        self.files_open -= group.open_files() + usize::from(group.node.is_some());
        let path = std::mem::take(&mut group.path);
        *group = ControlGroup { path, ..ControlGroup::default() };
        self.free.push(index);
    }

    fn list_children(&mut self, index: usize) -> io::Result<()> {
        let Self { root, groups, names, children, listing, .. } = self;
        let Some(group) = groups.get(index) else { return Ok(()) };
        let opened;
        let node = if let Some(node) = &group.node {
            node
        } else {
            opened = reopen(root, group)?;
            &opened
        };
        let mut is_too_many = false;
        node.for_each_directory(listing, |name, inode| {
            if children.len() < 2 * GROUPS_MAX {
                let name = name.to_bytes();
                children.push(ListedChild { at: names.len(), length: name.len(), inode });
                names.extend_from_slice(name);
            } else {
                is_too_many = true;
            }
        })?;
        self.listing_incomplete |= Incomplete::TOO_MANY.unless(!is_too_many);
        Ok(())
    }

    /// Reads all wanted groups.
    pub(super) fn read(&mut self) {
        self.raw_used = 0;
        self.incomplete = Incomplete::NONE;
        for at in 0..self.order.len() {
            let Some(index) = self.order.get(at).copied() else { break };
            if self.groups.get(index).is_some_and(|group| group.is_wanted)
                && let Err(error) = self.read_group(index)
            {
                self.incomplete |= incomplete_reason(&error);
            }
        }
    }

    /// Reads one group. A group that is gone has no files and is skipped.
    fn read_group(&mut self, index: usize) -> io::Result<()> {
        let Self { root, groups, raw, raw_used, files_open, files_open_max, incomplete, .. } = self;
        let Some(group) = groups.get_mut(index) else { return Ok(()) };
        group.is_read = false;
        group.at = *raw_used;
        group.lengths = [None; FILE_COUNT];
        let opened;
        let node = if let Some(node) = &group.node {
            node
        } else {
            opened = reopen(root, group)?;
            &opened
        };
        let mut lacks = Incomplete::NONE;
        let places = FILES.iter().zip(&mut group.files).zip(&mut group.is_absent).zip(&mut group.lengths);
        for (((name, file), is_absent), length) in places {
            if *is_absent {
                continue;
            }
            let mut space = FILE_BYTES;
            let read = loop {
                let end = *raw_used + space;
                if raw.len() < end {
                    raw.resize(end.max(2 * raw.len()), 0);
                }
                let buffer = raw.get_mut(*raw_used..end).unwrap_or_default();
                match read_file(file, node, name, buffer, files_open) {
                    Ok(bytes) if bytes == space && space < FILE_BYTES_MAX => space = FILE_BYTES_MAX,
                    read => break read,
                }
            };
            match read {
                Ok(bytes) => {
                    lacks |= Incomplete::CUT.unless(bytes < FILE_BYTES_MAX);
                    *length = Some(bytes);
                    *raw_used += bytes;
                    group.is_read = true;
                }
                Err(error) => {
                    let is_off = error.raw_os_error() == Some(EOPNOTSUPP);
                    let is_gone = error.raw_os_error() == Some(ENODEV);
                    // A file that cannot be opened for another reason is tried again, and marked,
                    // at each sample.
                    *is_absent = is_off || is_gone || error.kind() == ErrorKind::NotFound;
                    let was_there = file.take().is_some();
                    *files_open -= usize::from(was_there);
                    lacks |= if is_gone { Incomplete::MISSING } else { Incomplete::NONE };
                    lacks |= if is_off { Incomplete::NONE } else { incomplete_reason(&error) };
                }
            }
            // If more files are open than may be kept open, this file is opened again at each
            // sample.
            if *files_open > *files_open_max {
                *files_open -= usize::from(file.take().is_some());
            }
        }
        // A group that is gone does not make the sample incomplete.
        *incomplete |= if group.is_read { lacks } else { Incomplete::NONE };
        Ok(())
    }
}

fn read_file(
    file: &mut Option<FileHandle>,
    node: &DirectoryHandle,
    name: &CStr,
    buffer: &mut [u8],
    files_open: &mut usize,
) -> io::Result<usize> {
    if file.is_none() {
        *file = Some(node.open_file(name)?);
        *files_open += 1;
    }
    file.as_ref().map_or(Ok(0), |file| file.read(buffer))
}

/// Opens the group's directory by its path, if the path still leads to the same directory.
fn reopen(root: &DirectoryHandle, group: &ControlGroup) -> io::Result<DirectoryHandle> {
    let path = CStr::from_bytes_with_nul(&group.path).map_err(|_| ErrorKind::InvalidInput)?;
    let node = root.open_directory(path)?;
    if node.ownership()?.inode == group.id { Ok(node) } else { Err(ErrorKind::NotFound.into()) }
}

/// Returns the reason why a group is skipped. The result is empty if the group was removed.
fn incomplete_reason(error: &io::Error) -> Incomplete {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound, _) | (_, Some(ENODEV)) => Incomplete::NONE,
        (ErrorKind::PermissionDenied, _) => Incomplete::DENIED,
        (_, Some(ENFILE | EMFILE)) => Incomplete::TOO_MANY,
        _ => Incomplete::UNREADABLE,
    }
}

/// Compares groups by path. A group precedes its descendants, and its descendants precede its
/// siblings. Therefore a slash and the end of a path sort before any other byte.
fn by_path(left: &[u8], right: &[u8]) -> Ordering {
    let key = |byte: &u8| match *byte {
        0 => 0_u16,
        b'/' => 1,
        byte => u16::from(byte) + 1,
    };
    // The root comes first.
    match (left == b".\0", right == b".\0") {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => left.iter().map(key).cmp(right.iter().map(key)),
    }
}
