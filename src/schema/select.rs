//! Which part of a payload is wanted? A plan narrowed to the fields that dotted paths name.

use super::compile::DEPTH_MAX;
use super::error::SchemaError;
use super::plan::{Element, Field, Kind, Object, Plan};

pub(super) fn select(plan: &Plan, paths: &[&str]) -> Result<Plan, SchemaError> {
    for path in paths {
        if path.split('.').count() > DEPTH_MAX {
            return Err(SchemaError::TooDeep { object: (*path).to_owned(), limit: DEPTH_MAX });
        }
    }
    let mut narrowed = plan.clone();
    let wanted: Vec<_> = paths.iter().map(|path| Wanted { path, rest: path }).collect();
    narrowed.root = narrow(&mut narrowed, plan.root, &wanted)?;
    Ok(narrowed)
}

/// A path, and what of it lies below the object at hand.
#[derive(Clone, Copy)]
struct Wanted<'w> {
    path: &'w str,
    rest: &'w str,
}

impl<'w> Wanted<'w> {
    /// The name of a field, and the path below it unless the field itself is wanted.
    fn step(self) -> (&'w str, Option<Self>) {
        match self.rest.split_once('.') {
            Some((name, rest)) => (name, Some(Self { path: self.path, rest })),
            None => (self.rest, None),
        }
    }

    fn not_in(self, object: &str, fields: &[Field]) -> SchemaError {
        no_field(self.path, self.step().0, object, fields)
    }
}

/// Of a path this segment is none of the fields, with the nearest that is.
pub(super) fn no_field(path: &str, segment: &str, object: &str, fields: &[Field]) -> SchemaError {
    let nearest = fields.iter().min_by_key(|field| strsim::damerau_levenshtein(segment, &field.name));
    SchemaError::NoField {
        path: path.to_owned(),
        segment: segment.to_owned(),
        object: object.to_owned(),
        nearest: nearest.map(|field| field.name.to_string()),
    }
}

/// Adds a copy of the object that has only the wanted fields, and gives its index. The copy is this path's
/// own, since other paths may reach the same type and want other fields of it. As deep as the longest path.
fn narrow(plan: &mut Plan, object: usize, wanted: &[Wanted<'_>]) -> Result<usize, SchemaError> {
    let source = plan.object(object).clone();
    for want in wanted {
        let (name, _) = want.step();
        if source.fields.iter().all(|field| *field.name != *name) {
            return Err(want.not_in(&source.name, &source.fields));
        }
    }
    let mut fields = Vec::new();
    for field in &source.fields {
        let mut below = Vec::new();
        let mut whole = false;
        for (_, rest) in wanted.iter().map(|want| want.step()).filter(|(name, _)| **name == *field.name) {
            match rest {
                Some(rest) => below.push(rest),
                None => whole = true,
            }
        }
        if !whole && below.is_empty() {
            continue;
        }
        let mut kept = Field { index: fields.len(), ..field.clone() };
        if let Some(first) = below.first() {
            let nested = field.nested().ok_or_else(|| first.not_in(&field.type_name, &[]))?;
            let narrowed = narrow(plan, nested, &below)?;
            if !whole {
                kept.kind = with_nested(field.kind, narrowed);
            }
        }
        fields.push(kept);
    }
    plan.objects.push(Object { fields: fields.into(), ..source });
    Ok(plan.objects.len() - 1)
}

fn with_nested(kind: Kind, object: usize) -> Kind {
    match kind {
        Kind::Object(_) => Kind::Object(object),
        Kind::Vector(Element::Object(_)) => Kind::Vector(Element::Object(object)),
        Kind::Array(Element::Object(_), length) => Kind::Array(Element::Object(object), length),
        Kind::Scalar(_) | Kind::String | Kind::Vector(_) | Kind::Array(..) => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, Tally, json, marked, recursive, shapes};
    use super::*;

    fn refused(paths: &[&str]) -> String {
        marked().select(paths).unwrap_err().to_string()
    }

    #[test]
    fn paths_keep_their_fields_in_the_order_of_the_schema() {
        // Goal: only what is named stays, in place. Method: paths out of order, through a list, to a subtree.
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
    fn one_type_in_two_places_is_narrowed_apart() {
        // Goal: a path narrows its own place only. Method: one struct and one table used twice.
        let plan = shapes().select(&["point.x", "points.y", "scalars.u8", "untouched.i8"]).unwrap();
        let expected = r#"{"scalars":{"u8":255},"untouched":{"i8":-100},"point":{"x":-5},"points":[{"y":4.0},{"y":6.0}]}"#;
        assert_eq!(json(&plan, SHAPES_PAYLOAD), expected);
    }

    #[test]
    fn a_path_and_a_longer_one_keep_the_whole() {
        // Goal: a subtree wins over its parts, in either order. Method: both orders.
        for paths in [["point", "point.x"], ["point.x", "point"]] {
            let plan = shapes().select(&paths).unwrap();
            assert_eq!(json(&plan, SHAPES_PAYLOAD), r#"{"point":{"x":-5,"y":0.125}}"#);
        }
    }

    #[test]
    fn every_leaf_path_selects_its_field() {
        // Goal: what `fields` lists, `select` takes. Method: each path alone.
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
    fn an_unknown_path_is_told_with_the_nearest_name() {
        // Goal: a misspelt path can be mended from the message. Method: a slip at each level.
        let expected = r#""totl": flatcap.test.Marked has no field "totl"; did you mean "total"?"#;
        assert_eq!(refused(&["totl"]), expected);
        let expected = r#""cores.times.usr": flatcap.test.Times has no field "usr"; did you mean "user"?"#;
        assert_eq!(refused(&["total", "cores.times.usr"]), expected);
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
        // Goal: damage outside the selection does not matter. Method: cut the payload's end, where the strings
        // and lists lie that were written first, and read only a scalar.
        let plan = marked().select(&["load"]).unwrap();
        let mut tally = Tally::default();
        plan.walk(MARKED_PAYLOAD, &mut tally).unwrap();
        assert_eq!(tally.calls, 2);
        let cut = &MARKED_PAYLOAD[..MARKED_PAYLOAD.len() - 8];
        assert!(marked().walk(cut, &mut Tally::default()).is_err());
        plan.walk(cut, &mut Tally::default()).unwrap();
    }
}
