//! Names that are taken only once.

/// Returns `name`, or `name` with the first number for which `is_free` returns true: `a`, `a-2`,
/// `a-3`.
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

    // Proves that a taken name gets the first free number.
    #[test]
    fn taken_names_get_a_number() {
        let mut taken = std::collections::BTreeSet::new();
        let names =
            ["a", "a-2", "a", "a"].map(|name| unique_name(name, |name| taken.insert(name.to_owned())));
        assert_eq!(names, ["a", "a-2", "a-3", "a-4"]);
    }
}
