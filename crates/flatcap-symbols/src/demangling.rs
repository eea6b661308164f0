//! Demangles names: converts the symbol names in files to the names in the source code.

use std::fmt;

use cpp_demangle::DemangleOptions;

/// Maximum number of bytes of a name. A few bytes in a file can describe a name that does not fit
/// into memory.
const NAME_BYTES_MAX: usize = 16 << 10;

/// Returns the source-code name for a mangled Rust or C++ name. Returns other names unchanged.
pub(crate) fn demangled(name: &str) -> String {
    let mut text = BoundedText(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Omits the hash that distinguishes crates.
        if fmt::write(&mut text, format_args!("{rust:#}")).is_ok() {
            return text.0;
        }
    } else if let Ok(cpp) = cpp_demangle::Symbol::new(name)
        && cpp.structured_demangle(&mut text, &DemangleOptions::default()).is_ok()
    {
        return text.0;
    }
    name.to_owned()
}

/// A string whose length is limited to `NAME_BYTES_MAX`.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > NAME_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that Rust and C++ names are converted and that other names are unchanged. Proves that
    // the result is truncated if a short name describes an extremely long name.
    #[test]
    fn names_are_as_in_the_source() {
        for (name, expected) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            ("schedule", "schedule"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(demangled(name), expected);
        }
        // Each parameter is a pair of the previous parameter.
        let pairs = |count: usize| {
            let digit = |at: usize| char::from_digit(u32::try_from(at).unwrap(), 36).unwrap();
            let pair = |at: usize| format!("S_IS{0}_S{0}_E", digit(at).to_ascii_uppercase());
            format!("_Z1f1PIiiE{}", (0..count).map(pair).collect::<String>())
        };
        assert_eq!(demangled(&pairs(1)), "f(P<int, int>, P<P<int, int>, P<int, int> >)");
        assert!(demangled(&pairs(8)).len() > 1000);
        assert_eq!(demangled(&pairs(30)), pairs(30));
    }
}
