//! Finds the functions of one object in all files that describe the object.

use std::path::PathBuf;

use crate::code_location::ObjectKey;
use crate::debug_info::DebugInfo;
use crate::demangling::demangled;
use crate::elf_file::ElfFile;
use crate::error::SymbolError;
use crate::function_table::FunctionTable;
use crate::object_search::FileCandidate;

/// The functions of an executable, a library, or a kernel.
#[derive(Debug)]
pub(crate) struct ObjectSymbols {
    /// The files of the object, which are its own file, debug files, or both.
    files: Vec<ElfFile>,
    /// The file whose segments map offsets to addresses.
    layout: usize,
    /// The table of the functions, and the index of the file from which the functions and their
    /// names come.
    table: Option<(usize, FunctionTable)>,
    debug_info: Option<DebugInfo>,
}

/// The form in which a recording states a location in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedOffset {
    /// An offset from the start of the file.
    InFile(u64),
    /// An offset from the first address of the object in memory.
    InMemory(u64),
}

impl ObjectSymbols {
    /// Reads the files of an object, until a file with its code and a file with all symbols are
    /// found.
    ///
    /// # Errors
    /// Fails if no file gives names. Returns the most informative error.
    pub(crate) fn read(object: &ObjectKey, candidates: &[FileCandidate]) -> Result<Self, SymbolError> {
        let (mut files, mut errors) = (Vec::<ElfFile>::new(), Vec::new());
        for candidate in candidates {
            match accepted(object, candidate) {
                Ok(elf) => files.push(elf),
                Err(error) => errors.push(error),
            }
            if files.iter().any(has_code) && files.iter().any(has_all_symbols) {
                break;
            }
        }
        if files.is_empty() {
            return Err(most_telling(errors, object));
        }
        let layout = files.iter().position(has_code).unwrap_or_default();
        // Files with all symbols come first.
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|at| !files.get(*at).is_some_and(has_all_symbols));
        let (mut table, mut debug_info) = (None, None);
        for (at, elf) in order.into_iter().filter_map(|at| Some((at, files.get(at)?))) {
            if table.is_none() {
                table = FunctionTable::read(elf)?.map(|table| (at, table));
            }
            if debug_info.is_none() {
                // If the debug information cannot be read, only the inlined functions are missing.
                debug_info = DebugInfo::read(elf).ok().flatten();
            }
        }
        if table.is_none() && debug_info.is_none() {
            let path = files.get(layout).map_or_else(PathBuf::new, |elf| elf.file.path().to_owned());
            return Err(SymbolError::Stripped { path });
        }
        Ok(Self { files, layout, table, debug_info })
    }

    /// Returns the names of the functions at a code location, the innermost function first. The
    /// names are spelled as in the files. Returns an empty list if no function is known there.
    pub(crate) fn names_at(&self, place: RecordedOffset) -> Vec<String> {
        let Some(address) = self.address_of(place) else { return Vec::new() };
        let outer = self.table.as_ref().and_then(|(at, table)| table.name_at(self.files.get(*at)?, address));
        let outer = outer.map(|name| demangled(&name));
        let mut inlined = self.debug_info.as_ref().map(|info| info.functions_at(address)).unwrap_or_default();
        // The debug information and the symbol table both name the function that is not inlined.
        // The symbol table is preferred, because its name distinguishes the copies of a function.
        let by_debug_info = inlined.pop().flatten();
        inlined.into_iter().flatten().chain(outer.or(by_debug_info)).collect()
    }

    fn address_of(&self, place: RecordedOffset) -> Option<u64> {
        let layout = self.files.get(self.layout)?;
        match place {
            RecordedOffset::InFile(offset) if has_code(layout) => layout.address_of(offset),
            RecordedOffset::InFile(offset) => layout.address_by_layout(offset),
            RecordedOffset::InMemory(offset) => layout.segments.first()?.address.checked_add(offset),
        }
    }

    /// Returns the approximate memory that this value takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let table = self.table.as_ref().map_or(0, |(_, table)| table.memory_bytes());
        table + self.debug_info.as_ref().map_or(0, DebugInfo::memory_bytes)
    }
}

/// Returns whether a file contains machine code. A debug file contains no machine code.
fn has_code(elf: &ElfFile) -> bool {
    elf.section(".text").is_some()
}

fn has_all_symbols(elf: &ElfFile) -> bool {
    elf.section(".symtab").is_some()
}

/// Opens a file if it belongs to the object.
fn accepted(object: &ObjectKey, candidate: &FileCandidate) -> Result<ElfFile, SymbolError> {
    let elf = ElfFile::open(&candidate.path)?;
    let path = || candidate.path.clone();
    match (&elf.build_id, &object.build_id) {
        (Some(found), Some(recorded)) if found.is_recorded_as(recorded) => Ok(elf),
        (Some(found), Some(recorded)) => {
            Err(SymbolError::OtherBuildId { path: path(), found: found.clone(), recorded: recorded.clone() })
        }
        // Nothing distinguishes this file from another version of the file. So it is trusted only
        // in a directory that the user named.
        (None, None) if candidate.is_named_by_user => Ok(elf),
        // The recorder states a version only for files that have no build id, or whose build id it
        // does not find.
        (_, None) if object.version.is_some() => {
            if elf.file.version() == object.version {
                Ok(elf)
            } else {
                Err(SymbolError::OtherVersion { path: path() })
            }
        }
        (None, _) => Err(SymbolError::NoBuildId { path: path(), missing_in: "file" }),
        (Some(_), None) => Err(SymbolError::NoBuildId { path: path(), missing_in: "recording" }),
    }
}

/// Returns the error that best explains why an object has no names.
fn most_telling(errors: Vec<SymbolError>, object: &ObjectKey) -> SymbolError {
    let is_missing = |error: &SymbolError| matches!(error, SymbolError::Read { error, .. } if error.kind() == std::io::ErrorKind::NotFound);
    let own = std::path::Path::new(&object.path);
    let rank = |error: &SymbolError| match error {
        SymbolError::Read { path, .. } if is_missing(error) => u8::from(path != own) + 2,
        SymbolError::Read { .. } => 1,
        _ => 0,
    };
    let none = SymbolError::NoBuildId { path: object.path.clone().into(), missing_in: "recording" };
    errors.into_iter().min_by_key(rank).unwrap_or(none)
}
