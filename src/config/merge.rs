//! Merges TOML trees key by key.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Merges `over` into `under`. Tables are merged key by key, all other values are replaced as a
/// whole. Keys that only one of the trees has are kept.
pub(super) fn merge_over<'t>(under: &mut DeTable<'t>, over: DeTable<'t>) {
    for (key, value) in over {
        let name: &str = key.get_ref();
        let below = under.get_mut(name).map(Spanned::get_mut);
        let span = value.span();
        let value = match (below, value.into_inner()) {
            // Lists are replaced like single values. Otherwise, a later text could not remove an
            // item from a list.
            (Some(DeValue::Table(below)), DeValue::Table(above)) => {
                merge_over(below, above);
                continue;
            }
            (_, value) => Spanned::new(span, value),
        };
        // The key is replaced together with its value, so that the key and the value have locations
        // in the same input.
        under.remove(name);
        under.insert(key, value);
    }
}

/// Adds `by` to all spans of a tree. This converts spans within one input to spans within the
/// concatenated inputs. Items of lists keep their old spans, since these are never used.
pub(super) fn shifted(tree: DeTable<'_>, by: usize) -> DeTable<'_> {
    // The sums cannot overflow, because the size of all inputs together is little more than
    // `FILE_BYTES_MAX` bytes.
    let entries = tree.into_iter().map(|(key, value)| {
        let span = value.span();
        let value = match value.into_inner() {
            DeValue::Table(table) => DeValue::Table(shifted(table, by)),
            other => other,
        };
        let key_span = key.span();
        let key = Spanned::new(key_span.start + by..key_span.end + by, key.into_inner());
        (key, Spanned::new(span.start + by..span.end + by, value))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    fn tree(text: &str) -> DeTable<'_> {
        DeTable::parse(text).unwrap().into_inner()
    }

    /// A tree without spans.
    #[derive(Debug, Clone, PartialEq)]
    enum Plain {
        Value(String),
        Table(BTreeMap<String, Plain>),
    }

    fn plain(tree: &DeTable<'_>) -> Plain {
        let entries = tree.iter().map(|(key, value)| {
            let value = match value.get_ref() {
                DeValue::Table(table) => plain(table),
                other => Plain::Value(format!("{other:?}")),
            };
            (key.get_ref().to_string(), value)
        });
        Plain::Table(entries.collect())
    }

    fn merged(texts: &[&str]) -> Plain {
        let mut merged = DeTable::new();
        for text in texts {
            merge_over(&mut merged, tree(text));
        }
        plain(&merged)
    }

    // Proves that tables merge at every depth, and that lists, values and types are replaced.
    #[test]
    fn later_trees_win_key_by_key() {
        let cases: [(&[&str], &str); 6] = [
            (&["a.b.c = 1\na.d = 2", "a.b.c = 3\na.b.e = 4"], "a.b.c = 3\na.d = 2\na.b.e = 4"),
            (&["a = [1, 2]", "a = [3]"], "a = [3]"),
            (&["a = {b = 1}", "[a]\nc = 2"], "a = {b = 1, c = 2}"),
            (&["a = 1", "[a]\nb = 2"], "[a]\nb = 2"),
            (&["[a]\nb = 2", "a = 1"], "a = 1"),
            (&["a = 1", "", "# nothing"], "a = 1"),
        ];
        for (texts, expected) in cases {
            assert_eq!(merged(texts), plain(&tree(expected)), "{texts:?}");
        }
    }

    // Proves that all spans are shifted by the same amount, and that each overriding value keeps
    // its own span.
    #[test]
    fn spans_follow_their_text() {
        let (first, second) = ("[a]\nb = 1\nc = 2\n", "a.b = 3\n");
        let whole = format!("{first}{second}");
        let mut merged = tree(first);
        merge_over(&mut merged, shifted(tree(second), first.len()));
        let (_, table) = merged.iter().next().unwrap();
        let found = table.get_ref().as_table().unwrap().iter();
        let found: Vec<_> = found.map(|(key, value)| (&whole[key.span()], &whole[value.span()])).collect();
        assert_eq!(found, [("b", "3"), ("c", "2")]);
    }

    fn any_tree() -> impl Strategy<Value = Plain> {
        let value = (0..9_u8).prop_map(|number| Plain::Value(number.to_string()));
        let table = |inner| prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(Plain::Table);
        let inner = value.prop_recursive(3, 30, 4, move |inner| table(inner).boxed());
        prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(Plain::Table)
    }

    fn write(tree: &Plain) -> String {
        match tree {
            Plain::Value(value) => value.clone(),
            Plain::Table(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("{key} = {}", write(value))).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    fn expected(under: &Plain, over: &Plain) -> Plain {
        match (under, over) {
            (Plain::Table(under), Plain::Table(over)) => {
                let mut merged = under.clone();
                for (key, value) in over {
                    let value = under.get(key).map_or_else(|| value.clone(), |below| expected(below, value));
                    merged.insert(key.clone(), value);
                }
                Plain::Table(merged)
            }
            (_, over) => over.clone(),
        }
    }

    proptest! {
        #[test]
        fn merged_trees_are_the_merged_text(under in any_tree(), over in any_tree()) {
            // Proves that merging two documents gives the same tree as a document with the merged
            // content.
            let [under_text, over_text] = [&under, &over].map(|tree| format!("t = {}", write(tree)));
            let together = format!("t = {}", write(&expected(&under, &over)));
            prop_assert_eq!(merged(&[&under_text, &over_text]), merged(&[&together]));
        }
    }
}
