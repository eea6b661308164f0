//! The `include` and `exclude` patterns of a source, applied to the names of its devices or other
//! items.

use super::pattern::Pattern;

/// The `include` and `exclude` patterns of a source.
#[derive(Debug, Clone, Default)]
pub struct NameFilter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

impl NameFilter {
    /// Creates a filter of patterns. If `include` is empty, the filter includes all names.
    pub fn new(include: Vec<Pattern>, exclude: Vec<Pattern>) -> Self {
        Self { include, exclude }
    }

    /// Returns whether every name matches, so that callers can skip the check.
    pub(crate) fn matches_all(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Returns whether `include` contains a pattern that is exactly this name, without wildcards.
    /// Items that are not recorded by default need such a pattern.
    pub(crate) fn includes_exactly(&self, name: &[u8]) -> bool {
        let name = std::str::from_utf8(name).unwrap_or_default();
        self.include.iter().any(|pattern| pattern.as_str() == name)
    }

    /// Returns whether a name is selected. A name that is not UTF-8 matches no pattern.
    pub fn matches(&self, name: &[u8]) -> bool {
        if self.matches_all() {
            return true;
        }
        let fits = |patterns: &[Pattern]| {
            std::str::from_utf8(name).is_ok_and(|name| patterns.iter().any(|pattern| pattern.matches(name)))
        };
        (self.include.is_empty() || fits(&self.include)) && !fits(&self.exclude)
    }
}

/// A name filter that caches the result for each position in a file. As long as the kernel lists
/// the lines in the same order, the filter needs only one comparison per line.
#[derive(Debug, Default)]
pub struct CachedNameFilter {
    filter: NameFilter,
    cache: Vec<(Vec<u8>, bool)>,
}

impl CachedNameFilter {
    /// Creates a filter with an empty cache.
    pub fn new(selection: NameFilter) -> Self {
        Self { filter: selection, cache: Vec::new() }
    }

    /// Returns whether `include` has any pattern. If `include` has a pattern, items that match a
    /// pattern are recorded even if they are omitted by default.
    pub(crate) fn has_include(&self) -> bool {
        !self.filter.include.is_empty()
    }

    /// Returns whether `name`, which is at this position of the file, is selected. Allocates only
    /// if another name was at this position in the previous call.
    #[inline]
    pub fn matches(&mut self, position: usize, name: &[u8]) -> bool {
        if self.filter.matches_all() {
            return true;
        }
        match self.cache.get(position) {
            Some((known, is_wanted)) if known == name => *is_wanted,
            _ => self.update(position, name),
        }
    }

    #[cold]
    fn update(&mut self, place: usize, name: &[u8]) -> bool {
        let is_wanted = self.filter.matches(name);
        if self.cache.len() <= place {
            self.cache.resize(place + 1, (Vec::new(), false));
        }
        if let Some((known, result)) = self.cache.get_mut(place) {
            known.clear();
            known.extend_from_slice(name);
            *result = is_wanted;
        }
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> NameFilter {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
        NameFilter { include: patterns(include), exclude: patterns(exclude) }
    }

    // Proves that `exclude` has priority over `include`, and that an empty `include` selects all
    // names.
    #[test]
    fn exclude_wins() {
        assert!(selection(&[], &[]).matches(b"sda"));
        assert!(selection(&["sd*"], &[]).matches(b"sda") && !selection(&["sd*"], &[]).matches(b"dm-0"));
        assert!(
            !selection(&["sd*"], &["sda"]).matches(b"sda") && selection(&["sd*"], &["sda"]).matches(b"sdb")
        );
        assert!(
            selection(&["sda"], &[]).includes_exactly(b"sda")
                && !selection(&["sd*"], &["sda"]).includes_exactly(b"sda")
        );
        assert!(selection(&[], &["sd*"]).matches(b"\xFF") && !selection(&["*"], &[]).matches(b"\xFF"));
    }

    // Proves that a cached result is never used for another name at the same position.
    #[test]
    fn the_cache_follows_moved_names() {
        let mut chosen = CachedNameFilter::new(selection(&[], &["b"]));
        assert!(chosen.matches(0, b"a") && !chosen.matches(1, b"b"));
        assert!(!chosen.matches(0, b"b") && chosen.matches(1, b"c") && chosen.matches(0, b"a"));
    }
}
