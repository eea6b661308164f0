//! Build ids of executables and libraries. A build id is a note that linkers write into ELF files.
//! Only identical files have identical build ids.
//!
//! The files may belong to any user of the host. So this module opens only regular files and bounds
//! all reads. A file that is malformed or not an ELF file has no build id.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};

/// Maximum length of a build id, in bytes. The kernel does not report longer build ids.
pub(crate) const BUILD_ID_BYTES_MAX: usize = 20;
/// Maximum number of segment headers, and of section headers, that are checked. Files of usual
/// linkers have some 15 segments and 40 sections.
const HEADERS_MAX: usize = 128;
/// Maximum length and number of notes. The build id is within the first few hundred bytes.
const NOTES_BYTES_MAX: usize = 8 << 10;
const NOTES_MAX: usize = 16;
/// Maximum lengths of a file header and of a header in its tables, in bytes. Both lengths apply to
/// 64-bit files.
const FILE_HEADER_BYTES: usize = 64;
const TABLE_HEADER_BYTES_MAX: usize = 64;
/// Type of a segment with notes (`PT_NOTE`), of a section with notes (`SHT_NOTE`), and of the note
/// with the build id (`NT_GNU_BUILD_ID`).
const SEGMENT_NOTES: u32 = 4;
const SECTION_NOTES: u32 = 7;
const BUILD_ID: u32 = 3;
const BUILD_ID_OWNER: &[u8] = b"GNU\0";

/// A build id, of 1 to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElfBuildId {
    bytes: [u8; BUILD_ID_BYTES_MAX], // zero after the length
    length: u8,
}

impl ElfBuildId {
    /// Creates a build id from its bytes. Returns `None` for an empty or too long slice.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut padded = [0; BUILD_ID_BYTES_MAX];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(Self { bytes: padded, length: u8::try_from(bytes.len()).ok()? })
    }

    /// Returns the bytes of the build id.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Finds the identity of the content of a file that a process has mapped. `root` is the root
    /// directory of the process, such as /proc/PID/root, and `path` is the path of the file within
    /// `root`. `inode` is the inode number of the mapped file. The inode number is needed because
    /// another file may now have the same path.
    ///
    /// May wait for the disk, or for the server of a file system.
    ///
    /// # Errors
    /// `NotFound` if another file has the path; `Unsupported` if the file is not a regular file,
    /// and before Linux 5.6. `PermissionDenied` if this process may not access the root of the
    /// other process or read the file; or any error of the underlying system calls.
    pub fn of_mapped_file(root: &Path, path: &CStr, inode: u64) -> io::Result<Option<FileContentId>> {
        let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Links in a container are resolved within the container, so no link leads out of it.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        let status = fstat(&found)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(ErrorKind::Unsupported.into());
        }
        // The device is not compared, because some file systems report different devices for files
        // and mappings.
        if status.st_ino != inode {
            return Err(ErrorKind::NotFound.into());
        }
        let file = File::from(reopen(&found)?);
        match Self::find(|buffer, offset| file.read_at(buffer, offset))? {
            Some(build_id) => Ok(Some(FileContentId::BuildId(build_id))),
            None => Ok(FileStamp::of(&fstat(&file)?).map(FileContentId::Version)),
        }
    }

    /// Finds the build id in an ELF file. `read_at` reads bytes of the file from an offset. A file
    /// whose byte order differs from the byte order of this host is treated as a file without a
    /// build id, because it cannot run here.
    ///
    /// # Errors
    /// Any error of `read_at`.
    pub fn find(mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Option<Self>> {
        let mut header = [0; FILE_HEADER_BYTES];
        read_up_to(&mut read_at, &mut header, 0)?;
        let Some(layout) = ElfLayout::parse(&header) else { return Ok(None) };
        let mut notes_left = NOTES_MAX;
        let mut notes = [0; NOTES_BYTES_MAX];
        // Go linkers write a segment for a note of Go, and write the build id only into a section.
        for table in [&layout.segments, &layout.sections] {
            for index in 0..table.headers.min(HEADERS_MAX) {
                let mut header = [0; TABLE_HEADER_BYTES_MAX];
                let at =
                    (index as u64).checked_mul(table.header_bytes).and_then(|at| at.checked_add(table.begin));
                // No file is longer than `i64::MAX` bytes, because the kernel refuses larger
                // offsets.
                let Some(at) = at.filter(|at| i64::try_from(*at).is_ok()) else { break };
                read_up_to(&mut read_at, &mut header, at)?;
                let Some(part) = table.notes(&header, layout.is_64_bit) else { continue };
                if i64::try_from(part.offset).is_err() {
                    continue;
                }
                let length = usize::try_from(part.length).unwrap_or(usize::MAX).min(NOTES_BYTES_MAX);
                let Some(buffer) = notes.get_mut(..length) else { continue };
                let length = read_up_to(&mut read_at, buffer, part.offset)?;
                let found = Self::in_notes(buffer.get(..length).unwrap_or_default(), part.alignment);
                if found.is_some() {
                    return Ok(found);
                }
                notes_left -= 1;
                if notes_left == 0 {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Finds the build id among the notes in a segment of an ELF file, or in /sys/kernel/notes.
    /// Each note starts at a multiple of `alignment`.
    pub fn in_notes(notes: &[u8], alignment: usize) -> Option<Self> {
        let mut rest = notes;
        loop {
            let (name_bytes, content_bytes) = (u32_at(rest, 0)? as usize, u32_at(rest, 4)? as usize);
            let kind = u32_at(rest, 8)?;
            let content_at = 12_usize.checked_add(name_bytes)?.checked_next_multiple_of(alignment)?;
            let end = content_at.checked_add(content_bytes)?;
            let name = rest.get(12..)?.get(..name_bytes)?;
            let content = rest.get(content_at..end)?;
            if kind == BUILD_ID && name == BUILD_ID_OWNER {
                return Self::new(content);
            }
            rest = rest.get(end.checked_next_multiple_of(alignment)?..)?;
        }
    }
}

impl fmt::Debug for ElfBuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Identifies the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileContentId {
    /// The build id.
    BuildId(ElfBuildId),
    /// The size and modification time, for a file without a build id. Together with the file's
    /// path, they identify the content.
    Version(FileStamp),
}

/// Size and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// The file's size.
    pub bytes: u64,
    /// Time of the last modification of the file, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl FileStamp {
    /// Returns `None` if the modification time is more than 292 years before or after 1970.
    fn of(status: &Stat) -> Option<Self> {
        let ns = i128::from(status.st_mtime) * 1_000_000_000 + i128::from(status.st_mtime_nsec);
        let modified_ns = i64::try_from(ns).ok()?;
        Some(Self { bytes: u64::try_from(status.st_size).ok()?, modified_ns })
    }
}

/// The positions of the header tables of an ELF file.
#[derive(Debug)]
struct ElfLayout {
    is_64_bit: bool,
    segments: ElfTable,
    sections: ElfTable,
}

/// A table of headers.
#[derive(Debug)]
struct ElfTable {
    begin: u64,
    header_bytes: u64,
    headers: usize,
    is_of_sections: bool,
}

impl ElfLayout {
    fn parse(header: &[u8; FILE_HEADER_BYTES]) -> Option<Self> {
        const THIS_BYTE_ORDER: u8 = if cfg!(target_endian = "big") { 2 } else { 1 };
        let (magic, rest) = header.split_at(4);
        let is_64_bit = match rest {
            [1, THIS_BYTE_ORDER, ..] => false,
            [2, THIS_BYTE_ORDER, ..] => true,
            _ => return None,
        };
        let table = |begin_at, sizes_at, is_of_sections| {
            let begin = if is_64_bit { u64_at(header, begin_at)? } else { u32_at(header, begin_at)?.into() };
            let (header_bytes, headers) = (u16_at(header, sizes_at)?, u16_at(header, sizes_at + 2)?);
            let (header_bytes, headers) = (header_bytes.into(), headers.into());
            Some(ElfTable { begin, header_bytes, headers, is_of_sections })
        };
        let (segments, sections) = if is_64_bit {
            (table(32, 54, false)?, table(40, 58, true)?)
        } else {
            (table(28, 42, false)?, table(32, 46, true)?)
        };
        (magic == b"\x7FELF").then_some(Self { is_64_bit, segments, sections })
    }
}

/// A range of a file that contains notes.
#[derive(Debug)]
struct NotePart {
    offset: u64,
    length: u64,
    alignment: usize,
}

impl ElfTable {
    /// Returns the part of the file that a header of this table describes. Returns `None` if that
    /// part has no notes.
    fn notes(&self, header: &[u8], is_64_bit: bool) -> Option<NotePart> {
        let (kind, wanted) = if self.is_of_sections {
            (u32_at(header, 4)?, SECTION_NOTES)
        } else {
            (u32_at(header, 0)?, SEGMENT_NOTES)
        };
        let word = |at| if is_64_bit { u64_at(header, at) } else { Some(u32_at(header, at)?.into()) };
        // The positions of the offset, the length and the alignment in the header.
        let [offset, length, alignment] = match (self.is_of_sections, is_64_bit) {
            (false, true) => [8, 32, 48],
            (false, false) => [4, 16, 28],
            (true, true) => [24, 32, 48],
            (true, false) => [16, 20, 32],
        };
        let alignment = if word(alignment)? == 8 { 8 } else { 4 };
        let part = NotePart { offset: word(offset)?, length: word(length)?, alignment };
        (kind == wanted).then_some(part)
    }
}

/// Opens a regular file for reading. The caller has checked that it is regular.
fn reopen(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes that were read.
fn read_up_to(
    read_at: &mut impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut length = 0;
    while let Some(space) = buffer.get_mut(length..).filter(|space| !space.is_empty()) {
        let Some(offset) = offset.checked_add(length as u64) else { break };
        match read_at(space, offset) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The offset is beyond the largest file offset.
            Err(error) if error.kind() == ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    const ID: [u8; 20] = *b"a build id, 20 bytes";

    fn note(kind: u32, owner: &[u8], content: &[u8], alignment: usize) -> Vec<u8> {
        let mut note = Vec::new();
        let lengths = [u32::try_from(owner.len()).unwrap(), u32::try_from(content.len()).unwrap(), kind];
        note.extend(lengths.iter().flat_map(|word| word.to_ne_bytes()));
        note.extend(owner);
        note.resize(note.len().next_multiple_of(alignment), 0);
        note.extend(content);
        note.resize(note.len().next_multiple_of(alignment), 0);
        note
    }

    /// Returns an ELF file with these note segments.
    fn elf(is_64_bit: bool, segments: &[(Vec<u8>, u64)]) -> Vec<u8> {
        let order = if cfg!(target_endian = "big") { 2 } else { 1 };
        let mut file = vec![0x7F, b'E', b'L', b'F', if is_64_bit { 2 } else { 1 }, order, 1];
        file.resize(FILE_HEADER_BYTES, 0);
        let header_bytes: usize = if is_64_bit { 56 } else { 32 };
        let word = |file: &mut Vec<u8>, at: usize, value: usize, bytes: usize| {
            let value = (value as u64).to_le_bytes();
            let mut value = value[..bytes].to_vec();
            if cfg!(target_endian = "big") {
                value.reverse();
            }
            file[at..at + bytes].copy_from_slice(&value);
        };
        let (begin_at, sizes_at, bytes) = if is_64_bit { (32, 54, 8) } else { (28, 42, 4) };
        word(&mut file, begin_at, FILE_HEADER_BYTES, bytes);
        word(&mut file, sizes_at, header_bytes, 2);
        word(&mut file, sizes_at + 2, segments.len() + 1, 2);
        let mut content_at = FILE_HEADER_BYTES + (segments.len() + 1) * header_bytes;
        file.resize(content_at, 0);
        // The first header describes a loadable segment.
        word(&mut file, FILE_HEADER_BYTES, 1, 4);
        for (index, (notes, alignment)) in segments.iter().enumerate() {
            let at = FILE_HEADER_BYTES + (index + 1) * header_bytes;
            word(&mut file, at, 4, 4);
            let (offset_at, length_at, alignment_at) = if is_64_bit { (8, 32, 48) } else { (4, 16, 28) };
            word(&mut file, at + offset_at, content_at, bytes);
            word(&mut file, at + length_at, notes.len(), bytes);
            word(&mut file, at + alignment_at, usize::try_from(*alignment).unwrap(), bytes);
            content_at += notes.len();
        }
        file.extend(segments.iter().flat_map(|(notes, _)| notes));
        file
    }

    fn example(is_64_bit: bool) -> Vec<u8> {
        let properties = note(5, b"GNU\0", &[1; 20], 8);
        let notes =
            [note(1, b"GNU\0", &[2; 16], 4), note(3, b"Go\0\0", &[3; 9], 4), note(3, b"GNU\0", &ID, 4)];
        elf(is_64_bit, &[(properties, 8), (notes.concat(), 4)])
    }

    /// Changes an ELF file so that its section headers describe the notes, and its segment headers
    /// do not.
    fn with_sections(mut file: Vec<u8>, is_64_bit: bool) -> Vec<u8> {
        let header_bytes: usize = if is_64_bit { 64 } else { 40 };
        let segment_bytes: usize = if is_64_bit { 56 } else { 32 };
        let sections: Vec<NotePart> = {
            let header: [u8; FILE_HEADER_BYTES] = file[..FILE_HEADER_BYTES].try_into().unwrap();
            let table = ElfLayout::parse(&header).unwrap().segments;
            let headers = (1..table.headers).map(|index| FILE_HEADER_BYTES + index * segment_bytes);
            headers.map(|at| table.notes(&file[at..at + segment_bytes], is_64_bit).unwrap()).collect()
        };
        let begin = file.len();
        let word = |bytes: &mut [u8], at: usize, value: usize, length: usize| {
            let mut value = (value as u64).to_le_bytes()[..length].to_vec();
            if cfg!(target_endian = "big") {
                value.reverse();
            }
            bytes[at..at + length].copy_from_slice(&value);
        };
        let (begin_at, sizes_at, length) = if is_64_bit { (40, 58, 8) } else { (32, 46, 4) };
        word(&mut file, if is_64_bit { 56 } else { 44 }, 0, 2);
        word(&mut file, begin_at, begin, length);
        word(&mut file, sizes_at, header_bytes, 2);
        word(&mut file, sizes_at + 2, sections.len(), 2);
        for part in sections {
            let mut header = vec![0; header_bytes];
            word(&mut header, 4, 7, 4);
            let places = if is_64_bit { [24, 32, 48] } else { [16, 20, 32] };
            let values = [part.offset, part.length, part.alignment as u64];
            for (at, value) in places.into_iter().zip(values) {
                word(&mut header, at, usize::try_from(value).unwrap(), length);
            }
            file.extend(header);
        }
        file
    }

    fn find(file: &[u8]) -> Option<ElfBuildId> {
        let read = |buffer: &mut [u8], offset: u64| {
            let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)).unwrap_or_default();
            // At most half of the requested bytes are returned, because reads may be short.
            let length = rest.len().min(buffer.len().div_ceil(2));
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        };
        ElfBuildId::find(read).unwrap()
    }

    // Proves that the build id is found in files of both word lengths, after other notes, in
    // segments of other alignments, and in sections.
    #[test]
    fn a_build_id_is_found() {
        for is_64_bit in [true, false] {
            assert_eq!(find(&example(is_64_bit)).unwrap().as_bytes(), ID);
            // Go linkers write no segment for the build id.
            assert_eq!(find(&with_sections(example(is_64_bit), is_64_bit)).unwrap().as_bytes(), ID);
        }
        let aligned = [note(5, b"GNU\0", &[1; 20], 8), note(3, b"GNU\0", &ID[..8], 8)].concat();
        assert_eq!(find(&elf(true, &[(aligned, 8)])).unwrap().as_bytes(), &ID[..8]);
        assert_eq!(find(&elf(true, &[])), None);
        assert_eq!(find(b"#!/bin/sh\n"), None);
        let long = note(3, b"GNU\0", &[7; 21], 4);
        assert_eq!(find(&elf(true, &[(long, 4)])), None);
        assert_eq!(format!("{:?}", ElfBuildId::new(&[0x0A, 0xFF]).unwrap()), "0aff");
    }

    // Proves that a truncated or damaged file has no build id or a build id of a valid length, and
    // that no search fails.
    #[test]
    fn damaged_files_are_harmless() {
        for is_64_bit in [true, false] {
            let file = example(is_64_bit);
            for cut in 0..file.len() {
                assert!(find(&file[..cut]).is_none_or(|id| id.as_bytes() == ID), "{cut}");
            }
            for at in 0..file.len() {
                for byte in [0, 1, 4, 0x7F, 0x80, 0xFF] {
                    let mut damaged = file.clone();
                    damaged[at] = byte;
                    let _any = find(&damaged);
                }
            }
        }
    }

    proptest! {
        // Proves that no file content makes the search fail or read without end. The contents are
        // random bytes after a valid start.
        #[test]
        fn any_file_is_accepted(
            rest in proptest::collection::vec(any::<u8>(), 0..4096),
            is_64_bit: bool,
            kept in 0_usize..FILE_HEADER_BYTES,
        ) {
            let mut file = example(is_64_bit);
            file.truncate(kept);
            file.extend(rest);
            let mut reads = 0;
            let found = ElfBuildId::find(|buffer, offset| {
                reads += 1;
                let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            });
            prop_assert!(found.is_ok() && reads <= 2 * (1 + 2 * HEADERS_MAX + NOTES_MAX), "{reads}");
        }
    }

    // Proves that the build id of this program is found by its path. Another file at this path, a
    // directory, a device and a link out of the root are refused.
    #[test]
    fn files_of_a_process_are_read() {
        let program = std::env::current_exe().unwrap();
        let inode = std::fs::metadata(&program).unwrap().ino();
        let path = CString::new(program.as_os_str().as_bytes()).unwrap();
        let root = Path::new("/proc/self/root");
        let found = ElfBuildId::of_mapped_file(root, &path, inode).unwrap();
        let content = std::fs::read(&program).unwrap();
        if let Some(build_id) = find(&content) {
            assert_eq!(found, Some(FileContentId::BuildId(build_id)));
        }
        // A program without build id, such as a script, has a version.
        let without = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(without.path(), "text").unwrap();
        let status = without.as_file().metadata().unwrap();
        let own_path = CString::new(without.path().as_os_str().as_bytes()).unwrap();
        let version = ElfBuildId::of_mapped_file(root, &own_path, status.ino()).unwrap();
        let modified_ns = status.mtime() * 1_000_000_000 + status.mtime_nsec();
        let expected = FileContentId::Version(FileStamp { bytes: 4, modified_ns });
        assert_eq!(version, Some(expected));
        let of = |path: &CStr, inode: u64| ElfBuildId::of_mapped_file(root, path, inode).unwrap_err().kind();
        assert_eq!(of(&path, inode + 1), ErrorKind::NotFound);
        let inode = |path: &str| std::fs::metadata(path).unwrap().ino();
        assert_eq!(of(c"/dev/null", inode("/dev/null")), ErrorKind::Unsupported);
        assert_eq!(of(c"/proc", inode("/proc")), ErrorKind::Unsupported);
        // A link does not lead out of the root.
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let outside = ElfBuildId::of_mapped_file(folder.path(), c"/link", inode("/etc/passwd"));
        assert_eq!(outside.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
