//! Shell patterns that select items of a source.

use globset::{GlobBuilder, GlobMatcher};

/// Maximum number of patterns in one list.
pub const PATTERNS_MAX: usize = 64;
/// Maximum length of a pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;

/// A shell pattern. `*` matches any characters, `?` matches one character, `[a-c]` matches one
/// character of a set, and `{a,b}` matches either alternative. The pattern must match the whole
/// name.
#[derive(Debug, Clone)]
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns the reason why the pattern is invalid, such as an unclosed bracket, an empty
    /// pattern, or a pattern that is too long.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(format!("a pattern has 1 to {PATTERN_BYTES_MAX} bytes"));
        }
        // `*` also matches slashes, since control groups and mount points are paths. The option for
        // backslashes is set explicitly, because its default in globset depends on the platform.
        let glob = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build();
        // Only the kind of the error is used, because the whole message would repeat the pattern.
        glob.map(|glob| Self(glob.compile_matcher())).map_err(|error| error.kind().to_string())
    }

    /// Returns whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// Returns the text of the pattern as it was written.
    pub fn as_str(&self) -> &str {
        self.0.glob().glob()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        // Compiled patterns cannot be compared. The options are the same for all patterns, so the
        // text determines the pattern.
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a pattern matches whole names only, and that an invalid pattern is rejected with
    // a reason.
    #[test]
    fn patterns_fit_whole_names() {
        let fits = |pattern: &str, name: &str| Pattern::new(pattern).unwrap().matches(name);
        assert!(fits("sd?", "sda") && !fits("sd?", "sda1") && !fits("sd", "sda"));
        assert!(fits("nvme*", "nvme0n1") && fits("/var/*", "/var/lib/x") && fits("{lo,veth*}", "veth12"));
        assert!(fits("dm-[0-3]", "dm-2") && !fits("dm-[0-3]", "dm-4"));
        assert_eq!(Pattern::new("[a").unwrap_err(), "unclosed character class; missing ']'");
        assert!(Pattern::new("").unwrap_err().starts_with("a pattern has 1"));
        assert!(Pattern::new(&"a".repeat(257)).is_err());
    }
}
