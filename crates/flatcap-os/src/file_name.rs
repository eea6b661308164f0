//! Names of files that are derived from other names.

/// Maximum length of a derived file name, in bytes. The limit leaves space for a suffix within the
/// 255 bytes that a file system allows.
const NAME_BYTES_MAX: usize = 128;

/// Turns any string into a name that is safe as a file name and as an argument. The result contains
/// only letters, digits, `.`, `_` and `-`, and does not start with `.` or `-`. Other characters
/// become `_`. The result is truncated to 128 bytes; it is empty if `name` is empty.
pub fn sanitized_name(name: &str) -> String {
    let replaced = |(at, c): (usize, char)| match c {
        '_' => c,
        '.' | '-' if at > 0 => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.char_indices().map(replaced).take(NAME_BYTES_MAX).collect()
}

/// Returns `name`, or `name` with the first numeric suffix for which `is_free` returns true: `a`,
/// `a-2`, `a-3`.
pub fn unique_name(name: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
    let mut numbered = name.to_owned();
    let mut number = 1_u64;
    while !is_free(&numbered) {
        number += 1;
        numbered = format!("{name}-{number}");
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that hostile names do not lead out of the directory, are not hidden, and stay
    // distinct.
    #[test]
    fn names_are_plain() {
        let made = ["cpu", "../../etc/passwd", "..", "-rf", "a b\n", "\u{e9}t\u{e9}", "", "disk.sda_1"]
            .map(sanitized_name);
        assert_eq!(made, ["cpu", "_._.._etc_passwd", "_.", "_rf", "a_b_", "_t_", "", "disk.sda_1"]);
        assert_eq!(sanitized_name(&"x".repeat(500)).len(), NAME_BYTES_MAX);
        let mut taken = std::collections::BTreeSet::new();
        let names: Vec<_> =
            ["a", "a-2", "a", "a"].map(|name| unique_name(name, |name| taken.insert(name.to_owned()))).into();
        assert_eq!(names, ["a", "a-2", "a-3", "a-4"]);
    }
}
