//! Which of a source's things are recorded: the patterns of the configuration, asked once for each name.

use crate::config::{Pattern, Source};

/// What `include` and `exclude` come to.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

impl Selection {
    /// The patterns of a source.
    pub fn of(source: &Source) -> Self {
        Self { include: source.include.clone(), exclude: source.exclude.clone() }
    }

    /// Whether everything is wanted, so that nobody need ask.
    pub fn is_everything(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether `include` has a pattern for this very name: what is not recorded unless it is asked for.
    pub fn names(&self, name: &[u8]) -> bool {
        let asked_for = std::str::from_utf8(name).unwrap_or_default();
        self.include.iter().any(|pattern| pattern.as_str() == asked_for)
    }

    /// Whether a thing of this name is wanted. A name that is not UTF-8 fits no pattern.
    pub fn wants(&self, name: &[u8]) -> bool {
        if self.is_everything() {
            return true;
        }
        let fits = |patterns: &[Pattern]| {
            std::str::from_utf8(name).is_ok_and(|name| patterns.iter().any(|pattern| pattern.fits(name)))
        };
        (self.include.is_empty() || fits(&self.include)) && !fits(&self.exclude)
    }
}

/// A selection that remembers what it said of the thing in each place of a file: one comparison a line while the kernel
/// keeps its order.
#[derive(Debug, Default)]
pub struct Chosen {
    selection: Selection,
    places: Vec<(Vec<u8>, bool)>,
}

impl Chosen {
    /// Nothing is remembered yet.
    pub fn new(selection: Selection) -> Self {
        Self { selection, places: Vec::new() }
    }

    /// Whether the thing `name`, which stands in this place of the file, is wanted. Allocates only for a name that was
    /// not in this place last time.
    #[inline]
    pub fn wants(&mut self, place: usize, name: &[u8]) -> bool {
        if self.selection.is_everything() {
            return true;
        }
        match self.places.get(place) {
            Some((known, is_wanted)) if known == name => *is_wanted,
            _ => self.learn(place, name),
        }
    }

    #[cold]
    fn learn(&mut self, place: usize, name: &[u8]) -> bool {
        let is_wanted = self.selection.wants(name);
        if self.places.len() <= place {
            self.places.resize(place + 1, (Vec::new(), false));
        }
        if let Some((known, said)) = self.places.get_mut(place) {
            known.clear();
            known.extend_from_slice(name);
            *said = is_wanted;
        }
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> Selection {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
        Selection { include: patterns(include), exclude: patterns(exclude) }
    }

    // Goal: exclude wins, no include is all. Method: the four cases.
    #[test]
    fn exclude_wins() {
        assert!(selection(&[], &[]).wants(b"sda"));
        assert!(selection(&["sd*"], &[]).wants(b"sda") && !selection(&["sd*"], &[]).wants(b"dm-0"));
        assert!(!selection(&["sd*"], &["sda"]).wants(b"sda") && selection(&["sd*"], &["sda"]).wants(b"sdb"));
        assert!(selection(&["sda"], &[]).names(b"sda") && !selection(&["sd*"], &["sda"]).names(b"sda"));
        assert!(selection(&[], &["sd*"]).wants(b"\xFF") && !selection(&["*"], &[]).wants(b"\xFF"));
    }

    // Goal: what is remembered is never said of another thing in the same place. Method: names that move.
    #[test]
    fn places_change_hands() {
        let mut chosen = Chosen::new(selection(&[], &["b"]));
        assert!(chosen.wants(0, b"a") && !chosen.wants(1, b"b"));
        assert!(!chosen.wants(0, b"b") && chosen.wants(1, b"c") && chosen.wants(0, b"a"));
    }
}
