//! Which way leads to the wanted values? Dotted paths, followed once through a plan.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::bytes::WORD;
use super::compile::DEPTH_MAX;
use super::error::SchemaError;
use super::plan::{Element, Field, Kind, Object, Plan};
use super::projection::{Leaf, Projection, Slot, Wanted, Way};
use super::select::no_field;
use super::value::{Scalar, Value};

pub(super) fn project(plan: &Plan, paths: &[&str]) -> Result<Projection, SchemaError> {
    let mut wishes: Vec<Wish<'_>> = Vec::new();
    let mut known = HashMap::new();
    let mut copies = Vec::new();
    for (target, path) in paths.iter().enumerate() {
        match known.entry(*path) {
            Entry::Occupied(first) => copies.push((*first.get(), target)),
            Entry::Vacant(place) => {
                place.insert(target);
                wishes.push(Wish { path, rest: Some(path), target });
            }
        }
    }
    let slots = Compiler { plan }.table(plan.object(plan.root), &wishes, 0)?;
    let paths = paths.iter().map(|path| (*path).into()).collect();
    Ok(Projection { slots, copies: copies.into(), names: plan.enums.clone().into(), paths })
}

/// A path, what of it lies below the place at hand, and its position among the paths.
#[derive(Clone, Copy)]
struct Wish<'w> {
    path: &'w str,
    rest: Option<&'w str>,
    target: usize,
}

impl<'w> Wish<'w> {
    /// The next name or index, and the wish below it; none where the path ends.
    fn step(self) -> Option<(&'w str, Self)> {
        let (segment, rest) = match self.rest?.split_once('.') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (self.rest?, None),
        };
        Some((segment, Self { rest, ..self }))
    }

    /// The path up to the place at hand.
    fn so_far(self) -> &'w str {
        let below = self.rest.map_or(0, |rest| rest.len() + 1);
        self.path.get(..self.path.len().saturating_sub(below)).unwrap_or_default()
    }
}

/// The path that some wishes have in common, up to the place at hand.
fn so_far(wishes: &[Wish<'_>]) -> Box<str> {
    wishes.first().map_or("", |wish| wish.so_far()).into()
}

/// The positions of some wishes.
fn targets(wishes: &[Wish<'_>]) -> Box<[usize]> {
    wishes.iter().map(|wish| wish.target).collect()
}

/// The fields of an object that wishes name, and the wishes below each. `depth` counts the objects around this one.
fn named<'o, 'w>(
    object: &'o Object,
    wishes: &[Wish<'w>],
    depth: usize,
) -> Result<Vec<(&'o Field, Vec<Wish<'w>>)>, SchemaError> {
    let mut found: Vec<Vec<Wish<'w>>> = object.fields.iter().map(|_| Vec::new()).collect();
    for wish in wishes {
        if depth >= DEPTH_MAX {
            return Err(SchemaError::TooDeep { object: wish.path.to_owned(), limit: DEPTH_MAX });
        }
        let Some((name, below)) = wish.step() else {
            let (path, type_name) = (wish.path.to_owned(), object.name.to_string());
            return Err(SchemaError::NotSingle { path, type_name });
        };
        let field = object.fields.iter().position(|field| *field.name == *name);
        match field.and_then(|field| found.get_mut(field)) {
            Some(found) => found.push(below),
            None => return Err(no_field(wish.path, name, &object.name, &object.fields)),
        }
    }
    Ok(object.fields.iter().zip(found).filter(|(_, wishes)| !wishes.is_empty()).collect())
}

/// The elements of a list that wishes name, in their order, and the wishes below each.
fn indexed<'w>(field: &Field, wishes: &[Wish<'w>]) -> Result<BTreeMap<usize, Vec<Wish<'w>>>, SchemaError> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for wish in wishes {
        if field.text {
            return Err(not_single(field, wishes));
        }
        // Only one way to write a number, so that two paths are two values.
        let is_plain =
            |text: &str| text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
        let step = wish.step().filter(|(index, _)| is_plain(index));
        let step = step.and_then(|(index, below)| Some((index.parse().ok()?, below)));
        let Some((index, below)) = step else {
            return Err(SchemaError::NoIndex { path: wish.path.to_owned(), list: wish.so_far().to_owned() });
        };
        found.entry(index).or_default().push(below);
    }
    Ok(found)
}

struct Compiler<'c> {
    plan: &'c Plan,
}

impl Compiler<'_> {
    fn table(&self, object: &Object, wishes: &[Wish<'_>], depth: usize) -> Result<Box<[Slot]>, SchemaError> {
        let mut slots = Vec::new();
        for (field, wishes) in named(object, wishes, depth)? {
            let way = match field.kind {
                Kind::Scalar(scalar) => Way::Fixed([leaf(field, scalar, &wishes, 0)?].into()),
                Kind::Object(object) => self.object(object, &wishes, depth + 1)?,
                Kind::Vector(element) => self.vector(field, element, &wishes, depth)?,
                Kind::String | Kind::Array(..) => return Err(not_single(field, &wishes)),
            };
            let (default, path, below) = (field.default, so_far(&wishes), targets(&wishes));
            slots.push(Slot { at: field.at, way, default, path, below });
        }
        Ok(slots.into())
    }

    fn object(&self, object: usize, wishes: &[Wish<'_>], depth: usize) -> Result<Way, SchemaError> {
        let object = self.plan.object(object);
        if object.struct_bytes.is_none() {
            return Ok(Way::Table(self.table(object, wishes, depth)?));
        }
        let mut leaves = Vec::new();
        self.structure(object, wishes, Inner { at: 0, depth }, &mut leaves)?;
        Ok(Way::Fixed(leaves.into()))
    }

    fn vector(
        &self,
        field: &Field,
        element: Element,
        wishes: &[Wish<'_>],
        depth: usize,
    ) -> Result<Way, SchemaError> {
        let mut elements = Vec::new();
        for (index, wishes) in indexed(field, wishes)? {
            let way = match element {
                Element::Scalar(scalar) => Way::Fixed([leaf(field, scalar, &wishes, 0)?].into()),
                Element::Object(object) => self.object(object, &wishes, depth + 1)?,
                Element::String => return Err(not_single(field, &wishes)),
            };
            elements.push(Wanted { index, way, path: so_far(&wishes), below: targets(&wishes) });
        }
        Ok(Way::Vector { stride: self.stride(element), elements: elements.into() })
    }

    /// What is wanted of a struct, at fixed offsets: structs and arrays in it are only more of its bytes.
    fn structure(
        &self,
        object: &Object,
        wishes: &[Wish<'_>],
        Inner { at, depth }: Inner,
        leaves: &mut Vec<Leaf>,
    ) -> Result<(), SchemaError> {
        for (field, wishes) in named(object, wishes, depth)? {
            let at = at.saturating_add(field.at.into());
            match field.kind {
                Kind::Scalar(scalar) => leaves.push(leaf(field, scalar, &wishes, at)?),
                Kind::Object(object) => {
                    let inner = Inner { at, depth: depth + 1 };
                    self.structure(self.plan.object(object), &wishes, inner, leaves)?;
                }
                Kind::Array(element, length) => {
                    for (index, wishes) in indexed(field, &wishes)? {
                        if index >= length.into() {
                            return Err(not_in_array(field, index, &wishes));
                        }
                        let at = at.saturating_add(index.saturating_mul(self.stride(element)));
                        match element {
                            Element::Scalar(scalar) => leaves.push(leaf(field, scalar, &wishes, at)?),
                            Element::Object(object) => {
                                let inner = Inner { at, depth: depth + 1 };
                                self.structure(self.plan.object(object), &wishes, inner, leaves)?;
                            }
                            Element::String => return Err(not_single(field, &wishes)),
                        }
                    }
                }
                Kind::String | Kind::Vector(_) => return Err(not_single(field, &wishes)),
            }
        }
        Ok(())
    }

    /// Bytes from one element of a list to the next.
    fn stride(&self, element: Element) -> usize {
        match element {
            Element::Scalar(scalar) => scalar.size(),
            Element::String => WORD,
            Element::Object(object) => self.plan.object(object).struct_bytes.unwrap_or(WORD),
        }
    }
}

/// A struct within a struct.
#[derive(Clone, Copy)]
struct Inner {
    /// Offset in the outermost.
    at: usize,
    /// How many objects are around it.
    depth: usize,
}

/// A scalar: the end of its path, which is named once.
fn leaf(field: &Field, scalar: Scalar, wishes: &[Wish<'_>], at: usize) -> Result<Leaf, SchemaError> {
    for wish in wishes {
        if let Some((name, _)) = wish.step() {
            return Err(no_field(wish.path, name, scalar_name(field, scalar), &[]));
        }
    }
    let target = wishes.first().map_or(usize::MAX, |wish| wish.target);
    Ok(Leaf {
        at,
        scalar,
        absent: field.absent.and_then(|absent| match absent {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => Some(number.cast_unsigned()),
            _ => None,
        }),
        enumeration: field.enumeration,
        target,
        path: so_far(wishes),
    })
}

/// What an element or the field itself is called.
fn scalar_name(field: &Field, scalar: Scalar) -> &str {
    if field.is_list() { scalar.name() } else { &field.type_name }
}

fn not_single(field: &Field, wishes: &[Wish<'_>]) -> SchemaError {
    let path = wishes.first().map_or("", |wish| wish.path).to_owned();
    SchemaError::NotSingle { path, type_name: field.type_name.to_string() }
}

fn not_in_array(field: &Field, index: usize, wishes: &[Wish<'_>]) -> SchemaError {
    no_field(wishes.first().map_or("", |wish| wish.path), &index.to_string(), &field.type_name, &[])
}
