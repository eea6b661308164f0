//! The functions of a program in Go, read from the table that its runtime needs for stack traces.
//! The table exists even if the program is stripped.

use crate::bounded_file::FilePart;
use crate::elf_file::{ElfFile, ElfSection};
use crate::error::SymbolError;
use crate::function_span::{FunctionSpan, GO_RANK};

/// Maximum length of the table, in bytes. The table of a program of 100 MB has about 30 MB.
const TABLE_BYTES_MAX: u64 = 128 << 20;
/// Sections that contain the table. Programs that are linked to a fixed address have the first
/// section, and other programs have the second section.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The possible magic numbers at the start of the table. Go 1.18 introduced the first value, and Go
/// 1.20 introduced the second value.
const MAGICS: [u32; 2] = [0xFFFF_FFF0, 0xFFFF_FFF1];
/// Length of an address, in bytes. Only programs with 8-byte addresses are read. The next constant
/// is the position of this length in the header.
const POINTER_BYTES: u8 = 8;
const POINTER_BYTES_AT: usize = 7;
/// Positions of words in the header, after its first eight bytes.
const FUNCTION_COUNT: usize = 0;
const TEXT_BEGIN: usize = 2;
const NAMES_BEGIN: usize = 3;
const NAMES_END: usize = 4;
const FUNCTIONS_BEGIN: usize = 7;

/// The functions of a program in Go.
pub(crate) struct GoFunctions {
    pub(crate) functions: Vec<FunctionSpan>,
    /// Offset and length of the names in the file.
    pub(crate) names: (u64, u64),
}

impl GoFunctions {
    /// Reads the table. Returns `None` if the program has no such table, or if the table has an
    /// unknown format.
    ///
    /// # Errors
    /// Fails if the table is too long or cannot be read.
    pub(crate) fn read(elf: &ElfFile, functions_max: usize) -> Result<Option<Self>, SymbolError> {
        let Some(section) = SECTIONS.into_iter().find_map(|name| elf.section(name)) else {
            return Ok(None);
        };
        let what = "the table of functions of Go";
        let part = FilePart { what, offset: section.offset, bytes: section.bytes, limit: TABLE_BYTES_MAX };
        let table = elf.file.read(part)?;
        Ok(Self::of(elf, section, &table, functions_max))
    }

    fn of(elf: &ElfFile, section: &ElfSection, table: &[u8], functions_max: usize) -> Option<Self> {
        let is_known = u32_at(table, 0).is_some_and(|magic| MAGICS.contains(&magic))
            && table.get(POINTER_BYTES_AT) == Some(&POINTER_BYTES)
            && section.compression.is_none();
        if !is_known {
            return None;
        }
        let word = |number: usize| u64_at(table, 8 + 8 * number);
        let text = match word(TEXT_BEGIN)? {
            // Since Go 1.26 the header does not state the beginning of the code. Another linker
            // puts C code before the code of Go, so the beginning is then unknown.
            0 if elf.section(".init").is_some() => return None,
            0 => elf.section(".text")?.address,
            begin => begin,
        };
        let (names_begin, names_end) = (word(NAMES_BEGIN)?, word(NAMES_END)?);
        let names = (section.offset.checked_add(names_begin)?, names_end.checked_sub(names_begin)?);
        let list = table.get(usize::try_from(word(FUNCTIONS_BEGIN)?).ok()?..)?;
        let count = usize::try_from(word(FUNCTION_COUNT)?).ok()?.min(functions_max);
        let function = |number: usize| {
            // The table has the beginning of each function and the position of the function's
            // description. The beginning of the next function follows each of these pairs.
            let at = number.checked_mul(8)?;
            let begin = text.checked_add(u32_at(list, at)?.into())?;
            let end = text.checked_add(u32_at(list, at.checked_add(8)?)?.into())?;
            let description = usize::try_from(u32_at(list, at.checked_add(4)?)?).ok()?;
            let name = u32_at(list, description.checked_add(4)?)?;
            Some(FunctionSpan { begin, rank: GO_RANK, name, end })
        };
        let functions: Vec<FunctionSpan> = (0..count).map_while(function).collect();
        (!functions.is_empty()).then_some(Self { functions, names })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
