//! Values that the type of their column cannot hold.

use std::collections::BTreeMap;

/// The values that were left out because the type of their column cannot hold them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LargeValues {
    /// For each source and field, the number of left-out values and a description of the first one.
    fields: BTreeMap<(String, String), (u64, String)>,
}

impl LargeValues {
    /// Adds the number of left-out values of a field. `first` describes the first of these values.
    pub(crate) fn add(&mut self, (source, path): (&str, &str), count: u64, first: &str) {
        let key = (source.to_owned(), path.to_owned());
        let (all, _) = self.fields.entry(key).or_insert_with(|| (0, first.to_owned()));
        *all = all.saturating_add(count);
    }

    /// Returns whether no value was left out.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns a line for each field from which values were left out. Each line is returned
    /// together with the name of its source.
    pub fn lines(&self) -> impl Iterator<Item = (&str, String)> {
        self.fields.iter().map(|((source, path), (count, first))| {
            let values = if *count == 1 { "value" } else { "values" };
            (&**source, format!("{count} {values} of {source}.{path} left out: {first}"))
        })
    }

    /// Returns the number of values of a source that were left out.
    pub fn count(&self, source: &str) -> u64 {
        let own = self.fields.iter().filter(|((name, _), _)| name == source);
        own.map(|(_, (count, _))| *count).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that there is a line for each field. The line contains the number of values and the
    // first value.
    #[test]
    fn each_field_has_a_line() {
        let mut large = LargeValues::default();
        assert!(large.is_empty());
        large.add(("b", "x"), 1, "the first");
        large.add(("a", "y"), 2, "another");
        large.add(("b", "x"), 3, "a later one");
        let lines: Vec<(&str, String)> = large.lines().collect();
        assert_eq!(
            lines,
            [
                ("a", "2 values of a.y left out: another".to_owned()),
                ("b", "4 values of b.x left out: the first".to_owned()),
            ]
        );
        assert_eq!(["a", "b", "c"].map(|source| large.count(source)), [2, 4, 0]);
    }
}
