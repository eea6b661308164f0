//! Paths that fields of several sources share. A source's name may contain dots, so `db.pool.size`
//! is both `pool.size` of `db` and `size` of `db.pool`.

use std::collections::{BTreeMap, HashSet};

use super::path_text::{in_quotes, instance_name};
use super::resolve::{KnownSource, spelled};

/// The paths that lead to fields of several sources if the source's name is not in quotes.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedPaths(HashSet<String>);

impl SharedPaths {
    /// Finds the paths that these sources share.
    pub(crate) fn of<'s>(sources: impl Iterator<Item = KnownSource<'s>>) -> Self {
        let mut by_name: BTreeMap<&str, Vec<KnownSource<'_>>> = BTreeMap::new();
        for source in sources {
            by_name.entry(source.name).or_default().push(source);
        }
        let mut shared = HashSet::new();
        for (longer, inner) in &by_name {
            let dots = longer.match_indices('.');
            let outer = dots.filter_map(|(dot, _)| by_name.get(longer.get(..dot)?));
            for source in outer.flatten() {
                let paths: HashSet<String> = paths(source).collect();
                let inner = inner.iter().flat_map(|source| self::paths(source));
                shared.extend(inner.filter(|path| paths.contains(path)));
            }
        }
        Self(shared)
    }

    /// Returns the path of a field. The path leads to no field of another source. `path` has `[*]`
    /// after each list. With an id, the path leads only to the source with this id.
    pub(crate) fn path(&self, (source, id): (&str, Option<u16>), path: &str) -> String {
        format!("{}.{path}", self.source((source, id), path))
    }

    /// Returns the part of a path that names the source of a field.
    pub(super) fn source(&self, (source, id): (&str, Option<u16>), path: &str) -> String {
        if !self.contains(source, path) {
            return instance_name(source, id);
        }
        let id = id.map_or(String::new(), |id| format!("[{id}]"));
        format!("{}{id}", in_quotes(source))
    }

    /// Returns whether a field of another source has the same path.
    fn contains(&self, source: &str, path: &str) -> bool {
        // Most recordings have no shared paths, so usually no string has to be formatted.
        !self.0.is_empty() && self.0.contains(&format!("{source}.{path}"))
    }
}

/// Returns the paths of all fields of a source. The paths begin with the name of the source.
fn paths<'s>(source: &KnownSource<'s>) -> impl Iterator<Item = String> + use<'s> {
    let name = source.name;
    source.schema.fields().map(move |leaf| format!("{name}.{}", spelled(&leaf)))
}
