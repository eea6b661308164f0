//! Suggests a known name for a misspelt one.

/// Minimum Jaro-Winkler similarity for a suggestion. It allows one typing error in a short word,
/// and two in a long word. Without a minimum, the most similar name would often be a wrong
/// suggestion.
const SIMILARITY_MIN: f64 = 0.8;
/// Maximum length of a name that gets a suggestion, in characters. There is a limit because the
/// cost of a comparison grows with the product of both lengths.
const NAME_CHARS_MAX: usize = 60;

/// Similarity of a known name that ends with a dot and the wanted name, such as file.app for app.
const END_SIMILARITY: f64 = 0.99;

/// Returns the known name that is most similar to `name`, or `None` if no known name is similar
/// enough. Ignores case.
pub fn nearest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.chars().count() > NAME_CHARS_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let similarity = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let is_end = candidate.strip_suffix(&name).is_some_and(|rest| rest.ends_with('.'));
        let similarity = strsim::jaro_winkler(&name, &candidate);
        if is_end && !name.is_empty() { similarity.max(END_SIMILARITY) } else { similarity }
    };
    known
        .into_iter()
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a typing error gives the intended name, and that an unrelated word gives no
    // suggestion.
    #[test]
    fn only_similar_names_are_suggested() {
        let near = |name| nearest_name(name, ["cpu", "load", "memory", "snmp", "cores"]);
        assert_eq!(["laod", "memroy", "CPU", "core"].map(near), ["load", "memory", "cpu", "cores"].map(Some));
        let near_end = |name| nearest_name(name, ["file.app", "command.x", "apt"]);
        assert_eq!(
            ["app", "APP", "ap", ""].map(near_end),
            [Some("file.app"), Some("file.app"), Some("apt"), None]
        );
        assert_eq!(["nope", "user", "", "x", &"load".repeat(20)].map(near), [None; 5]);
    }
}
