//! The parts of an ELF file, that is, its build id, segments and sections.

use std::path::Path;

use object::LittleEndian;
use object::elf::{
    ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE,
    SHF_COMPRESSED, SHF_EXECINSTR, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_SYMTAB,
};
use object::pod;
use object::read::elf::{CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader};

use crate::bounded_file::{BoundedFile, FilePart};
use crate::build_id::BuildId;
use crate::error::SymbolError;

/// Maximum number of bytes of a table of segments or sections, which has at most 65,535 entries of
/// 64 bytes.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of the table of section names, and maximum size of a note, in bytes.
const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of bytes of a section's name that are kept. The names that this program looks up
/// have fewer than 20 bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of notes that are searched for the build id. Most files have about three notes.
const NOTES_MAX: usize = 64;
/// Size of the smallest page, in bytes. All other page sizes are multiples of this size.
const PAGE_BYTES: u64 = 4096;
/// Length of an ELF header in bytes, in the larger of its two forms (32 and 64 bit).
const HEADER_BYTES: u64 = 64;

/// An ELF file that is open.
#[derive(Debug)]
pub(crate) struct ElfFile {
    pub(crate) file: BoundedFile,
    /// Whether addresses have 64 bits.
    pub(crate) is_64: bool,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) segments: Vec<LoadedSegment>,
    pub(crate) sections: Vec<ElfSection>,
}

/// A part of the file that is mapped into memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedSegment {
    pub(crate) offset: u64,
    pub(crate) file_bytes: u64,
    pub(crate) address: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) is_code: bool,
}

/// A named part of the file.
#[derive(Debug, Clone)]
pub(crate) struct ElfSection {
    pub(crate) name: String,
    pub(crate) content: SectionContent,
    /// Index of a related section. For a symbol table, this section contains the names of the
    /// symbols.
    pub(crate) link: usize,
    /// Whether the section contains machine code.
    pub(crate) is_code: bool,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) compression: Option<SectionCompression>,
}

/// The content of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionContent {
    Symbols,
    DynamicSymbols,
    Notes,
    /// The file lacks the section's bytes, because they are in another file.
    Absent,
    Other,
}

/// The compression of a section. `offset` and `bytes` refer to its compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionCompression {
    pub(crate) codec: SectionCodec,
    pub(crate) uncompressed_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionCodec {
    Zlib,
    Zstd,
}

impl ElfFile {
    /// Opens a file and reads its tables. Only files of little-endian hosts are read, because all
    /// recordings come from such hosts.
    pub(crate) fn open(path: &Path) -> Result<Self, SymbolError> {
        let file = BoundedFile::open(path)?;
        let part = FilePart { what: "the ELF header", offset: 0, bytes: HEADER_BYTES, limit: HEADER_BYTES };
        let head = file.read(part)?;
        if FileHeader64::<LittleEndian>::parse(head.as_slice()).is_ok() {
            Self::read::<FileHeader64<LittleEndian>>(file, &head)
        } else {
            Self::read::<FileHeader32<LittleEndian>>(file, &head)
        }
    }

    fn read<Elf>(file: BoundedFile, head: &[u8]) -> Result<Self, SymbolError>
    where
        Elf: FileHeader<Endian = LittleEndian>,
    {
        let header = Elf::parse(head).map_err(|_| file.malformed("the ELF header"))?;
        let endian = header.endian().map_err(|_| file.malformed("the byte order"))?;
        let table = |what, offset: u64, entry: usize, count: u16| {
            let bytes = entry as u64 * u64::from(count);
            file.read(FilePart { what, offset, bytes, limit: TABLE_BYTES_MAX })
        };
        let segment_bytes = table(
            "the table of segments",
            header.e_phoff(endian).into(),
            size_of::<Elf::ProgramHeader>(),
            header.e_phnum(endian),
        )?;
        let section_bytes = table(
            "the table of sections",
            header.e_shoff(endian).into(),
            size_of::<Elf::SectionHeader>(),
            header.e_shnum(endian),
        )?;
        let headers = pod::slice_from_all_bytes::<Elf::ProgramHeader>(&segment_bytes);
        let headers = headers.map_err(|()| file.malformed("the table of segments"))?;
        let segments =
            headers.iter().filter(|header| header.p_type(endian) == PT_LOAD).map(|header| LoadedSegment {
                offset: header.p_offset(endian).into(),
                file_bytes: header.p_filesz(endian).into(),
                address: header.p_vaddr(endian).into(),
                memory_bytes: header.p_memsz(endian).into(),
                is_code: header.p_flags(endian).contains(PF_X),
            });
        let segments = segments.collect();
        let sections = sections::<Elf>(&file, header, endian, &section_bytes)?;
        let of_sections = sections.iter().filter(|section| section.content == SectionContent::Notes);
        let of_sections = of_sections.map(|section| (section.offset, section.bytes));
        // A debug file has a copy of the segment table of the executable. The offsets in this copy
        // are wrong for the debug file, so sections are used first.
        let of_segments = headers.iter().filter(|header| header.p_type(endian) == PT_NOTE);
        let of_segments =
            of_segments.map(|header| (header.p_offset(endian).into(), header.p_filesz(endian).into()));
        let build_id = of_sections.chain(of_segments).take(NOTES_MAX).find_map(|(offset, bytes)| {
            let part = FilePart { what: "a note", offset, bytes, limit: NAMES_BYTES_MAX };
            build_id::<Elf>(&file.read(part).ok()?, endian)
        });
        Ok(Self { is_64: header.is_type_64(), build_id, segments, sections, file })
    }

    /// Returns the section with this name.
    pub(crate) fn section(&self, name: &str) -> Option<&ElfSection> {
        let is_it = |section: &&ElfSection| section.name == name && section.content != SectionContent::Absent;
        self.sections.iter().find(is_it)
    }

    /// Returns the address of the code at an offset in the file.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.code().find_map(|segment| {
            let within = offset.checked_sub(segment.offset).filter(|within| *within < segment.file_bytes)?;
            segment.address.checked_add(within)
        })
    }

    /// Returns the address of the code at an offset in the executable. The address is computed from
    /// a debug file. A debug file lacks the bytes of segments, so its own offsets may be useless.
    /// GNU ld and gold place code so that its address minus the address of the first segment equals
    /// its offset. The linkers lld and mold do not place code in this way. With lld and mold, the
    /// address of the code is some pages larger, and the code does not begin at a page boundary.
    /// For files of lld and mold, this method returns `None`, and the caller also needs the
    /// executable.
    pub(crate) fn address_by_layout(&self, offset: u64) -> Option<u64> {
        let first = self.segments.first()?.address;
        let address = first.checked_add(offset)?;
        let is_in = |segment: &&LoadedSegment| {
            address.checked_sub(segment.address).is_some_and(|within| within < segment.memory_bytes)
        };
        let code = self.code().find(is_in)?;
        (code.address == first || code.address % PAGE_BYTES == 0).then_some(address)
    }

    fn code(&self) -> impl Iterator<Item = &LoadedSegment> {
        self.segments.iter().filter(|segment| segment.is_code)
    }
}

fn sections<Elf>(
    file: &BoundedFile,
    header: &Elf,
    endian: LittleEndian,
    table: &[u8],
) -> Result<Vec<ElfSection>, SymbolError>
where
    Elf: FileHeader<Endian = LittleEndian>,
{
    let malformed = || file.malformed("the table of sections");
    let headers = pod::slice_from_all_bytes::<Elf::SectionHeader>(table).map_err(|()| malformed())?;
    let Some(names) = headers.get(usize::from(header.e_shstrndx(endian).0)) else { return Ok(Vec::new()) };
    let names = file.read(FilePart {
        what: "the names of sections",
        offset: names.sh_offset(endian).into(),
        bytes: names.sh_size(endian).into(),
        limit: NAMES_BYTES_MAX,
    })?;
    let section = |header: &Elf::SectionHeader| {
        let at = usize::try_from(header.sh_name(endian)).unwrap_or(usize::MAX);
        // All names may refer to one long text, so each name is truncated before it is copied.
        let rest = names.get(at..).unwrap_or_default();
        let rest = rest.get(..NAME_BYTES_MAX).unwrap_or(rest);
        let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        let content = match header.sh_type(endian) {
            SHT_SYMTAB => SectionContent::Symbols,
            SHT_DYNSYM => SectionContent::DynamicSymbols,
            SHT_NOTE => SectionContent::Notes,
            SHT_NOBITS => SectionContent::Absent,
            _ => SectionContent::Other,
        };
        let mut section = ElfSection {
            name: String::from_utf8_lossy(name).into_owned(),
            content,
            link: usize::try_from(header.sh_link(endian)).unwrap_or(usize::MAX),
            is_code: header.sh_flags(endian).contains(SHF_EXECINSTR),
            address: header.sh_addr(endian).into(),
            offset: header.sh_offset(endian).into(),
            bytes: header.sh_size(endian).into(),
            compression: None,
        };
        if header.sh_flags(endian).contains(SHF_COMPRESSED) && content != SectionContent::Absent {
            set_compression::<Elf::CompressionHeader>(file, endian, &mut section)?;
        }
        Ok(section)
    };
    headers.iter().map(section).collect()
}

/// Reads the compression of a section.
fn set_compression<Compression>(
    file: &BoundedFile,
    endian: LittleEndian,
    section: &mut ElfSection,
) -> Result<(), SymbolError>
where
    Compression: CompressionHeader<Endian = LittleEndian>,
{
    let (what, bytes) = ("a compressed section", size_of::<Compression>() as u64);
    let head = file.read(FilePart { what, offset: section.offset, bytes, limit: bytes })?;
    let (header, _) = pod::from_bytes::<Compression>(&head).map_err(|()| file.malformed(what))?;
    let codec = match header.ch_type(endian) {
        ELFCOMPRESS_ZLIB => SectionCodec::Zlib,
        ELFCOMPRESS_ZSTD => SectionCodec::Zstd,
        _ => return Err(file.malformed("the codec of a section")),
    };
    let uncompressed_bytes = header.ch_size(endian).into();
    section.offset = section.offset.checked_add(bytes).ok_or_else(|| file.malformed(what))?;
    section.bytes = section.bytes.checked_sub(bytes).ok_or_else(|| file.malformed(what))?;
    section.compression = Some(SectionCompression { codec, uncompressed_bytes });
    Ok(())
}

/// Returns the build id in the notes of the running kernel.
pub(crate) fn build_id_of_notes(notes: &[u8]) -> Option<BuildId> {
    build_id::<FileHeader64<LittleEndian>>(notes, LittleEndian)
}

/// Returns the build id that the ELF notes contain.
fn build_id<Elf: FileHeader<Endian = LittleEndian>>(notes: &[u8], endian: LittleEndian) -> Option<BuildId> {
    // The default alignment is 4 bytes, which all GNU build id notes have.
    let mut notes = NoteIterator::<Elf>::new(endian, Elf::Word::default(), notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the names of sections take little memory even if all of them refer to one long
    // text, and that such a file is read.
    #[test]
    fn names_of_sections_are_limited() {
        const SECTIONS: u16 = 4000;
        let names_offset = 64 + 64 * u64::from(SECTIONS);
        let mut header = vec![0_u8; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        header[20] = 1;
        header[40] = 64; // the table of sections
        header[52] = 64;
        header[58] = 64;
        header[60..62].copy_from_slice(&SECTIONS.to_le_bytes());
        let mut section = [0_u8; 64];
        section[24..32].copy_from_slice(&names_offset.to_le_bytes());
        section[32..40].copy_from_slice(&NAMES_BYTES_MAX.to_le_bytes());
        let names = vec![b'x'; usize::try_from(NAMES_BYTES_MAX).unwrap()];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = [header, section.repeat(usize::from(SECTIONS)), names].concat();
        std::fs::write(&path, file).unwrap();
        let elf = ElfFile::open(&path).unwrap();
        assert_eq!(elf.sections.len(), usize::from(SECTIONS));
        assert!(elf.sections.iter().all(|section| section.name.len() == NAME_BYTES_MAX));
    }
}
