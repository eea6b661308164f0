//! The address of the kernel's code, from /proc/kallsyms.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Maximum number of bytes of the symbol list that are searched. This is enough because symbols are
/// sorted by address, and only some thousands of per-CPU variables precede the code.
const SYMBOLS_BYTES_MAX: u64 = 1 << 20;
/// The symbol at the start of the kernel's code.
const CODE_SYMBOL: &str = "_text";

/// Returns the start address of the kernel's code. Returns `None` if the kernel hides addresses
/// from this process. Without `CAP_SYSLOG`, the kernel shows addresses only if
/// `kernel.kptr_restrict` is 0 and `kernel.perf_event_paranoid` is at most 1.
///
/// # Errors
/// `symbols` (/proc/kallsyms) cannot be read.
pub fn code_address(symbols: &Path) -> io::Result<Option<u64>> {
    find(BufReader::new(File::open(symbols)?.take(SYMBOLS_BYTES_MAX)))
}

/// Finds the address in lines of the form `ffffffff81000000 T _text`.
fn find(symbols: impl BufRead) -> io::Result<Option<u64>> {
    for line in symbols.lines() {
        let line = line?;
        let mut fields = line.split_ascii_whitespace();
        let (address, name) = (fields.next(), fields.nth(1));
        if name == Some(CODE_SYMBOL) {
            let address = address.and_then(|address| u64::from_str_radix(address, 16).ok());
            return Ok(address.filter(|address| *address != 0));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the symbol is found by its whole name, and that the result is `None` if addresses
    // are hidden.
    #[test]
    fn the_code_is_found() {
        let find = |text: &str| find(text.as_bytes()).unwrap();
        let symbols = "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _stext\n\
                       ffffffff81000040 T _text\nffffffff81000050 t _text [module]\n";
        assert_eq!(find(symbols), Some(0xFFFF_FFFF_8100_0040));
        assert_eq!(find("0000000000000000 T _stext\n0000000000000000 T _text\n"), None);
        for other in ["", "\n", "x T _text\n", "ffffffff81000000 T _text_end\n", "ffffffff81000000 T"] {
            assert_eq!(find(other), None, "{other}");
        }
    }
}
