//! Finds function names, and caches the data that it reads from files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::build_id::BuildId;
use crate::code_location::{CodeLocation, ObjectKey, ObjectKind};
use crate::error::SymbolError;
use crate::kernel_names::KernelNames;
use crate::kernel_symbols::KernelSymbols;
use crate::object_search::candidates;
use crate::object_symbols::{ObjectSymbols, RecordedOffset};
use crate::perf_map::PerfMap;

/// Approximate maximum memory for data read from files, in bytes. Above this limit, all data is
/// dropped. Dropped data is read again if it is needed.
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Maximum number of code locations whose names are cached. The next constant is the maximum number
/// of bytes of these names.
const NAMES_MAX: usize = 1 << 18;
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Maximum number of objects whose data is cached at the same time.
const OBJECTS_MAX: usize = 4096;
/// Maximum number of characters of a name.
const NAME_CHARS_MAX: usize = 1024;
/// The file with the symbols of the running kernel. The next constant is the file with the kernel's
/// notes, which contain its build id.
const KALLSYMS: &str = "/proc/kallsyms";
const KERNEL_NOTES: &str = "/sys/kernel/notes";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Names functions. Keeps the data that it reads from files.
#[derive(Debug)]
pub struct Symbolizer {
    directories: Vec<PathBuf>,
    objects: HashMap<ObjectKey, ObjectSource>,
    names: HashMap<(ObjectKey, CodeLocation), FunctionNames>,
    names_bytes: usize,
    memory_bytes: usize,
}

/// The names of the functions at a code location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionNames {
    /// The names, with at least one element and the innermost function first. Functions that were
    /// inlined precede the function into which they were inlined.
    pub names: Vec<String>,
    /// Whether the elements of `names` are names of functions. If no function is known, `names` has
    /// one string with the file and the offset.
    pub is_known: bool,
}

/// The source of the names of an object.
#[derive(Debug)]
enum ObjectSource {
    Files(Box<ObjectSymbols>),
    Kernel(Box<KernelNames>),
    Compiled(Box<PerfMap>),
    /// The functions are unknown. The error states the reason.
    Failed(SymbolError),
    /// The object has no known functions. Memory without a file has no functions, unless a
    /// just-in-time compiler has written a map file for it.
    Nothing,
}

impl Symbolizer {
    /// Creates a symbolizer that searches `directories` first.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, objects: HashMap::new(), names: HashMap::new(), names_bytes: 0, memory_bytes: 0 }
    }

    /// Returns the names of the functions at a location in an object.
    pub fn names(&mut self, object: &ObjectKey, location: CodeLocation) -> FunctionNames {
        // The map has owned keys, so a lookup copies the object. This cost is small, because
        // reading files takes far longer.
        let key = (object.clone(), location);
        if let Some(names) = self.names.get(&key) {
            return names.clone();
        }
        let mut names = self.source(object).names_at(object, location);
        names.retain(|name| !name.is_empty());
        let names = if names.is_empty() {
            FunctionNames { names: vec![object.unnamed(location)], is_known: false }
        } else {
            FunctionNames { names: names.iter().map(|name| plain(name)).collect(), is_known: true }
        };
        if self.names.len() >= NAMES_MAX || self.names_bytes > NAMES_BYTES_MAX {
            self.names.clear();
            self.names_bytes = 0;
        }
        self.names_bytes += names.names.iter().map(String::len).sum::<usize>();
        self.names.insert(key, names.clone());
        names
    }

    /// Returns the reasons why objects have had no names so far, sorted by the paths of the
    /// objects.
    pub fn errors(&self) -> Vec<&SymbolError> {
        let mut errors: Vec<(&ObjectKey, &SymbolError)> = self
            .objects
            .iter()
            .filter_map(|(object, source)| match source {
                ObjectSource::Failed(error) => Some((object, error)),
                _ => None,
            })
            .collect();
        errors.sort_by_key(|(object, _)| *object);
        errors.into_iter().map(|(_, error)| error).collect()
    }

    fn source(&mut self, object: &ObjectKey) -> &ObjectSource {
        if self.memory_bytes > MEMORY_BYTES_MAX {
            self.objects.retain(|_, source| source.memory_bytes() == 0);
            self.memory_bytes = 0;
        }
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.clear();
            self.memory_bytes = 0;
        }
        if !self.objects.contains_key(object) {
            let source = self.read(object).unwrap_or_else(ObjectSource::Failed);
            self.memory_bytes += source.memory_bytes();
            self.objects.insert(object.clone(), source);
        }
        self.objects.get(object).unwrap_or(&ObjectSource::Nothing)
    }

    fn read(&self, object: &ObjectKey) -> Result<ObjectSource, SymbolError> {
        match object.kind {
            ObjectKind::Unknown => {
                let map = object.process.map(|process| {
                    PerfMap::find(process, &self.directories, is_this_boot(object.boot_id.as_deref()))
                });
                let map = map.transpose()?.flatten();
                Ok(map.map_or(ObjectSource::Nothing, |map| ObjectSource::Compiled(Box::new(map))))
            }
            ObjectKind::File => {
                let symbols = ObjectSymbols::read(object, &candidates(object, &self.directories))?;
                Ok(ObjectSource::Files(Box::new(symbols)))
            }
            ObjectKind::Kernel | ObjectKind::KernelAddress => self.kernel(object),
        }
    }

    /// Reads the symbols of a kernel from its files, from the specified directories, or from the
    /// running kernel if that is the recorded kernel. If the host has not rebooted, the running
    /// kernel adds symbols that the other sources lack, such as symbols in modules.
    fn kernel(&self, object: &ObjectKey) -> Result<ObjectSource, SymbolError> {
        let is_same_boot = is_this_boot(object.boot_id.as_deref());
        let modules = || is_same_boot.then(|| KernelSymbols::read(Path::new(KALLSYMS)).ok()).flatten();
        if object.kind == ObjectKind::Kernel {
            if let Ok(files) = ObjectSymbols::read(object, &candidates(object, &self.directories)) {
                return Ok(ObjectSource::Kernel(Box::new(KernelNames::of_files(files, modules()))));
            }
            let mut maps = self.directories.iter().map(|directory| directory.join("System.map"));
            if let Some(map) = maps.find(|map| map.is_file()) {
                // A System.map has no build id. The user must know the kernel to which it belongs.
                let list = KernelSymbols::read(&map)?;
                return Ok(ObjectSource::Kernel(Box::new(KernelNames::of_list(list, modules()))));
            }
        }
        let is_same_kernel = object.kind == ObjectKind::Kernel
            && object.build_id.as_ref().is_some_and(|recorded| {
                running_build_id().is_some_and(|running| running.is_recorded_as(recorded))
            });
        if !is_same_boot && !is_same_kernel {
            return Err(SymbolError::OtherKernel);
        }
        let running = KernelSymbols::read(Path::new(KALLSYMS))?;
        let names =
            if is_same_boot { KernelNames::of_boot(running) } else { KernelNames::of_list(running, None) };
        Ok(ObjectSource::Kernel(Box::new(names)))
    }
}

impl ObjectSource {
    /// Returns the approximate memory that the source takes, in bytes. Returns 0 if the source must
    /// not be dropped and read again.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Files(symbols) => symbols.memory_bytes(),
            // There are few kernels, but their lists are long.
            Self::Kernel(names) => names.memory_bytes(),
            Self::Compiled(map) => map.memory_bytes(),
            Self::Failed(_) | Self::Nothing => 0,
        }
    }

    /// Returns the names at a location, or an empty list if no function is known there.
    fn names_at(&self, object: &ObjectKey, location: CodeLocation) -> Vec<String> {
        let offset = location.lookup_offset();
        match self {
            Self::Files(symbols) => symbols.names_at(RecordedOffset::InFile(offset)),
            Self::Kernel(names) => match object.kind {
                ObjectKind::KernelAddress => names.names_at_address(offset),
                _ => names.names_at_offset(offset),
            },
            Self::Compiled(map) => map.name_at(offset).into_iter().collect(),
            Self::Failed(_) | Self::Nothing => Vec::new(),
        }
    }
}

/// Returns whether a recorded boot id is the current boot id of this host.
fn is_this_boot(recorded: Option<&str>) -> bool {
    let boot_id = fs::read_to_string(BOOT_ID).unwrap_or_default();
    recorded.is_some_and(|recorded| recorded == boot_id.trim())
}

/// Returns the build id of the running kernel.
fn running_build_id() -> Option<BuildId> {
    crate::elf_file::build_id_of_notes(&fs::read(KERNEL_NOTES).ok()?)
}

/// Returns a name on one line, without characters that control a terminal, and with a limited
/// length.
fn plain(name: &str) -> String {
    let printable = name.chars().map(|c| if c.is_control() { '?' } else { c });
    printable.take(NAME_CHARS_MAX).collect()
}
