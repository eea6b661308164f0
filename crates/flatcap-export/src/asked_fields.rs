//! Finds the fields of a recording that a request selects.

use flatcap_query::{FieldPath, Recording, end_fields};

use crate::request::ColumnarRequest;

/// Returns whether a field is a requested field, or is below a requested field. The selection of
/// elements of a list is ignored.
pub(crate) fn is_below(path: &str, asked: &str) -> bool {
    let plain = |path: &str| {
        let mut text = String::new();
        let mut depth = 0_u32;
        for c in path.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => text.push(c),
                _ => {}
            }
        }
        text
    };
    let (path, asked) = (plain(path), plain(asked));
    path == asked
        || path.strip_prefix(&asked).is_some_and(|rest| rest.starts_with('.'))
        || path.ends_with(&format!(".{asked}"))
}

/// Returns further fields to read. These fields show which elements have ended.
pub(crate) fn fields_of_ends(recording: &Recording, request: &ColumnarRequest) -> Vec<FieldPath> {
    let asked: Vec<&str> = request.fields.iter().map(FieldPath::as_str).collect();
    let mut found = Vec::new();
    for source in recording.fields() {
        let is_asked = |path: &str| {
            let path = format!("{}.{path}", source.source);
            asked.iter().any(|asked| is_below(&path, asked))
        };
        if source.fields.iter().any(|field| is_asked(&field.path)) {
            found.extend(end_fields(&source.source, &source.fields));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that paths below the requested fields are found, whichever elements were selected.
    #[test]
    fn fields_are_selected_by_their_begin() {
        for asked in ["disk", "disk.devices[vda]", "disk.devices[*].reads", "devices[*].reads", "reads"] {
            assert!(is_below("disk.devices[*].reads", asked), "{asked}");
        }
        for other in ["dis", "disk.device", "disk.devices[*].read", "ads"] {
            assert!(!is_below("disk.devices[*].reads", other), "{other}");
        }
    }
}
