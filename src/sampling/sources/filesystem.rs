//! `filesystem`: room and inodes of each mount, from mountinfo and statvfs(3).

use std::ffi::CStr;
use std::io::ErrorKind;

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::os::mount::{MountIdentity, Room, room};
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Filesystem, FilesystemArgs, MountRoom};

/// The list of mounts under another root: that of the host's first process.
const FILE_OF_HOST: &str = "proc/1/mountinfo";
/// The list under the agent's own root, so that the paths mean the same to both.
const FILE_OF_SELF: &str = "proc/self/mountinfo";
/// Most mounts in one sample.
const MOUNTS_MAX: usize = 4096;
/// File systems that hold no files of anybody: left out unless `include` asks for them.
const PSEUDO: [&[u8]; 24] = [
    b"autofs",
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"devpts",
    b"efivarfs",
    b"fuse.gvfsd-fuse",
    b"fuse.lxcfs",
    b"fuse.portal",
    b"fusectl",
    b"hugetlbfs",
    b"mqueue",
    b"nsfs",
    b"proc",
    b"pstore",
    b"resctrl",
    b"rpc_pipefs",
    b"securityfs",
    b"selinuxfs",
    b"sysfs",
    b"tracefs",
];
/// Directories of these lie on devices of their own, which mountinfo does not know.
const WITH_OWN_DEVICES: [&[u8]; 2] = [b"bcachefs", b"btrfs"];

/// `include` and `exclude` match the mount point. A mount whose server does not answer holds up the whole reading, so it
/// is one to exclude. Without `include`, pseudo file systems and those without blocks are left out.
pub(super) const ENTRY: Entry = Entry {
    name: "filesystem",
    root: "flatcap.host.Filesystem",
    schema: include_bytes!("../../../generated/host/filesystem.bfbs"),
    files: &[FILE_OF_HOST, FILE_OF_SELF],
    refresh: "at each write; some file systems sum up once in a few seconds",
    selects: "mount points, such as /var",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let is_own = opening.host.is_own();
    let path = if is_own { FILE_OF_SELF } else { FILE_OF_HOST };
    let root = opening.host.path("").into_os_string().into_encoded_bytes();
    Ok(Opened::built(FilesystemSampler {
        path,
        file: host_file(opening.host, path, "")?,
        is_own,
        takes_all: !opening.config.include.is_empty(),
        chosen: Chosen::new(opening.selection()),
        root: root.strip_suffix(b"/").unwrap_or(&root).to_vec(),
        listed: Vec::new(),
        listing: Shortfall::NONE,
        mounts: Vec::new(),
        path_bytes: Vec::new(),
        rows: Vec::new(),
    }))
}

#[derive(Debug)]
struct FilesystemSampler {
    path: &'static str,
    file: HostFile,
    is_own: bool,
    takes_all: bool, // pseudo file systems too
    chosen: Chosen,
    root: Vec<u8>,   // in front of each mount point; empty for the agent's own root
    listed: Vec<u8>, // the content that `mounts` was made of
    listing: Shortfall,
    mounts: Vec<Known>,
    path_bytes: Vec<u8>,  // reused
    rows: Vec<MountRoom>, // reused
}

/// A mount that is recorded.
#[derive(Debug)]
struct Known {
    row: MountRoom, // without the figures
    /// Its path below `root`, ended by a zero byte; its buffer is kept for whatever mount comes to this place.
    path: Vec<u8>,
    checks_device: bool,
    found: Found,
}

/// What the kernel said of a mount.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found {
    Room(Room),
    /// Another mount lies over it, or it was unmounted meanwhile: nobody can reach it.
    Hidden,
    Refused(Shortfall),
}

impl Sampler for FilesystemSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })?;
        if self.file.content() != self.listed {
            self.list();
        }
        for mount in &mut self.mounts {
            mount.found = mount.ask(self.is_own);
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.listing;
        self.rows.clear();
        for mount in &self.mounts {
            let mut row = mount.row;
            match mount.found {
                Found::Hidden => continue,
                Found::Room(room) if room.blocks == 0 && !self.takes_all => continue,
                Found::Room(room) => fill(&mut row, &room),
                Found::Refused(reason) => shortfall |= reason,
            }
            self.rows.push(row);
        }
        let mounts = builder.create_vector(&self.rows);
        let root = Filesystem::create(builder, &FilesystemArgs { mounts: Some(mounts) });
        builder.finish_minimal(root);
        shortfall
    }
}

impl FilesystemSampler {
    /// Takes over the list of mounts, which has changed.
    fn list(&mut self) {
        let content = self.file.content();
        self.listed.clear();
        self.listed.extend_from_slice(content);
        let (lines, mut shortfall) = text::whole_lines(content);
        let mut count = 0;
        for (place, line) in lines.enumerate() {
            let Some(line) = Line::of(line) else {
                shortfall |= Shortfall::UNREADABLE;
                continue;
            };
            if !self.takes_all && PSEUDO.contains(&line.kind) {
                continue;
            }
            unescape(line.mount_point, &mut self.path_bytes);
            if !self.chosen.wants(place, &self.path_bytes) {
                continue;
            }
            if count == MOUNTS_MAX {
                shortfall |= Shortfall::TOO_MANY;
                break;
            }
            if self.mounts.len() == count {
                self.mounts.push(Known::default());
            }
            if let Some(mount) = self.mounts.get_mut(count) {
                shortfall |= mount.become_line(&line, &self.root, &mut self.path_bytes);
                count += 1;
            }
        }
        self.mounts.truncate(count);
        self.listing = shortfall;
    }
}

impl Default for Known {
    fn default() -> Self {
        let row = MountRoom::default();
        Self { row, path: Vec::new(), checks_device: false, found: Found::Hidden }
    }
}

impl Known {
    /// Takes the mount of this line; `unescaped` holds its mount point, and is used for more.
    fn become_line(&mut self, line: &Line<'_>, root: &[u8], unescaped: &mut Vec<u8>) -> Shortfall {
        let Self { row, path, checks_device, found } = self;
        *found = Found::Hidden;
        path.clear();
        path.extend_from_slice(root);
        path.extend_from_slice(unescaped);
        path.push(0);
        *checks_device = !WITH_OWN_DEVICES.contains(&line.kind);
        let mount_point = text::name(unescaped);
        unescape(line.device, unescaped);
        let device = text::name(unescaped);
        let kind = text::name(line.kind);
        let fits = mount_point.is_some() && device.is_some() && kind.is_some();
        *row = MountRoom::new(
            line.mount,
            line.major,
            line.minor,
            &mount_point.unwrap_or([0; 256]),
            &device.unwrap_or([0; 256]),
            &kind.unwrap_or([0; 32]),
            ABSENT,
            ABSENT,
            ABSENT,
            ABSENT,
            ABSENT,
            ABSENT,
            ABSENT,
            ABSENT,
        );
        Shortfall::UNREADABLE.unless(fits)
    }

    /// Asks the kernel. An answer of another mount is none: it would be a wrong figure.
    fn ask(&self, is_own: bool) -> Found {
        let Ok(path) = CStr::from_bytes_with_nul(&self.path) else {
            return Found::Refused(Shortfall::UNREADABLE);
        };
        match room(path) {
            Ok((identity, room)) if self.is_meant(identity, is_own) => Found::Room(room),
            // Elsewhere it is there, but not to be seen from here.
            Ok(_) if !is_own => Found::Refused(Shortfall::MISSING),
            Ok(_) => Found::Hidden,
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory if is_own => Found::Hidden,
                ErrorKind::NotFound | ErrorKind::NotADirectory => Found::Refused(Shortfall::MISSING),
                ErrorKind::PermissionDenied => Found::Refused(Shortfall::DENIED),
                _ => Found::Refused(Shortfall::UNREADABLE),
            },
        }
    }

    /// Numbers of mounts are those of one namespace: under another root only the device can tell.
    fn is_meant(&self, identity: MountIdentity, is_own: bool) -> bool {
        match identity.mount {
            Some(mount) if is_own => mount == self.row.mount(),
            _ => !self.checks_device || identity.device == (self.row.major(), self.row.minor()),
        }
    }
}

fn fill(row: &mut MountRoom, room: &Room) {
    row.set_block_size(room.block_size);
    row.set_blocks(room.blocks);
    row.set_blocks_free(room.blocks_free);
    row.set_blocks_available(room.blocks_available);
    row.set_inodes(room.inodes);
    row.set_inodes_free(room.inodes_free);
    row.set_flags(room.flags);
    row.set_read_only(room.flags & 1);
}

/// One line of mountinfo, as far as it is needed. Texts are still escaped.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    mount: u64,
    major: u64,
    minor: u64,
    mount_point: &'a [u8],
    kind: &'a [u8],
    device: &'a [u8],
}

impl<'a> Line<'a> {
    /// `36 35 98:0 /root /mount/point rw,noatime master:1 shared:2 - ext3 /dev/root rw`, with any number of words
    /// between the options and the hyphen. A device may be an empty text.
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let mount = text::number(words.next()?)?;
        text::number(words.next()?)?;
        let numbers = words.next()?;
        let colon = numbers.iter().position(|byte| *byte == b':')?;
        let (major, minor) = numbers.split_at(colon);
        let major = text::number(major)?;
        let minor = text::number(minor.get(1..)?)?;
        let mount_point = words.nth(1).filter(|path| path.starts_with(b"/"))?;
        words.next()?;
        words.find(|word| *word == b"-")?;
        let kind = words.next().filter(|kind| !kind.is_empty())?;
        let device = words.next()?;
        words.next()?;
        Some(Self { mount, major, minor, mount_point, kind, device })
    }
}

/// Writes the text with `\040` and its like as the bytes they stand for.
fn unescape(escaped: &[u8], plain: &mut Vec<u8>) {
    plain.clear();
    let mut rest = escaped;
    while let [first, behind @ ..] = rest {
        let (byte, after) = escape(rest).unwrap_or((*first, behind));
        plain.push(byte);
        rest = after;
    }
}

/// The byte that an escape at the front of a text stands for, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = text else { return None };
    Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after))
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, opened, sampled_under};

    fn text_of<const BYTES: usize>(text: flatbuffers::Array<'_, u8, BYTES>) -> String {
        let bytes: Vec<u8> = text.iter().take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn rows(payload: &[u8]) -> Vec<MountRoom> {
        flatbuffers::root::<Filesystem<'_>>(payload).unwrap().mounts().iter().copied().collect()
    }

    /// A host whose mounts are the directories of a folder; `device` is theirs.
    fn host(lines: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/1")).unwrap();
        for mount in ["data", "with space", "gone"] {
            std::fs::create_dir(folder.path().join(mount)).unwrap();
        }
        let device = std::fs::metadata(folder.path()).unwrap().st_dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        write(folder.path(), &lines.replace("DEVICE", &device));
        (folder, device)
    }

    fn write(root: &Path, text: &str) {
        std::fs::write(root.join(FILE_OF_HOST), text).unwrap();
    }

    // Goal: each field is found whatever optional words stand between. Method: values that all differ.
    #[test]
    fn every_value_is_in_its_place() {
        for optional in ["", "master:1 ", "shared:9 master:8 propagate_from:7 unbindable "] {
            let line = format!(r"36 35 98:12 /r /mnt\0401 rw,x {optional}- ext3 /dev/ro\134ot rw,errors=y");
            let line = Line::of(line.as_bytes()).unwrap();
            let kind = &b"ext3"[..];
            let expected = Line {
                mount: 36,
                major: 98,
                minor: 12,
                mount_point: br"/mnt\0401",
                kind,
                device: br"/dev/ro\134ot",
            };
            assert_eq!(line, expected);
        }
        let empty = Line::of(b"36 35 0:12 / /m rw - tmpfs  rw").unwrap();
        assert_eq!((empty.kind, empty.device), (&b"tmpfs"[..], &b""[..]));
        let mut plain = Vec::new();
        for (escaped, expected) in [
            (r"a\040b\011c\012d\134e\043", "a b\tc\nd\\e#"),
            (r"\", r"\"),
            (r"\04", r"\04"),
            (r"\777", r"\777"),
            (r"x\049", r"x\049"),
        ] {
            unescape(escaped.as_bytes(), &mut plain);
            assert_eq!(plain, expected.as_bytes());
        }
    }

    // Goal: damaged lists never panic, and a cut one is never called whole. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        let (folder, _) = host("1 0 DEVICE / /data rw - ext4 /dev/a rw\n");
        let text = std::fs::read(folder.path().join(FILE_OF_HOST)).unwrap();
        let mut sampler = opened(&ENTRY, "", folder.path()).unwrap();
        assert_composed(&text, |text| {
            std::fs::write(folder.path().join(FILE_OF_HOST), text).unwrap();
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            sampler.build(0, &mut builder).is_none() && rows(builder.finished_data()).len() == 1
        });
    }

    // Goal: mounts come and go, an escaped name is found, one device mounted twice stands there twice, and what cannot be
    // reached is absent and marked. Method: a tree of our own that changes between samples.
    #[test]
    fn mounts_come_and_go() {
        let first = "1 0 DEVICE / /data rw - ext4 /dev/a rw\n2 0 0:3 / /proc rw - proc proc rw\n";
        let (folder, device) = host(first);
        let mut sampler = opened(&ENTRY, "", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            let shortfall = sampler.build(0, &mut builder);
            (rows(builder.finished_data()), shortfall)
        };
        let points = |rows: &[MountRoom]| -> Vec<(u64, String)> {
            rows.iter().map(|row| (row.mount(), text_of(row.mount_point()))).collect()
        };
        let (rows, shortfall) = sample();
        assert_eq!((points(&rows), shortfall), (vec![(1, "/data".to_owned())], Shortfall::NONE));
        assert!(rows[0].blocks() > 0 && rows[0].blocks() != ABSENT);

        let second = format!(
            "3 0 {device} / /with\\040space rw - ext4 /dev/a rw\n{first}4 0 {device} / /nowhere rw - xfs b rw\n"
        );
        write(folder.path(), &second.replace("DEVICE", &device));
        let (rows, shortfall) = sample();
        let names =
            [(3, "/with space"), (1, "/data"), (4, "/nowhere")].map(|(id, name)| (id, name.to_owned()));
        assert_eq!((points(&rows), shortfall), (names.to_vec(), Shortfall::MISSING));
        assert_eq!((rows[2].blocks(), rows[2].read_only()), (ABSENT, ABSENT));

        // The directory is there, but on another device: the mount is not to be seen from here.
        write(folder.path(), "5 0 98:76 / /data rw - ext4 /dev/a rw\n");
        let (rows, shortfall) = sample();
        assert_eq!((rows[0].blocks(), shortfall), (ABSENT, Shortfall::MISSING));

        write(folder.path(), "broken\n");
        let (rows, shortfall) = sample();
        assert_eq!((rows.len(), shortfall), (0, Shortfall::UNREADABLE));
        let long = "x".repeat(256);
        write(folder.path(), &format!("6 0 {device} / /data rw - ext4 {long} rw\n"));
        let (rows, shortfall) = sample();
        assert_eq!((text_of(rows[0].device()), shortfall), (String::new(), Shortfall::UNREADABLE));
        assert!(rows[0].blocks() != ABSENT);
    }

    // Goal: patterns match mount points, and bring back what is left out by default. Method: this host with both.
    #[test]
    fn patterns_choose_mounts() {
        let names = |keys: &str| -> Vec<String> {
            let (payload, _) = sampled_under(&ENTRY, keys, Path::new("/"));
            rows(&payload).iter().map(|row| text_of(row.mount_point())).collect()
        };
        assert!(names("").iter().all(|name| name != "/proc"));
        assert_eq!(names("include = [\"/proc\"]"), ["/proc"]);
        assert!(names("exclude = [\"*\"]").is_empty());
    }

    // Goal: figures agree with another tool's. Method: `stat -f` of each mount of this host; what is free may have moved.
    #[test]
    fn agrees_with_stat() {
        let (payload, shortfall) = sampled_under(&ENTRY, "", Path::new("/"));
        assert_eq!(shortfall, Shortfall::NONE);
        let rows = rows(&payload);
        assert!(!rows.is_empty());
        for row in rows {
            let path = text_of(row.mount_point());
            let output = std::process::Command::new("stat").args(["-f", "-c", "%S %b %c %f", &path]).output();
            let Ok(output) = output else {
                println!("passed over: no stat(1)");
                return;
            };
            let words = String::from_utf8(output.stdout).unwrap();
            let values: Vec<u64> = words.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert_eq!([row.block_size(), row.blocks()], values[..2], "{path}");
            assert!(row.blocks_free().abs_diff(values[3]) <= row.blocks() / 10, "{path}");
            assert_eq!(row.read_only(), row.flags() & 1);
        }
    }

    // Goal: the list of a captured host is read whole. Method: each line beside a naive reading.
    #[test]
    fn a_captured_host_is_read() {
        let Some(text) = fixture("26231/mountinfo") else { return };
        // One of its lines was changed by hand and has two spaces where the kernel writes one.
        for line in String::from_utf8(text).unwrap().lines().filter(|line| !line.contains("  ")) {
            let parsed = Line::of(line.as_bytes()).unwrap();
            let (before, after) = line.split_once(" - ").unwrap();
            assert_eq!(parsed.mount_point, before.split(' ').nth(4).unwrap().as_bytes());
            assert_eq!(parsed.kind, after.split(' ').next().unwrap().as_bytes());
        }
    }
}
