//! Selection of fields. Narrows a compiled schema to the fields that are named by dotted paths.

use super::compiled::{CompiledObject, CompiledSchema, DEPTH_MAX, ElementType, Field, FieldType};
use super::error::SchemaError;
use super::nearest_name::nearest_name;

impl CompiledSchema {
    /// Returns the schema with only the fields that are named by the dotted paths, in the order of
    /// the schema. A path contains no list indices, so `cores.times.user` selects a field of each
    /// core. A path to an object or a list selects the whole object or list. Fields that are not
    /// selected are not read.
    ///
    /// # Errors
    /// Returns `NoField` for a path that does not exist. Returns `TooDeep` for a path of more than
    /// [`DEPTH_MAX`] segments.
    pub fn select(&self, paths: &[&str]) -> Result<Self, SchemaError> {
        for path in paths {
            // A table may contain itself, so only the length of the path bounds the recursion of
            // `narrow`.
            if path.split('.').count() > DEPTH_MAX {
                return Err(SchemaError::TooDeep { object: (*path).to_owned(), limit: DEPTH_MAX });
            }
        }
        // Objects are only appended, so the indices in fields that are selected as a whole stay
        // valid.
        let mut narrowed = self.clone();
        let selected: Vec<_> = paths.iter().map(|path| SelectedPath { full: path, rest: path }).collect();
        narrowed.root = narrow(&mut narrowed, self.root, &selected)?;
        Ok(narrowed)
    }
}

/// A path, and the part of the path below the current object.
#[derive(Clone, Copy)]
struct SelectedPath<'w> {
    full: &'w str,
    rest: &'w str,
}

impl<'w> SelectedPath<'w> {
    /// Splits the name of the first field off a path. The rest of the path is `None` if the path
    /// ends at this field.
    fn split_first(self) -> (&'w str, Option<Self>) {
        match self.rest.split_once('.') {
            Some((name, rest)) => (name, Some(Self { full: self.full, rest })),
            None => (self.rest, None),
        }
    }

    fn not_in(self, object: &str, fields: &[Field]) -> SchemaError {
        no_field(self.full, self.split_first().0, object, fields)
    }
}

/// Creates the error for a path segment that is not a field. The error names the most similar
/// field.
pub(super) fn no_field(path: &str, segment: &str, object: &str, fields: &[Field]) -> SchemaError {
    let names = || fields.iter().map(Field::name);
    SchemaError::NoField {
        path: path.to_owned(),
        segment: segment.to_owned(),
        object: object.to_owned(),
        nearest: nearest_name(segment, names()).map(str::to_owned),
        known: names().map(str::to_owned).collect(),
    }
}

/// Appends a copy of the object that contains only the selected fields. Returns the index of the
/// copy. Each selected path gets its own copy of an object, because other paths may reach the same
/// type and select other fields. The recursion is as deep as the longest path.
fn narrow(
    schema: &mut CompiledSchema,
    object: usize,
    selected: &[SelectedPath<'_>],
) -> Result<usize, SchemaError> {
    let source = schema.object(object).clone();
    for path in selected {
        let (name, _) = path.split_first();
        if source.fields.iter().all(|field| *field.name != *name) {
            return Err(path.not_in(&source.name, &source.fields));
        }
    }
    let mut fields = Vec::new();
    for field in &source.fields {
        let mut below = Vec::new();
        let mut whole = false;
        for (_, rest) in
            selected.iter().map(|want| want.split_first()).filter(|(name, _)| **name == *field.name)
        {
            match rest {
                Some(rest) => below.push(rest),
                None => whole = true,
            }
        }
        if !whole && below.is_empty() {
            continue;
        }
        let mut selected_field = Field { index: fields.len(), ..field.clone() };
        // The rest of a longer path is followed even if the whole field is selected, so that errors
        // in this path are reported.
        if let Some(first) = below.first() {
            let nested = field.nested().ok_or_else(|| first.not_in(&field.type_name, &[]))?;
            let narrowed = narrow(schema, nested, &below)?;
            if !whole {
                selected_field.value_type = with_nested(field.value_type, narrowed);
            }
        }
        fields.push(selected_field);
    }
    schema.objects.push(CompiledObject { fields: fields.into(), ..source });
    Ok(schema.objects.len() - 1)
}

fn with_nested(kind: FieldType, object: usize) -> FieldType {
    match kind {
        FieldType::Object(_) => FieldType::Object(object),
        FieldType::Vector(ElementType::Object(_)) => FieldType::Vector(ElementType::Object(object)),
        FieldType::Array(ElementType::Object(_), length) => {
            FieldType::Array(ElementType::Object(object), length)
        }
        FieldType::Scalar(_) | FieldType::String | FieldType::Vector(_) | FieldType::Array(..) => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{
        CountingVisitor, MARKED_PAYLOAD, SHAPES_PAYLOAD, json, marked, recursive, shapes,
    };
    use super::*;

    fn refused(paths: &[&str]) -> String {
        marked().select(paths).unwrap_err().to_string()
    }

    #[test]
    fn paths_keep_their_fields_in_the_order_of_the_schema() {
        // Proves that only the named fields remain, in the order of the schema. Proves the same for
        // lists and subtrees.
        let plan = marked().select(&["unit.heat", "total", "cores.times.user", "unit.name"]).unwrap();
        let paths: Vec<_> = plan.fields().map(|leaf| leaf.path).collect();
        let expected = ["total.user", "total.system", "cores.times.user", "unit.name", "unit.heat"];
        assert_eq!(paths, expected);
        let expected = concat!(
            r#"{"total":{"user":10,"system":null},"cores":[{"times":{"user":1}},{"times":null}],"#,
            r#""unit":{"name":"eth0","heat":null}}"#
        );
        assert_eq!(json(&plan, MARKED_PAYLOAD), expected);
        let narrower = plan.select(&["unit.heat"]).unwrap();
        assert_eq!(json(&narrower, MARKED_PAYLOAD), r#"{"unit":{"heat":null}}"#);
        assert_eq!(json(&plan.select(&[]).unwrap(), MARKED_PAYLOAD), "{}");
    }

    #[test]
    fn a_path_narrows_a_type_only_at_its_own_position() {
        // Proves that a path narrows a type only along this path, and not at other uses of the
        // type.
        let plan = shapes().select(&["point.x", "points.y", "scalars.u8", "untouched.i8"]).unwrap();
        let expected = r#"{"scalars":{"u8":255},"untouched":{"i8":-100},"point":{"x":-5},"points":[{"y":4.0},{"y":6.0}]}"#;
        assert_eq!(json(&plan, SHAPES_PAYLOAD), expected);
    }

    #[test]
    fn a_path_and_a_longer_one_keep_the_whole() {
        // Proves that a path to a subtree has priority over paths to parts of the subtree, in
        // either order.
        for paths in [["point", "point.x"], ["point.x", "point"]] {
            let plan = shapes().select(&paths).unwrap();
            assert_eq!(json(&plan, SHAPES_PAYLOAD), r#"{"point":{"x":-5,"y":0.125}}"#);
        }
    }

    #[test]
    fn every_leaf_path_selects_its_field() {
        // Proves that `select` accepts every path that `fields` lists.
        for plan in [shapes(), marked(), recursive()] {
            for leaf in plan.fields() {
                let narrowed = plan.select(&[&leaf.path]).unwrap();
                let paths: Vec<_> = narrowed.fields().map(|leaf| leaf.path).collect();
                assert!(paths.iter().all(|path| path.starts_with(&leaf.path)), "{paths:?}");
                assert!(!paths.is_empty());
            }
        }
    }

    #[test]
    fn an_unknown_path_suggests_the_nearest_name() {
        // Proves that the message for a misspelt path suggests the right name, at each level.
        let expected = r#""totl": flatcap.test.Marked has no field "totl"; did you mean "total"?"#;
        assert_eq!(refused(&["totl"]), expected);
        let expected = r#""cores.times.usr": flatcap.test.Times has no field "usr"; did you mean "user"?"#;
        assert_eq!(refused(&["total", "cores.times.usr"]), expected);
        let expected = r#""speed": flatcap.test.Marked has no field "speed"; its fields are "#;
        assert!(refused(&["speed"]).starts_with(expected), "an unrelated name has no suggestion");
        assert_eq!(refused(&["load.x"]), r#""load.x": double has no field "x""#);
        assert_eq!(refused(&["total", "total.user.x"]), r#""total.user.x": ulong has no field "x""#);
        assert!(refused(&[""]).contains(r#"has no field """#));
        assert!(refused(&["total."]).contains(r#"flatcap.test.Times has no field """#));
        let deep = vec!["left"; 17].join(".");
        let error = recursive().select(&[&deep]).unwrap_err();
        assert!(matches!(error, SchemaError::TooDeep { .. }), "{error}");
        assert!(recursive().select(&["left.left.right.value"]).is_ok());
    }

    #[test]
    fn what_is_not_selected_is_not_read() {
        // Proves that damage outside the selection does not matter. The damage is in the strings
        // and lists at the end of the payload.
        let plan = marked().select(&["load"]).unwrap();
        let mut tally = CountingVisitor::default();
        plan.walk(MARKED_PAYLOAD, &mut tally).unwrap();
        assert_eq!(tally.calls, 2);
        let cut = &MARKED_PAYLOAD[..MARKED_PAYLOAD.len() - 8];
        assert!(marked().walk(cut, &mut CountingVisitor::default()).is_err());
        plan.walk(cut, &mut CountingVisitor::default()).unwrap();
    }
}
