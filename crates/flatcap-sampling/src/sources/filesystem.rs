//! `filesystem`: space and inodes of each mount, from mountinfo and statvfs(3).

use std::ffi::CStr;
use std::io::ErrorKind;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_os::mount::{FilesystemSpace, MountIdentity, filesystem_space};
use flatcap_schemas::host::{Filesystem, FilesystemArgs, MountRoom};

use super::devices;
use super::guarded_reads::{BlockingRead, GuardedElement, GuardedReads};
use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::odd_text::{self, OddText};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler};

/// The mount list of the host's first process. The source reads this list if the configured root is
/// not the recorder's own root.
const FILE_OF_HOST: &str = "proc/1/mountinfo";
/// The mount list of the recorder. If the configured root is the recorder's own root, the source
/// reads this list, because its paths are valid for the recorder.
const FILE_OF_SELF: &str = "proc/self/mountinfo";
/// Maximum number of mounts in one sample.
const MOUNTS_MAX: usize = 4096;
/// Types of file systems that contain no files of users. File systems of these types are skipped
/// unless `include` is set.
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
/// Types of file systems whose directories can have device numbers of their own, which mountinfo
/// does not show.
const WITH_OWN_DEVICES: [&[u8]; 2] = [b"bcachefs", b"btrfs"];

/// `include` and `exclude` match the mount point. A mount whose server does not answer has no
/// values, and is tried again with growing intervals. Without `include`, pseudo file systems and
/// file systems without blocks are skipped.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "filesystem",
    about: "Size and free space of each mounted file system.",
    root: "flatcap.host.Filesystem",
    schema: include_bytes!("../../../../generated/host/filesystem.bfbs"),
    files: &[FILE_OF_HOST, FILE_OF_SELF],
    // Disks fill over minutes, and a dead file server can delay a sample.
    period: Duration::from_secs(10),
    may_block: true,
    refresh: "at each write; some file systems update their totals every few seconds",
    selects: "mount points, such as /var",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let is_own = context.host.is_own_root();
    let path = if is_own { FILE_OF_SELF } else { FILE_OF_HOST };
    let root = context.host.path("").into_os_string().into_encoded_bytes();
    Ok(OpenedSampler::built(FilesystemSampler {
        path,
        file: host_file(context.host, path, "")?,
        is_own,
        includes_all: !context.settings.include.is_empty(),
        filter: CachedNameFilter::new(context.selection()),
        root: root.strip_suffix(b"/").unwrap_or(&root).to_vec(),
        listed_content: Vec::new(),
        listing_incomplete: Incomplete::NONE,
        listing_odd: None,
        mounts: Vec::new(),
        next_mounts: Vec::new(),
        reads: GuardedReads::new(SPEC.name),
        path_bytes: Vec::new(),
        rows: Vec::new(),
    }))
}

#[derive(Debug)]
struct FilesystemSampler {
    path: &'static str,
    file: HostFile,
    is_own: bool,
    includes_all: bool, // whether pseudo file systems are included too
    filter: CachedNameFilter,
    root: Vec<u8>,           // prefix of mount points; empty for the own root
    listed_content: Vec<u8>, // the list from which `mounts` was made
    listing_incomplete: Incomplete,
    listing_odd: Option<OddText>, // the unreadable line of the list
    mounts: Vec<Mount>,
    next_mounts: Vec<Mount>, // empty between listings
    reads: GuardedReads<MountQuery>,
    path_bytes: Vec<u8>,  // reused
    rows: Vec<MountRoom>, // reused
}

/// A recorded mount.
#[derive(Debug)]
struct Mount {
    row: MountRoom, // the row without the values
    query: GuardedElement<MountQuery>,
}

/// A query about a mount, and its answer.
#[derive(Debug)]
struct MountQuery {
    /// Path of the mount, including the configured root, ended by a zero byte.
    path: Vec<u8>,
    is_own: bool,
    identity: MountIdentity,
    checks_device: bool,
    state: MountState,
}

/// Result of querying a mount.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MountState {
    Space(FilesystemSpace),
    /// The mount is covered by another mount or has been unmounted, so no path leads to it.
    Hidden,
    Refused(Incomplete),
}

impl Sampler for FilesystemSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })?;
        if self.file.content() != self.listed_content {
            self.list();
        }
        let read = self.reads.read(&mut self.mounts, |mount| &mut mount.query, Mount::name);
        read.map_err(|error| ReadError { file: self.path, error })
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.reads.cpu_ns()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.listing_incomplete;
        odd_text::restore(self.listing_odd.as_ref());
        self.rows.clear();
        for mount in &self.mounts {
            let mut row = mount.row;
            // A mount whose earlier query still hangs was not queried again.
            let state = mount.query.with(|query| query.state);
            if state.is_none() {
                odd_text::note_hanging(&mount.name());
            }
            match state.unwrap_or(MountState::Refused(Incomplete::UNREADABLE)) {
                MountState::Hidden => continue,
                MountState::Space(space) if space.blocks == 0 && !self.includes_all => continue,
                MountState::Space(space) => set_space(&mut row, &space),
                MountState::Refused(reason) => {
                    incomplete |= odd_text::of_element(reason, || mount.name());
                }
            }
            self.rows.push(row);
        }
        let mounts = builder.create_vector(&self.rows);
        let root = Filesystem::create(builder, &FilesystemArgs { mounts: Some(mounts) });
        builder.finish_minimal(root);
        incomplete
    }
}

impl FilesystemSampler {
    /// Updates `mounts` after the mount list has changed.
    fn list(&mut self) {
        let content = self.file.content();
        self.listed_content.clear();
        self.listed_content.extend_from_slice(content);
        let (lines, mut incomplete) = text::whole_lines(content);
        self.next_mounts.clear();
        // Most mounts stay in the same order, so in the reversed list each mount is found at the
        // end.
        self.mounts.reverse();
        for (place, line) in lines.enumerate() {
            let Some(line) = MountLine::of(line) else {
                incomplete |= odd_text::unreadable(line);
                continue;
            };
            if !self.includes_all && PSEUDO.contains(&line.kind) {
                continue;
            }
            unescape(line.mount_point, &mut self.path_bytes);
            if !self.filter.matches(place, &self.path_bytes) {
                continue;
            }
            if self.next_mounts.len() == MOUNTS_MAX {
                incomplete |= Incomplete::TOO_MANY;
                break;
            }
            let (row, lacks) = row_of(&line, &mut self.path_bytes);
            incomplete |= lacks;
            // A mount that is still in the list keeps its query, because the query may hang.
            let at = self.mounts.iter().rposition(|mount| mount.row == row);
            self.next_mounts.push(match at {
                Some(at) => self.mounts.swap_remove(at),
                None => Mount::new(&row, &line, (&self.root, self.is_own), &mut self.path_bytes),
            });
        }
        std::mem::swap(&mut self.mounts, &mut self.next_mounts);
        self.next_mounts.clear();
        self.listing_incomplete = odd_text::in_file(incomplete, content, format_args!("/{}", self.path));
        // The text is kept here, because another thread may build the sample.
        self.listing_odd = odd_text::take().filter(|_| !incomplete.is_none());
    }
}

/// Returns the row of a mount, without its values. `path_bytes` is reused.
fn row_of(line: &MountLine<'_>, path_bytes: &mut Vec<u8>) -> (MountRoom, Incomplete) {
    unescape(line.mount_point, path_bytes);
    let mount_point = text::name(path_bytes);
    unescape(line.device, path_bytes);
    let device = text::name(path_bytes);
    let kind = text::name(line.kind);
    let fits = mount_point.is_some() && device.is_some() && kind.is_some();
    let mut row = MountRoom([0xFF; size_of::<MountRoom>()]); // ABSENT in every number
    row.set_mount(line.mount);
    row.set_major(line.major);
    row.set_minor(line.minor);
    row.set_mount_point(&mount_point.unwrap_or([0; 256]));
    row.set_device(&device.unwrap_or([0; 256]));
    row.set_type_(&kind.unwrap_or([0; 32]));
    (row, if fits { Incomplete::NONE } else { odd_text::unreadable(line.mount_point) })
}

impl Mount {
    fn new(
        row: &MountRoom,
        line: &MountLine<'_>,
        (root, is_own): (&[u8], bool),
        path_bytes: &mut Vec<u8>,
    ) -> Self {
        unescape(line.mount_point, path_bytes);
        let query = MountQuery {
            path: [root, path_bytes, b"\0"].concat(),
            is_own,
            identity: MountIdentity { mount: Some(line.mount), device: (line.major, line.minor) },
            checks_device: !WITH_OWN_DEVICES.contains(&line.kind),
            state: MountState::Hidden,
        };
        Self { row: *row, query: GuardedElement::new(query) }
    }

    fn name(&self) -> String {
        devices::shown(self.row.mount_point())
    }
}

impl BlockingRead for MountQuery {
    fn read(&mut self) {
        self.state = self.query();
    }
}

impl MountQuery {
    /// Queries the kernel. An answer about another mount is discarded, since its values would be
    /// wrong.
    fn query(&self) -> MountState {
        let Ok(path) = CStr::from_bytes_with_nul(&self.path) else {
            return MountState::Refused(Incomplete::UNREADABLE);
        };
        match filesystem_space(path) {
            Ok((identity, space)) if self.is_same_mount(identity) => MountState::Space(space),
            // Under another root the mount exists, but is not visible from here.
            Ok(_) if !self.is_own => MountState::Refused(Incomplete::MISSING),
            Ok(_) => MountState::Hidden,
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory if self.is_own => MountState::Hidden,
                ErrorKind::NotFound | ErrorKind::NotADirectory => MountState::Refused(Incomplete::MISSING),
                ErrorKind::PermissionDenied => MountState::Refused(Incomplete::DENIED),
                _ => MountState::Refused(Incomplete::UNREADABLE),
            },
        }
    }

    /// Returns whether the kernel's response is about this mount. Mount ids belong to one
    /// namespace, so under another root only the device can be compared.
    fn is_same_mount(&self, identity: MountIdentity) -> bool {
        match identity.mount {
            Some(_) if self.is_own => identity.mount == self.identity.mount,
            _ => !self.checks_device || identity.device == self.identity.device,
        }
    }
}

fn set_space(row: &mut MountRoom, space: &FilesystemSpace) {
    row.set_block_size(space.block_size);
    row.set_blocks(space.blocks);
    row.set_blocks_free(space.blocks_free);
    row.set_blocks_available(space.blocks_available);
    row.set_inodes(space.inodes);
    row.set_inodes_free(space.inodes_free);
    row.set_flags(space.flags);
    row.set_read_only(space.flags & 1);
}

/// One line of mountinfo, without unused fields. Paths and names are still escaped.
#[derive(Debug, PartialEq)]
struct MountLine<'a> {
    mount: u64,
    major: u64,
    minor: u64,
    mount_point: &'a [u8],
    kind: &'a [u8],
    device: &'a [u8],
}

impl<'a> MountLine<'a> {
    /// Parses a line such as `36 35 98:0 /root /mount/point rw,noatime master:1 shared:2 - ext3
    /// /dev/root rw`. There may be any number of words between the options and the hyphen, and the
    /// device may be empty.
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

/// Replaces `\040` and other octal escapes by the bytes they encode.
fn unescape(escaped: &[u8], plain: &mut Vec<u8>) {
    plain.clear();
    let mut rest = escaped;
    while let [first, tail @ ..] = rest {
        let (byte, after) = decode_escape(rest).unwrap_or((*first, tail));
        plain.push(byte);
        rest = after;
    }
}

/// Decodes the octal escape at the start of a text. Returns the byte and the text after the escape.
fn decode_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = text else { return None };
    Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after))
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, open_sampler, sample_under};
    use crate::sources::text::ABSENT;

    fn text_of<const BYTES: usize>(text: flatbuffers::Array<'_, u8, BYTES>) -> String {
        let bytes: Vec<u8> = text.iter().take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn rows(payload: &[u8]) -> Vec<MountRoom> {
        flatbuffers::root::<Filesystem<'_>>(payload).unwrap().mounts().iter().copied().collect()
    }

    /// Creates a host whose mounts are directories of one folder. Also returns the device of these
    /// directories.
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

    // Proves that each field is found, whatever optional words precede the hyphen.
    #[test]
    fn every_value_is_in_its_place() {
        for optional in ["", "master:1 ", "shared:9 master:8 propagate_from:7 unbindable "] {
            let line = format!(r"36 35 98:12 /r /mnt\0401 rw,x {optional}- ext3 /dev/ro\134ot rw,errors=y");
            let line = MountLine::of(line.as_bytes()).unwrap();
            let kind = &b"ext3"[..];
            let expected = MountLine {
                mount: 36,
                major: 98,
                minor: 12,
                mount_point: br"/mnt\0401",
                kind,
                device: br"/dev/ro\134ot",
            };
            assert_eq!(line, expected);
        }
        let empty = MountLine::of(b"36 35 0:12 / /m rw - tmpfs  rw").unwrap();
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

    // Proves that damaged lists never cause a panic and that a truncated list is always marked.
    #[test]
    fn damaged_text_is_marked() {
        let (folder, _) = host("1 0 DEVICE / /data rw - ext4 /dev/a rw\n");
        let text = std::fs::read(folder.path().join(FILE_OF_HOST)).unwrap();
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        assert_damage_is_marked(&text, |text| {
            std::fs::write(folder.path().join(FILE_OF_HOST), text).unwrap();
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            sampler.build(0, &mut builder).is_none() && rows(builder.finished_data()).len() == 1
        });
    }

    // Proves that mounts come and go, that escaped names are found, and that a device that is
    // mounted twice is recorded twice. Unreachable mounts are absent and marked.
    #[test]
    fn mounts_come_and_go() {
        let first = "1 0 DEVICE / /data rw - ext4 /dev/a rw\n2 0 0:3 / /proc rw - proc proc rw\n";
        let (folder, device) = host(first);
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            let incomplete = sampler.build(0, &mut builder);
            (rows(builder.finished_data()), incomplete)
        };
        let points = |rows: &[MountRoom]| -> Vec<(u64, String)> {
            rows.iter().map(|row| (row.mount(), text_of(row.mount_point()))).collect()
        };
        let (rows, incomplete) = sample();
        assert_eq!((points(&rows), incomplete), (vec![(1, "/data".to_owned())], Incomplete::NONE));
        assert!(rows[0].blocks() > 0 && rows[0].blocks() != ABSENT);

        let second = format!(
            "3 0 {device} / /with\\040space rw - ext4 /dev/a rw\n{first}4 0 {device} / /nowhere rw - xfs b rw\n"
        );
        write(folder.path(), &second.replace("DEVICE", &device));
        let (rows, incomplete) = sample();
        let names =
            [(3, "/with space"), (1, "/data"), (4, "/nowhere")].map(|(id, name)| (id, name.to_owned()));
        assert_eq!((points(&rows), incomplete), (names.to_vec(), Incomplete::MISSING));
        assert_eq!((rows[2].blocks(), rows[2].read_only()), (ABSENT, ABSENT));

        // The directory exists, but on another device, so the mount is not visible from here.
        write(folder.path(), "5 0 98:76 / /data rw - ext4 /dev/a rw\n");
        let (rows, incomplete) = sample();
        assert_eq!((rows[0].blocks(), incomplete), (ABSENT, Incomplete::MISSING));

        write(folder.path(), "broken\n");
        let (rows, incomplete) = sample();
        assert_eq!((rows.len(), incomplete), (0, Incomplete::UNREADABLE));
        let long = "x".repeat(256);
        write(folder.path(), &format!("6 0 {device} / /data rw - ext4 {long} rw\n"));
        let (rows, incomplete) = sample();
        assert_eq!((text_of(rows[0].device()), incomplete), (String::new(), Incomplete::UNREADABLE));
        assert!(rows[0].blocks() != ABSENT);
    }

    // Proves that patterns match mount points, and that `include` restores mounts skipped by
    // default.
    #[test]
    fn patterns_choose_mounts() {
        let names = |keys: &str| -> Vec<String> {
            let (payload, _) = sample_under(&SPEC, keys, Path::new("/"));
            rows(&payload).iter().map(|row| text_of(row.mount_point())).collect()
        };
        assert!(names("").iter().all(|name| name != "/proc"));
        assert_eq!(names("include = [\"/proc\"]"), ["/proc"]);
        assert!(names("exclude = [\"*\"]").is_empty());
    }

    // Proves agreement with `stat -f` for each mount of this host. Free space may change between
    // these reads.
    #[test]
    fn agrees_with_stat() {
        let (payload, incomplete) = sample_under(&SPEC, "", Path::new("/"));
        assert_eq!(incomplete, Incomplete::NONE);
        let rows = rows(&payload);
        assert!(!rows.is_empty());
        for row in rows {
            let path = text_of(row.mount_point());
            let output = std::process::Command::new("stat").args(["-f", "-c", "%S %b %c %f", &path]).output();
            let Ok(output) = output else {
                println!("skipped: no stat(1)");
                return;
            };
            let words = String::from_utf8(output.stdout).unwrap();
            let values: Vec<u64> = words.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert_eq!([row.block_size(), row.blocks()], values[..2], "{path}");
            assert!(row.blocks_free().abs_diff(values[3]) <= row.blocks() / 10, "{path}");
            assert_eq!(row.read_only(), row.flags() & 1);
        }
    }

    // Proves that the mount list captured from a host is read completely, and that a naive parser
    // finds the same mounts.
    #[test]
    fn a_captured_host_is_read() {
        let Some(text) = fixture("26231/mountinfo") else { return };
        // Leaves out one line, which was edited by hand and has two spaces where the kernel writes
        // one.
        for line in String::from_utf8(text).unwrap().lines().filter(|line| !line.contains("  ")) {
            let parsed = MountLine::of(line.as_bytes()).unwrap();
            let (before, after) = line.split_once(" - ").unwrap();
            assert_eq!(parsed.mount_point, before.split(' ').nth(4).unwrap().as_bytes());
            assert_eq!(parsed.kind, after.split(' ').next().unwrap().as_bytes());
        }
    }
}
