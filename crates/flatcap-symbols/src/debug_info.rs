//! Inlined functions, by the debug information (DWARF) of a file.

use std::fmt;
use std::io::Read;
use std::rc::Rc;

use addr2line::Context;
use gimli::{Dwarf, EndianRcSlice, LittleEndian, SectionId};

use crate::bounded_file::FilePart;
use crate::demangling::demangled;
use crate::elf_file::{ElfFile, SectionCodec};
use crate::error::SymbolError;

/// Most bytes of all debug information of a file, uncompressed. Above, the names of functions are
/// those of the table of symbols alone.
const DEBUG_BYTES_MAX: u64 = 256 << 20;
/// Most inlined functions that are shown at one place.
const INLINED_MAX: usize = 32;

/// The debug information of a file.
pub(crate) struct DebugInfo {
    context: Context<EndianRcSlice<LittleEndian>>,
    bytes: usize,
}

impl DebugInfo {
    /// Reads the debug information. Returns `None` if the file has none.
    pub(crate) fn read(elf: &ElfFile) -> Result<Option<Self>, SymbolError> {
        if elf.section(SectionId::DebugInfo.name()).is_none() {
            return Ok(None);
        }
        let mut bytes = 0_u64;
        let dwarf = Dwarf::load(|id| {
            let content = content(elf, id.name(), DEBUG_BYTES_MAX - bytes)?;
            bytes += content.len() as u64;
            Ok::<_, SymbolError>(EndianRcSlice::new(Rc::from(content), LittleEndian))
        })?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let context = Context::from_dwarf(dwarf).map_err(|_| elf.file.malformed("the debug information"))?;
        Ok(Some(Self { context, bytes }))
    }

    /// Returns the functions at an address, the innermost first. The last one is not inlined.
    /// Functions that the debug information does not name are `None`.
    pub(crate) fn functions_at(&self, address: u64) -> Vec<Option<String>> {
        // Parts in other files are not read.
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let is_function = frame.dw_die_offset.is_some();
            let name = frame.function.and_then(|function| Some(demangled(&function.raw_name().ok()?)));
            names.extend(is_function.then_some(name));
            if names.len() > INLINED_MAX {
                break;
            }
        }
        names
    }

    /// Returns about how many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for DebugInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugInfo").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Returns the content of a section, uncompressed; empty if there is none.
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
