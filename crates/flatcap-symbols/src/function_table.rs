//! The functions of a file, sorted by address.

use object::LittleEndian;
use object::elf::{
    STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym32, Sym64, SymbolType,
};
use object::pod;
use object::read::elf::Sym;

use crate::bounded_file::FilePart;
use crate::elf_file::{ElfFile, ElfSection, SectionContent};
use crate::error::SymbolError;
use crate::function_span::FunctionSpan;
use crate::go_functions::GoFunctions;

/// Maximum number of bytes of a symbol table. The symbol table of a web browser with a binary of
/// 250 MB has about 30 MB.
const SYMBOLS_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of functions of a file. Further functions are left out.
const FUNCTIONS_MAX: usize = 4 << 20;
/// Number of symbols that are read in one step.
const CHUNK_SYMBOLS: u64 = 1 << 15;
/// Maximum number of bytes of a name. Names of C++ with templates can be long.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Number of earlier symbols that are also checked for an address. A function can lie inside
/// another function.
const OUTER_SYMBOLS_MAX: usize = 16;

/// The functions of a file in the order of their addresses. Names are read on demand.
#[derive(Debug)]
pub(crate) struct FunctionTable {
    functions: Vec<FunctionSpan>,
    /// Offset of the names in the file.
    names_offset: u64,
    names_bytes: u64,
}

impl FunctionTable {
    /// Reads the functions of a file. The functions come from the file's full symbol table, from
    /// the table of the Go runtime, or from the table for dynamic linking. Returns `None` if the
    /// file lacks all of these tables.
    pub(crate) fn read(elf: &ElfFile) -> Result<Option<Self>, SymbolError> {
        for content in [SectionContent::Symbols, SectionContent::DynamicSymbols] {
            if content == SectionContent::DynamicSymbols
                && let Some(GoFunctions { functions, names }) = GoFunctions::read(elf, FUNCTIONS_MAX)?
            {
                return Ok(Some(Self::of(functions, names)));
            }
            let Some(section) = elf.sections.iter().find(|section| section.content == content) else {
                continue;
            };
            let table = if elf.is_64 {
                Self::read_section::<Sym64<LittleEndian>>(elf, section)?
            } else {
                Self::read_section::<Sym32<LittleEndian>>(elf, section)?
            };
            if !table.functions.is_empty() {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    fn read_section<Symbol>(elf: &ElfFile, section: &ElfSection) -> Result<Self, SymbolError>
    where
        Symbol: Sym<Endian = LittleEndian>,
    {
        let what = "the table of symbols";
        let symbol_bytes = size_of::<Symbol>() as u64;
        elf.file.check(FilePart {
            what,
            offset: section.offset,
            bytes: section.bytes,
            limit: SYMBOLS_BYTES_MAX,
        })?;
        let names = elf.sections.get(section.link).ok_or_else(|| elf.file.malformed(what))?;
        let mut functions = Vec::new();
        let count = section.bytes / symbol_bytes;
        let mut next = 0;
        while next < count && functions.len() < FUNCTIONS_MAX {
            let chunk = CHUNK_SYMBOLS.min(count - next);
            let bytes = elf.file.read(FilePart {
                what,
                offset: section.offset + next * symbol_bytes,
                bytes: chunk * symbol_bytes,
                limit: CHUNK_SYMBOLS * symbol_bytes,
            })?;
            let symbols =
                pod::slice_from_all_bytes::<Symbol>(&bytes).map_err(|()| elf.file.malformed(what))?;
            let is_exported = section.content == SectionContent::DynamicSymbols;
            functions.extend(symbols.iter().filter_map(|symbol| function_span(elf, symbol, is_exported)));
            next += chunk;
        }
        Ok(Self::of(functions, (names.offset, names.bytes)))
    }

    fn of(mut functions: Vec<FunctionSpan>, (names_offset, names_bytes): (u64, u64)) -> Self {
        functions.sort_unstable();
        functions.dedup_by_key(|function| function.begin);
        let begins: Vec<u64> = functions.iter().skip(1).map(|function| function.begin).collect();
        for (function, next) in functions.iter_mut().zip(begins.into_iter().chain([u64::MAX])) {
            if function.rank >= LABEL_RANK {
                function.end = function.end.min(next);
            }
        }
        Self { functions, names_offset, names_bytes }
    }

    /// Returns the name of the function that contains the code at an address. The name is not
    /// demangled.
    pub(crate) fn name_at(&self, elf: &ElfFile, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|function| function.begin <= address);
        let nearest = self.functions.get(..after)?.iter().rev().take(OUTER_SYMBOLS_MAX);
        let function = nearest.into_iter().find(|function| address < function.end)?;
        let name = u64::from(function.name);
        (name < self.names_bytes)
            .then(|| elf.file.read_text(self.names_offset.saturating_add(name), NAME_BYTES_MAX))?
    }

    /// Returns the approximate memory that this value takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.functions.len() * size_of::<FunctionSpan>()
    }
}

/// Lowest rank of functions whose lengths the file does not state.
const LABEL_RANK: u8 = 3;

/// Returns the address range, rank and name of a symbol, if the symbol is a function.
fn function_span<Symbol>(elf: &ElfFile, symbol: &Symbol, is_exported: bool) -> Option<FunctionSpan>
where
    Symbol: Sym<Endian = LittleEndian>,
{
    let (begin, bytes): (u64, u64) =
        (symbol.st_value(LittleEndian).into(), symbol.st_size(LittleEndian).into());
    let name = symbol.st_name(LittleEndian);
    if symbol.is_undefined(LittleEndian) || name == 0 || begin == 0 {
        return None;
    }
    let is_code = match symbol.st_type() {
        STT_FUNC | STT_GNU_IFUNC => true,
        // Functions in assembly language often have no type. Local symbols without a type are
        // labels.
        STT_NOTYPE => symbol.st_bind() != STB_LOCAL && is_in_code(elf, symbol.st_shndx(LittleEndian).0),
        SymbolType(_) => false,
    };
    let rank = match symbol.st_bind() {
        STB_GLOBAL => 0,
        STB_WEAK => 1,
        _ => 2,
    };
    // A symbol without a length may be a label at the beginning of a function.
    let rank = if bytes == 0 { rank + LABEL_RANK } else { rank };
    let end = match bytes {
        // An exported function without a length may be followed by functions that are not exported.
        0 if is_exported => begin.checked_add(1)?,
        0 => section_end(elf, symbol.st_shndx(LittleEndian).0).unwrap_or(u64::MAX),
        bytes => begin.checked_add(bytes)?,
    };
    is_code.then_some(FunctionSpan { begin, rank, name, end })
}

/// Returns the address after the end of a section, if the section has an address.
fn section_end(elf: &ElfFile, section: u16) -> Option<u64> {
    let section = elf.sections.get(usize::from(section))?;
    section.address.checked_add(section.bytes).filter(|_| section.address > 0)
}

fn is_in_code(elf: &ElfFile, section: u16) -> bool {
    elf.sections.get(usize::from(section)).is_some_and(|section| section.is_code)
}
