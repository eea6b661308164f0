//! Names of instances of the `file` and `command` sources.

/// Maximum length of the name of an instance, in bytes.
pub const INSTANCE_NAME_BYTES_MAX: usize = 32;
/// Maximum number of instances in one configuration.
pub const INSTANCES_MAX: usize = 64;

/// Returns whether this is a valid name of an instance. The name is used on command lines, in files
/// and in `--source NAME@PERIOD`.
pub(super) fn is_instance_name(name: &str) -> bool {
    // Capitals are not allowed, because names of variables are in capitals and are converted to
    // lower case. A dot and @ are not allowed, because they separate the name of an instance from
    // its kind and its period.
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    (1..=INSTANCE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that names at the limits are accepted and that names beyond them are rejected.
    #[test]
    fn instance_names_are_plain() {
        for name in ["a", "raid_0-x", &"n".repeat(32)] {
            assert!(is_instance_name(name), "{name}");
        }
        for name in ["", "A", "a.b", "a b", "a@1s", &"n".repeat(33)] {
            assert!(!is_instance_name(name), "{name}");
        }
    }
}
