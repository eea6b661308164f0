//! Finds the fields to which paths lead.

use super::column_meaning::ColumnMeaning;
use super::path::{ElementPick, FieldPath, PathPart};
use super::path_text::source_path;
use crate::error::QueryError;
use flatcap_format::schema::{CompiledSchema, LeafField, nearest_name};

/// Maximum number of fields that an error lists.
const LISTED_MAX: usize = 5;

/// A field of a source that a query selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedField {
    /// Position of the field among the leaf fields of the schema.
    pub(crate) leaf: usize,
    /// The selected elements of each list on the way to the field, outermost list first.
    pub(crate) picks: Vec<ElementPick>,
    /// Position of the field's path in the query.
    pub(crate) order: usize,
}

/// A source whose fields may be selected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownSource<'s> {
    pub(crate) name: &'s str,
    /// The source's id, which a path may contain, such as in `orders[3]`. `None` accepts any id.
    pub(crate) id: Option<u16>,
    pub(crate) schema: &'s CompiledSchema,
    /// Whether the source's samples are computed from the samples of another source.
    pub(crate) is_computed: bool,
}

/// Returns the fields that the paths select, for each source, in the order of the paths. An empty
/// list of paths selects all fields. A path leads to the first of the following that exists:
///
/// 1. the field, object or list with this path, after the name of a source or in every source;
/// 2. the only field whose path ends with this path (for example, `mem_available` leads to
///    `memory.mem_available`). Some lists repeat another list in more detail. A field in such a
///    list is used only if no other field matches.
///
/// Computed sources are used only if the path begins with their name, or if no other source has the
/// field.
///
/// # Errors
/// `NoField`, `Ambiguous`, `NoList`, `NoColumn`.
pub(crate) fn resolve(
    sources: &[KnownSource<'_>],
    paths: &[FieldPath],
) -> Result<Vec<Vec<SelectedField>>, QueryError> {
    let leaves: Vec<Vec<LeafField<'_>>> =
        sources.iter().map(|source| source.schema.fields().collect()).collect();
    let mut selected: Vec<Vec<SelectedField>> = vec![Vec::new(); sources.len()];
    if paths.is_empty() {
        for (selected, leaves) in selected.iter_mut().zip(&leaves) {
            let all = leaves.iter().enumerate().filter(|(_, leaf)| leaf.field.column_type().is_some());
            selected.extend(all.map(|(leaf, field)| SelectedField {
                leaf,
                picks: vec![ElementPick::All; field.lists.len()],
                order: leaf,
            }));
        }
        return Ok(selected);
    }
    for (order, path) in paths.iter().enumerate() {
        let found = match find(sources, &leaves, path, false) {
            Err(QueryError::NoField { .. }) if sources.iter().any(|source| source.is_computed) => {
                find(sources, &leaves, path, true)
            }
            found => found,
        }?;
        for (source, leaf, picks) in found {
            let Some(own) = selected.get_mut(source) else { continue };
            // Two paths may select the same field, which must be read only one time.
            if !own.iter().any(|known| known.leaf == leaf && known.picks == picks) {
                own.push(SelectedField { leaf, picks, order });
            }
        }
    }
    Ok(selected)
}

type Found = (usize, usize, Vec<ElementPick>);

fn find(
    sources: &[KnownSource<'_>],
    leaves: &[Vec<LeafField<'_>>],
    path: &FieldPath,
    has_computed: bool,
) -> Result<Vec<Found>, QueryError> {
    // A source's name may contain dots, so the path may begin with the names of several sources.
    // The path leads to the fields of all these sources, whichever of the sources a run contains.
    let named = sources.iter().enumerate();
    let named = named.filter_map(|(number, source)| Some((number, parts_of(source, path)?)));
    let mut candidates: Vec<(usize, &[PathPart])> =
        named.map(|(number, parts)| (number, path.parts.get(parts..).unwrap_or_default())).collect();
    let after_named = candidates.len();
    // A field may have the same name as a source.
    let counted = sources.iter().enumerate().filter(|(_, source)| has_computed || !source.is_computed);
    candidates.extend(counted.map(|(number, _)| (number, path.parts.as_slice())));
    let (mut exact, mut ends, mut no_list) = (Vec::new(), Vec::new(), None);
    for (at, (source, parts)) in candidates.into_iter().enumerate() {
        // Several sources may have this name. The path leads to the fields of all these sources.
        if at == after_named && !exact.is_empty() {
            break;
        }
        let own = leaves.get(source).map_or(&[][..], Vec::as_slice);
        for (number, leaf) in own.iter().enumerate().filter(|(_, leaf)| path.fits(leaf)) {
            let found = match matched(leaf, parts, path) {
                // The field may be a list in another run, or in another source with this name, so
                // the search continues.
                Err(error @ QueryError::NoList { .. }) => {
                    no_list.get_or_insert(error);
                    continue;
                }
                found => found?,
            };
            if let Some(matched) = found {
                if leaf.field.column_type().is_none() {
                    if parts.len() == leaf.positions.len() {
                        return Err(QueryError::NoColumn { path: path.to_string() });
                    }
                    continue;
                }
                exact.push((source, number, matched));
            } else if !parts.is_empty()
                && leaf.field.column_type().is_some()
                && let Some(matched) = matched_end(leaf, parts)
            {
                ends.push((source, number, matched));
            }
        }
    }
    if !exact.is_empty() {
        return Ok(exact);
    }
    if let Some(error) = no_list {
        return Err(error);
    }
    ends.dedup();
    let is_detail = |(source, leaf, _): &Found| {
        leaves.get(*source).and_then(|leaves| leaves.get(*leaf)).is_some_and(|leaf| leaf.is_detail)
    };
    if ends.iter().any(|end| !is_detail(end)) {
        ends.retain(|end| !is_detail(end));
    }
    // Sources of the same kind on several hosts have the same fields, so each path is listed only
    // one time.
    let texts: Vec<String> =
        ends.iter().map(|(source, leaf, _)| full_path(sources, leaves, *source, *leaf)).collect();
    let mut distinct = texts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    match distinct.len() {
        0 => {
            let other = other_meanings(sources, leaves, path);
            let nearest = if other.is_empty() { nearest(sources, leaves, path) } else { other };
            Err(QueryError::NoField { path: path.to_string(), nearest })
        }
        1 => Ok(ends),
        count => {
            distinct.truncate(LISTED_MAX);
            Err(QueryError::Ambiguous { path: path.to_string(), count, fields: distinct })
        }
    }
}

/// If the path begins with the name of the source, returns the number of path parts that form the
/// name. An id may follow the name.
fn parts_of(source: &KnownSource<'_>, path: &FieldPath) -> Option<usize> {
    let count = path.source_parts(source.name)?;
    let is_id = match &path.parts.get(count.checked_sub(1)?)?.pick {
        None | Some(ElementPick::All) => true,
        Some(ElementPick::Named(id)) => {
            id.parse::<u16>().is_ok_and(|id| source.id.is_none_or(|own| own == id))
        }
        Some(ElementPick::Tests(_)) => false,
    };
    is_id.then_some(count)
}

/// Returns the selections of a leaf whose path begins with this path or is equal to it.
fn matched(
    leaf: &LeafField<'_>,
    parts: &[PathPart],
    path: &FieldPath,
) -> Result<Option<Vec<ElementPick>>, QueryError> {
    if parts.len() > leaf.positions.len() {
        return Ok(None);
    }
    if !leaf.path.split('.').zip(parts).all(|(name, part)| *part.name == *name) {
        return Ok(None);
    }
    let mut end = 0;
    for (name, part) in leaf.path.split('.').zip(parts) {
        end += name.len() + usize::from(end > 0);
        if part.pick.is_some() && !leaf.lists.contains(&end) {
            let field = leaf.path.get(..end).unwrap_or_default().to_owned();
            let pick = part.pick.as_ref().map(ElementPick::text).unwrap_or_default();
            return Err(QueryError::NoList { path: path.to_string(), field, pick });
        }
    }
    Ok(Some(picks(leaf, parts, 0)))
}

/// Returns the selections of a leaf whose path ends with these parts.
fn matched_end(leaf: &LeafField<'_>, parts: &[PathPart]) -> Option<Vec<ElementPick>> {
    let names: Vec<&str> = leaf.path.split('.').collect();
    let skipped = names.len().checked_sub(parts.len())?;
    let is_end = names.iter().skip(skipped).zip(parts).all(|(name, part)| *part.name == **name);
    is_end.then(|| picks(leaf, parts, skipped))
}

/// Returns the selection of each list of a leaf. The first part is at position `skipped` of the
/// leaf's path.
fn picks(leaf: &LeafField<'_>, parts: &[PathPart], skipped: usize) -> Vec<ElementPick> {
    let mut end = 0;
    let mut picks = Vec::new();
    for (position, name) in leaf.path.split('.').enumerate() {
        end += name.len() + usize::from(end > 0);
        if leaf.lists.contains(&end) {
            let part = position.checked_sub(skipped).and_then(|part| parts.get(part));
            picks.push(part.and_then(|part| part.pick.clone()).unwrap_or(ElementPick::All));
        }
    }
    picks
}

fn full_path(
    sources: &[KnownSource<'_>],
    leaves: &[Vec<LeafField<'_>>],
    source: usize,
    leaf: usize,
) -> String {
    let name = sources.get(source).map_or("", |source| source.name);
    let path = leaves.get(source).and_then(|leaves| leaves.get(leaf)).map(spelled).unwrap_or_default();
    source_path(name, &path)
}

/// Returns the path of a leaf with `[*]` after each list.
pub(crate) fn spelled(leaf: &LeafField<'_>) -> String {
    let (mut path, mut start) = (String::new(), 0);
    for end in &leaf.lists {
        path.push_str(leaf.path.get(start..*end).unwrap_or_default());
        path.push_str("[*]");
        start = *end;
    }
    path.push_str(leaf.path.get(start..).unwrap_or_default());
    path
}

/// Returns the path to a list, with the selections of all lists on the way.
pub(crate) fn picked_path(leaf: &LeafField<'_>, list_end: usize, picks: &[ElementPick]) -> Box<str> {
    let (mut path, mut start) = (String::new(), 0);
    for (end, pick) in leaf.lists.iter().take_while(|end| **end <= list_end).zip(picks) {
        path.push_str(leaf.path.get(start..*end).unwrap_or_default());
        path.extend(["[", &pick.text(), "]"]);
        start = *end;
    }
    path.into()
}

/// Returns the paths to fields with the same name, but with a type, unit or kind that the path does
/// not select.
fn other_meanings(
    sources: &[KnownSource<'_>],
    leaves: &[Vec<LeafField<'_>>],
    path: &FieldPath,
) -> Vec<String> {
    if path.meaning.is_empty() {
        return Vec::new();
    }
    let found = find(sources, leaves, &path.with_any_meaning(), true).unwrap_or_default();
    let meaning = |(source, leaf, _): &Found| ColumnMeaning::of_leaf(leaves.get(*source)?.get(*leaf)?);
    let meanings: Vec<ColumnMeaning> = found.iter().filter_map(meaning).collect();
    let mut paths: Vec<String> = (found.iter().zip(&meanings))
        .map(|((source, leaf, _), own)| full_path(sources, leaves, *source, *leaf) + &own.suffix(&meanings))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths.truncate(LISTED_MAX);
    paths
}

/// Returns the paths of the fields whose last name is most similar to the last name of the path.
fn nearest(sources: &[KnownSource<'_>], leaves: &[Vec<LeafField<'_>>], path: &FieldPath) -> Vec<String> {
    let Some(wanted) = path.parts.last() else { return Vec::new() };
    let last = |leaf: &LeafField<'_>| leaf.path.rsplit('.').next().unwrap_or_default().to_owned();
    let names: Vec<String> = leaves
        .iter()
        .flatten()
        .flat_map(|leaf| leaf.path.split('.').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let all = names.iter().map(String::as_str).chain(sources.iter().map(|source| source.name));
    let Some(near) = nearest_name(&wanted.name, all) else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for (source, own) in leaves.iter().enumerate() {
        for (number, leaf) in own.iter().enumerate() {
            if last(leaf) == near
                || leaf.path.split('.').any(|name| name == near)
                || sources.get(source).is_some_and(|own| own.name == near)
            {
                found.push(full_path(sources, leaves, source, number));
            }
        }
    }
    found.sort_by_key(String::len);
    found.dedup();
    found.truncate(LISTED_MAX);
    found
}
