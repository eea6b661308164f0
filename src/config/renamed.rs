//! Tables and keys that development versions used under other names. An error names the new one.

/// Old table and key, new table and key. A table itself has the key "". Old keys are listed under
/// the old table and under the new one, since a file may be half renamed.
const RENAMED: [(&str, &str, &str, &str); 10] = [
    ("agent", "", "recorder", ""),
    ("handover", "", "buffering", ""),
    ("handover", "hand_over", "buffering", "flush_interval"),
    ("handover", "drain", "buffering", "poll_interval"),
    ("buffering", "hand_over", "buffering", "flush_interval"),
    ("buffering", "drain", "buffering", "poll_interval"),
    ("storage", "keep_free", "storage", "min_free"),
    ("seal", "", "compress", ""),
    ("seal", "active", "compress", "while_recording"),
    ("compress", "active", "compress", "while_recording"),
];

/// Returns the new table and key of an old one. A key that kept its name in a renamed table is
/// found by its table.
pub(super) fn renamed(table: &str, key: &str) -> Option<(&'static str, String)> {
    let find = |key: &str| RENAMED.iter().find(|(old, old_key, ..)| (*old, *old_key) == (table, key));
    // The entry of the key comes first: in a renamed table it may have another name too.
    if let Some((_, _, new, new_key)) = find(key) {
        return Some((new, (*new_key).to_owned()));
    }
    find("").map(|(_, _, new, _)| (*new, key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a renamed table, a renamed key and a key of a renamed table lead to the new
    // names, and other names to none.
    #[test]
    fn old_names_lead_to_new_ones() {
        assert_eq!(renamed("seal", ""), Some(("compress", String::new())));
        assert_eq!(renamed("seal", "active"), Some(("compress", "while_recording".to_owned())));
        assert_eq!(renamed("seal", "codec"), Some(("compress", "codec".to_owned())));
        assert_eq!(renamed("storage", "keep_free"), Some(("storage", "min_free".to_owned())));
        assert_eq!(renamed("storage", "retain_bytes"), None);
        assert_eq!(renamed("groups", ""), None);
    }
}
