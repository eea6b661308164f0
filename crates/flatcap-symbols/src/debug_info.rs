//! Inlined functions, read from the debug information (DWARF) of a file.

use std::fmt;
use std::io::Read;
use std::rc::Rc;

use addr2line::Context;
use gimli::{
    AbbreviationsCacheStrategy, Attribute, DwTag, Dwarf, EndianRcSlice, LittleEndian, SectionId, UnitRef,
};

use crate::bounded_file::FilePart;
use crate::demangling::demangled;
use crate::elf_file::{ElfFile, SectionCodec};
use crate::error::SymbolError;

/// Maximum size in bytes of all uncompressed debug information of a file. If a file has more debug
/// information, its function names come only from the symbol table.
const DEBUG_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of the line tables in bytes. In memory, the tables take up to 24 times as many
/// bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Maximum nesting depth of entries. Compilers write about 30 levels. The limit is necessary
/// because entries are read recursively.
const DEPTH_MAX: isize = 512;
/// Maximum number of address ranges of all functions. Each range takes 32 bytes. Many entries can
/// share one list of ranges, which is then stored separately for each entry. The binary of a web
/// browser has about 5 million ranges.
const RANGES_MAX: usize = 16 << 20;
/// Maximum number of inlined functions that are shown for one address.
const INLINED_MAX: usize = 32;
/// Maximum number of bytes of a name. Names of C++ with templates can be long.
const NAME_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file.
type FileBytes = EndianRcSlice<LittleEndian>;

/// The debug information of a file.
pub(crate) struct DebugInfo {
    context: Context<FileBytes>,
    bytes: usize,
}

impl DebugInfo {
    /// Reads the debug information. Returns `None` if the file has no debug information.
    pub(crate) fn read(elf: &ElfFile) -> Result<Option<Self>, SymbolError> {
        if elf.section(SectionId::DebugInfo.name()).is_none() {
            return Ok(None);
        }
        let mut bytes = 0_u64;
        let mut dwarf = Dwarf::load(|id| {
            let limit = DEBUG_BYTES_MAX - bytes;
            let limit = if id == SectionId::DebugLine { limit.min(LINE_BYTES_MAX) } else { limit };
            let content = content(elf, id.name(), limit)?;
            bytes += content.len() as u64;
            Ok::<_, SymbolError>(EndianRcSlice::new(Rc::from(content), LittleEndian))
        })?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !is_bounded(&dwarf) {
            return Err(elf.file.malformed("the debug information"));
        }
        // Units with the same abbreviation table share one copy of the table.
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).map_err(|_| elf.file.malformed("the debug information"))?;
        Ok(Some(Self { context, bytes }))
    }

    /// Returns the functions at an address, the innermost function first. The last function is not
    /// inlined. Functions that the debug information does not name are `None`.
    pub(crate) fn functions_at(&self, address: u64) -> Vec<Option<String>> {
        // Parts of the debug information that are in other files are not read.
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let is_function = frame.dw_die_offset.is_some();
            let name = frame.function.and_then(|function| {
                let name = function.raw_name().ok()?;
                (name.len() <= NAME_BYTES_MAX).then(|| demangled(&name))
            });
            names.extend(is_function.then_some(name));
            if names.len() > INLINED_MAX {
                break;
            }
        }
        names
    }

    /// Returns the approximate memory that the debug information takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for DebugInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugInfo").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Returns whether the entries can be read without using too much of the stack, and whether their
/// ranges fit into memory. A damaged unit is checked only up to the damage, because later reads
/// also end there.
fn is_bounded(dwarf: &Dwarf<FileBytes>) -> bool {
    let mut left = RANGES_MAX;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        if is_unit_bounded(UnitRef::new(dwarf, &unit), &mut left) == Ok(false) {
            return false;
        }
    }
    true
}

fn is_unit_bounded(unit: UnitRef<'_, FileBytes>, left: &mut usize) -> gimli::Result<bool> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        if entries.next_depth() > DEPTH_MAX {
            return Ok(false);
        }
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if !has_kept_ranges(abbreviation.tag()) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let Ok(count) = range_count(unit, &attribute, *left) else { continue };
            let Some(rest) = left.checked_sub(count) else { return Ok(false) };
            *left = rest;
        }
    }
    Ok(true)
}

fn has_kept_ranges(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_compile_unit | gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine)
}

/// Returns the number of ranges of an attribute, but at most `limit` plus one.
fn range_count(
    unit: UnitRef<'_, FileBytes>,
    attribute: &Attribute<FileBytes>,
    limit: usize,
) -> gimli::Result<usize> {
    if attribute.name() != gimli::DW_AT_ranges {
        return Ok(0);
    }
    let Some(offset) = unit.attr_ranges_offset(attribute.value())? else { return Ok(0) };
    let mut ranges = unit.ranges(offset)?;
    let mut count = 0;
    while count <= limit && matches!(ranges.next(), Ok(Some(_))) {
        count += 1;
    }
    Ok(count)
}

/// Returns the uncompressed content of a section. The content is empty if the section does not
/// exist.
fn content(elf: &ElfFile, name: &str, limit: u64) -> Result<Vec<u8>, SymbolError> {
    let Some(section) = elf.section(name) else { return Ok(Vec::new()) };
    let what = "the debug information";
    let part = |bytes| FilePart { what, offset: section.offset, bytes, limit };
    let Some(compression) = section.compression else { return elf.file.read(part(section.bytes)) };
    let bytes = compression.uncompressed_bytes;
    if bytes > limit {
        return Err(SymbolError::TooLarge { path: elf.file.path().to_owned(), what, bytes, limit });
    }
    let compressed = elf.file.read(part(section.bytes))?;
    let mut content = Vec::new();
    let copied = match compression.codec {
        SectionCodec::Zlib => {
            flate2::read::ZlibDecoder::new(compressed.as_slice()).take(bytes).read_to_end(&mut content)
        }
        SectionCodec::Zstd => zstd::Decoder::new(compressed.as_slice())
            .and_then(|decoder| decoder.take(bytes).read_to_end(&mut content)),
    };
    match copied {
        Ok(copied) if copied as u64 == bytes => Ok(content),
        _ => Err(elf.file.malformed(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Abbreviations for a unit, a function and an inlined function, without attributes but with
    /// nested entries. Also an abbreviation for a function with ranges.
    const ABBREVIATIONS: [u8; 24] =
        [1, 0x11, 1, 0, 0, 2, 0x2e, 1, 0, 0, 3, 0x1d, 1, 0, 0, 4, 0x2e, 0, 0x55, 0x17, 0, 0, 0, 0];

    /// Returns the debug information of one unit with these entries.
    fn dwarf(entries: &[u8], ranges: &[u8]) -> Dwarf<FileBytes> {
        let length = u32::try_from(7 + entries.len()).unwrap();
        let unit = [&length.to_le_bytes()[..], &[4, 0], &[0; 4], &[8], entries].concat();
        Dwarf::load(|id| {
            let content = match id {
                SectionId::DebugAbbrev => &ABBREVIATIONS[..],
                SectionId::DebugInfo => &unit,
                SectionId::DebugRanges => ranges,
                _ => &[],
            };
            Ok::<_, ()>(EndianRcSlice::new(Rc::from(content), LittleEndian))
        })
        .unwrap()
    }

    fn nested(depth: usize) -> Vec<u8> {
        [&[1, 2][..], &vec![3; depth], &vec![0; depth + 2]].concat()
    }

    // Proves that entries with the nesting that compilers write are accepted. Proves that entries
    // are refused if reading them would exhaust the stack.
    #[test]
    fn nesting_is_limited() {
        assert!(is_bounded(&dwarf(&nested(100), &[])));
        assert!(!is_bounded(&dwarf(&nested(1000), &[])));
        assert!(
            !is_bounded(&dwarf(&[&[1, 2][..], &vec![3; 100_000]].concat(), &[])),
            "and nothing ends them"
        );
    }

    // Proves that many functions that share a long list of ranges are refused. Otherwise a small
    // file could exhaust memory.
    #[test]
    fn ranges_are_limited() {
        let range = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
        let ranges = [range.repeat(5000), vec![0; 16]].concat();
        let functions = |count| [&[1][..], &[4, 0, 0, 0, 0].repeat(count), &[0]].concat();
        assert!(is_bounded(&dwarf(&functions(3000), &ranges)));
        assert!(!is_bounded(&dwarf(&functions(4000), &ranges)));
    }
}
