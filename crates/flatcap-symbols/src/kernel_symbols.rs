//! The functions of a kernel, read from the text of /proc/kallsyms or of a System.map.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flatcap_format::storage::linux::open_regular;

use crate::error::SymbolError;

/// Maximum number of bytes of the text. The text of a kernel with 4,000 modules has 15 MB.
const TEXT_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of bytes of a line.
const LINE_BYTES_MAX: u64 = 4096;

/// Assumed length of a module's last function, in bytes. This length is also assumed for the
/// kernel's last function, if the text does not state the end of the kernel.
const LAST_FUNCTION_BYTES: u64 = 4096;

/// The functions of a kernel.
#[derive(Debug)]
pub(crate) struct KernelSymbols {
    /// The functions, in the order of their addresses.
    functions: Vec<KernelFunction>,
    names: String,
    /// The address of the symbol `_text`.
    text: u64,
    /// The end of the kernel's own code. Modules are at other addresses.
    text_end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KernelFunction {
    begin: u64,
    /// Offset in `names` at which the function's name begins.
    name: usize,
    name_bytes: usize,
    /// Index of the function's module, or 0 for the kernel itself.
    module: u32,
}

impl KernelSymbols {
    /// Reads the text. If the text has no symbol `_text`, uses the first function that does not
    /// belong to a module instead.
    pub(crate) fn read(path: &Path) -> Result<Self, SymbolError> {
        let failed = |error| SymbolError::Read { path: path.to_owned(), error };
        let file = open_regular(path).map_err(failed)?;
        let mut symbols = Self::parse(file).map_err(failed)?;
        symbols.functions.sort_unstable();
        if symbols.text == 0 {
            let first = symbols.functions.iter().find(|function| function.module == 0);
            symbols.text = first.map_or(0, |function| function.begin);
        }
        match symbols.functions.last() {
            None => Err(SymbolError::Malformed { path: path.to_owned(), what: "the list of symbols" }),
            Some(last) if last.begin == 0 => Err(SymbolError::HiddenAddresses { path: path.to_owned() }),
            Some(_) => {
                if symbols.text_end == 0 {
                    let own = symbols.functions.iter().rev().find(|function| function.module == 0);
                    symbols.text_end =
                        own.map_or(0, |function| function.begin.saturating_add(LAST_FUNCTION_BYTES));
                }
                Ok(symbols)
            }
        }
    }

    /// Parses lines such as `ffffffff81000000 T _text` and `ffffffffc0001000 t fn [module]`.
    fn parse(file: File) -> std::io::Result<Self> {
        let mut reader = BufReader::new(file).take(TEXT_BYTES_MAX);
        let mut symbols = Self { functions: Vec::new(), names: String::new(), text: 0, text_end: 0 };
        let mut modules: HashMap<String, u32> = HashMap::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(symbols);
            }
            let text = String::from_utf8_lossy(&line);
            let mut words = text.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            match name {
                "_text" => symbols.text = address,
                "_stext" if symbols.text == 0 => symbols.text = address,
                "_end" => symbols.text_end = address,
                _ if matches!(kind, "t" | "T" | "w" | "W") => {
                    let next = u32::try_from(modules.len()).unwrap_or(u32::MAX).saturating_add(1);
                    let module =
                        words.next().map_or(0, |module| *modules.entry(module.to_owned()).or_insert(next));
                    let function = KernelFunction {
                        begin: address,
                        name: symbols.names.len(),
                        name_bytes: name.len(),
                        module,
                    };
                    symbols.names.push_str(name);
                    symbols.functions.push(function);
                }
                _ => {}
            }
        }
    }

    /// Returns the approximate memory that this value takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.names.capacity() + self.functions.capacity() * size_of::<KernelFunction>()
    }

    /// Returns the name of the function at an offset from `_text`. Functions of modules are found
    /// only if the addresses of the list belong to the recorded boot.
    pub(crate) fn name_at_offset(&self, offset: u64, is_same_boot: bool) -> Option<&str> {
        // Modules may be before the kernel, so their offsets wrap.
        self.name_at(self.text.wrapping_add(offset), is_same_boot)
    }

    /// Returns the name of the function at an address.
    pub(crate) fn name_at(&self, address: u64, is_same_boot: bool) -> Option<&str> {
        let is_of_kernel = (self.text..self.text_end).contains(&address);
        let after = self.functions.partition_point(|function| function.begin <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let is_last = self.functions.get(after).is_none_or(|next| next.module != function.module);
        // If a module is removed, a hole between functions remains. So a hole does not belong to
        // the function before it.
        let is_in_hole = match function.module {
            0 => !is_of_kernel,
            _ => is_of_kernel || is_last && address - function.begin >= LAST_FUNCTION_BYTES,
        };
        if is_in_hole || !(is_of_kernel || is_same_boot) {
            return None;
        }
        self.names.get(function.name..function.name + function.name_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(text: &str) -> Result<KernelSymbols, SymbolError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("System.map");
        std::fs::write(&path, text).unwrap();
        KernelSymbols::read(&path)
    }

    // Proves that offsets from _text are named. Offsets in modules are named only in the same boot.
    // Code after the end of the kernel does not belong to the functions of the kernel.
    #[test]
    fn offsets_are_named() {
        let text = "ffffffff81000000 T _text\nffffffff81000000 T startup\nffffffff81000100 t schedule\n\
            ffffffff81000200 D data\nffffffff81001000 B _end\nffffffffc0000000 t send\t[driver]\nshort\n\
            not-hex T name\n";
        let symbols = symbols(text).unwrap();
        assert_eq!(symbols.name_at_offset(0, false), Some("startup"));
        assert_eq!(symbols.name_at_offset(0x1ff, false), Some("schedule"));
        let module = 0xffff_ffff_c000_0010_u64.wrapping_sub(0xffff_ffff_8100_0000);
        assert_eq!(
            (symbols.name_at_offset(module, true), symbols.name_at_offset(module, false)),
            (Some("send"), None)
        );
        assert_eq!(symbols.name_at_offset(0x2000, true), None);
        assert_eq!(symbols.name_at(0xffff_ffff_8100_0100, true), Some("schedule"));
        assert_eq!(symbols.name_at(0x1000, true), None);
    }

    // Proves that functions of the kernel and of modules are named by their addresses. The list may
    // lack _text and _end, and the modules may be before the kernel.
    #[test]
    fn modules_may_be_before_the_kernel() {
        let symbols = symbols("1000 t send\t[driver]\n9000 T first\n9100 T last\n").unwrap();
        assert_eq!(symbols.name_at(0x1010, true), Some("send"));
        assert_eq!((symbols.name_at(0x1010, false), symbols.name_at(0x800, true)), (None, None));
        assert_eq!(symbols.name_at(0x9010, false), Some("first"));
        assert_eq!(symbols.name_at(0x9100 + LAST_FUNCTION_BYTES - 1, false), Some("last"));
        assert_eq!(symbols.name_at(0x9100 + LAST_FUNCTION_BYTES, true), None);
        assert_eq!(symbols.name_at_offset(0x1000_u64.wrapping_sub(0x9000), true), Some("send"));
    }

    // Proves that a function of a module does not extend into the hole after the function, unless
    // the same module continues after the hole.
    #[test]
    fn holes_between_modules_have_no_name() {
        let symbols =
            symbols("100 T _text\n200 T _end\n1000 t a1\t[a]\n9000 t a2\t[a]\n20000 t b\t[b]\n").unwrap();
        assert_eq!((symbols.name_at(0x8fff, true), symbols.name_at(0x9fff, true)), (Some("a1"), Some("a2")));
        assert_eq!((symbols.name_at(0xa000, true), symbols.name_at(0x1ffff, true)), (None, None));
        assert_eq!((symbols.name_at(0x20fff, true), symbols.name_at(0x21000, true)), (Some("b"), None));
    }

    // Proves that the list of a kernel that hides its addresses causes an error, and that a text in
    // another format causes an error.
    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = symbols("0000000000000000 T _text\n0000000000000000 T schedule\n").unwrap_err();
        assert!(hidden.to_string().contains("hides addresses from this user: run as root"), "{hidden}");
        assert!(matches!(symbols("").unwrap_err(), SymbolError::Malformed { .. }));
    }
}
