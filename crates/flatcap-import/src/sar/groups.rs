//! Groups of statistics, with the fields that each group has in a whole file.

use std::collections::BTreeMap;

use flatcap_format::schema::{MetricKind, NewContent, NewField, NewTable, SchemaError, binary_schema};

use super::value::SarValue;
use crate::field_name::{field_name, field_names};
use crate::payload::{PayloadBuilder, PayloadValue};

/// Maximum number of groups of a host. sadf 12 has about sixty.
const GROUPS_MAX: usize = 512;
/// Maximum number of fields of a group. Groups of interrupts have a field per processor.
const FIELDS_MAX: usize = 4096;
/// Minimum ratio of numbers to other values in a numeric field. The ratio is the same as for CSV
/// files.
const NUMBERS_PER_OTHER: u64 = 8;
/// Full names of the tables of a group.
const ROOT: &str = "flatcap.imported.Sar";
const ELEMENT: &str = "flatcap.imported.SarElement";

/// The groups of one host.
#[derive(Debug, Default)]
pub(super) struct SarGroups {
    by_name: BTreeMap<String, SarGroup>,
    /// Number of groups and values left out because of the limits.
    pub(super) left_out: u64,
}

/// A group, which is an object or a list of objects. The first field of an object in a list
/// identifies the object.
#[derive(Debug, Default)]
pub(super) struct SarGroup {
    is_list: bool,
    fields: Vec<SarField>,
    positions: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct SarField {
    /// The title in the document. The title of a field of a nested object is appended to the
    /// object's title with an underscore.
    title: String,
    /// The kind of the field, or `None` until the field has a value.
    kind: Option<SarKind>,
    /// The widest kind among all values, and the widest kind among the numbers.
    widest: Option<SarKind>,
    widest_number: Option<SarKind>,
    numbers: u64,
    /// Number of strings and bools.
    others: u64,
}

/// Kinds of values, from the narrowest to the widest. A field has the widest kind of its values. If
/// nearly all values are numbers, the field is numeric, and other values are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SarKind {
    Bool,
    Unsigned,
    Signed,
    Float,
    Text,
}

/// A group in an entry, with its name and elements. A group that is not a list has one element.
pub(super) struct FoundGroup<'v> {
    pub(super) name: String,
    is_list: bool,
    elements: Vec<&'v SarValue>,
}

/// Returns the groups of an entry of statistics. In an object of objects, such as `network`, each
/// member is a group.
pub(super) fn groups_of(entry: &SarValue) -> Vec<FoundGroup<'_>> {
    let mut found = Vec::new();
    let SarValue::Object(members) = entry else { return found };
    for (name, value) in members.iter().filter(|(name, _)| name != "timestamp") {
        match value {
            SarValue::Object(inner)
                if !inner.is_empty() && inner.iter().all(|(_, value)| is_group(value)) =>
            {
                found.extend(inner.iter().filter_map(|(name, value)| group_of(name, value)));
            }
            value => found.extend(group_of(name, value)),
        }
    }
    found
}

fn is_group(value: &SarValue) -> bool {
    match value {
        SarValue::Object(_) => true,
        SarValue::List(elements) => elements.iter().all(|element| matches!(element, SarValue::Object(_))),
        _ => false,
    }
}

fn group_of<'v>(name: &str, value: &'v SarValue) -> Option<FoundGroup<'v>> {
    let (is_list, elements) = match value {
        SarValue::Object(_) => (false, vec![value]),
        SarValue::List(elements) if is_group(value) => (true, elements.iter().collect()),
        _ => return None,
    };
    Some(FoundGroup { name: name.to_owned(), is_list, elements })
}

/// Calls a function with the title and value of each field of an element.
fn each_field<'v>(element: &'v SarValue, prefix: &str, visit: &mut dyn FnMut(String, &'v SarValue)) {
    let SarValue::Object(members) = element else { return };
    for (name, value) in members {
        let title = if prefix.is_empty() { name.clone() } else { format!("{prefix}_{name}") };
        match value {
            SarValue::Object(_) => each_field(value, &title, visit),
            // Lists inside elements, such as the frequencies of a processor, are not imported.
            SarValue::List(_) => {}
            _ => visit(title, value),
        }
    }
}

impl SarGroups {
    /// Adds the fields of an entry.
    pub(super) fn add(&mut self, entry: &SarValue) {
        for found in groups_of(entry) {
            if self.by_name.len() >= GROUPS_MAX && !self.by_name.contains_key(&found.name) {
                self.left_out += 1;
                continue;
            }
            let group = self.by_name.entry(found.name).or_default();
            group.is_list |= found.is_list;
            for element in found.elements {
                each_field(element, "", &mut |title, value| self.left_out += group.add(title, value));
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&SarGroup> {
        self.by_name.get(name)
    }
}

impl SarGroup {
    /// Adds a value. Returns 1 if the value was omitted because of the limit on fields, otherwise
    /// 0.
    fn add(&mut self, title: String, value: &SarValue) -> u64 {
        let at = match self.positions.get(&title) {
            Some(at) => *at,
            None if self.fields.len() >= FIELDS_MAX => return 1,
            None => {
                self.positions.insert(title.clone(), self.fields.len());
                self.fields.push(SarField::new(title));
                self.fields.len() - 1
            }
        };
        if let Some(field) = self.fields.get_mut(at) {
            field.add(value);
        }
        0
    }

    /// Returns the schema of the group, and the full name of its root table.
    ///
    /// # Errors
    /// Too many fields.
    pub(super) fn schema(&self, name: &str) -> Result<(Vec<u8>, &'static str), SchemaError> {
        let titles: Vec<String> = self.fields.iter().map(|field| field.title.clone()).collect();
        let names = field_names(&titles);
        let own = self.fields.iter().zip(names).enumerate();
        let fields: Vec<NewField> =
            own.map(|(at, (field, own))| field.described(name, own, self.is_list && at == 0)).collect();
        let tables = if self.is_list {
            let list = field_name(name);
            let list = NewField::new(list, NewContent::Tables(ELEMENT.to_owned()));
            vec![
                NewTable { name: ROOT.to_owned(), fields: vec![list] },
                NewTable { name: ELEMENT.to_owned(), fields },
            ]
        } else {
            vec![NewTable { name: ROOT.to_owned(), fields }]
        };
        Ok((binary_schema(&tables, ROOT)?, ROOT))
    }

    /// Returns the payload of a group in an entry. A value whose kind does not fit its field is
    /// left out, and its field is added to `misfits`.
    pub(super) fn payload<'b>(
        &self,
        found: &FoundGroup<'_>,
        builder: &'b mut PayloadBuilder,
        misfits: &mut Vec<String>,
    ) -> &'b [u8] {
        if !self.is_list {
            let first = found.elements.first();
            let values = first.map(|element| self.values(element, misfits)).unwrap_or_default();
            return builder.table(&values);
        }
        builder.begin_list();
        for element in &found.elements {
            builder.add_element(&self.values(element, misfits));
        }
        builder.finish_list()
    }

    fn values<'v>(&self, element: &'v SarValue, misfits: &mut Vec<String>) -> Vec<Option<PayloadValue<'v>>> {
        let mut values = vec![None; self.fields.len()];
        each_field(element, "", &mut |title, value| {
            let Some(at) = self.positions.get(&title) else { return };
            if let (Some(place), Some(field)) = (values.get_mut(*at), self.fields.get(*at)) {
                *place = field.kind.and_then(|kind| kind.value(value));
                if place.is_none() && SarKind::of(value).is_some() {
                    misfits.push(title);
                }
            }
        });
        values
    }
}

impl SarField {
    fn new(title: String) -> Self {
        Self { title, kind: None, widest: None, widest_number: None, numbers: 0, others: 0 }
    }

    fn add(&mut self, value: &SarValue) {
        let kind = SarKind::of(value);
        match kind {
            Some(SarKind::Unsigned | SarKind::Signed | SarKind::Float) => {
                self.numbers += 1;
                self.widest_number = self.widest_number.max(kind);
            }
            Some(SarKind::Bool | SarKind::Text) => self.others += 1,
            None => {}
        }
        self.widest = self.widest.max(kind);
        let are_numbers = self.numbers > 0 && self.others * NUMBERS_PER_OTHER <= self.numbers;
        self.kind = if are_numbers { self.widest_number } else { self.widest };
    }

    fn described(&self, group: &str, name: String, is_identity: bool) -> NewField {
        let content = self.kind.map_or(NewContent::Unsigned, SarKind::content);
        let kind = match content {
            NewContent::Text => MetricKind::Text,
            _ if is_identity => MetricKind::State,
            NewContent::Bool => MetricKind::State,
            _ => MetricKind::Gauge,
        };
        let documentation =
            if name == self.title { String::new() } else { format!("{:?} of sadf.", self.title) };
        let unit =
            Some(kind).filter(|kind| *kind == MetricKind::Gauge).and_then(|_| unit_of(group, &self.title));
        NewField {
            unit: unit.map(str::to_owned),
            kind,
            is_identity,
            documentation,
            ..NewField::new(name, content)
        }
    }
}

/// Returns the unit of a value according to sar(1). Returns `None` if the value is a plain number,
/// or a number per second.
fn unit_of(group: &str, title: &str) -> Option<&'static str> {
    let ends = |end: &str| title.ends_with(end);
    match group {
        _ if ends("-percent") => Some("%"),
        "cpu-load" | "cpu-load-all" | "psi-cpu" | "psi-io" | "psi-mem" => Some("%"),
        "memory" | "hugepages" => Some("KiB"),
        "disk" | "net-dev" if ends("kB") => Some("KiB/s"),
        "disk" if ends("await") => Some("ms"),
        "cpu-frequency" | "cpu-weighted-frequency" => Some("MHz"),
        "filesystems" if title.starts_with("MB") => Some("MiB"),
        _ => None,
    }
}

impl SarKind {
    /// Returns the kind of a value, or `None` if the value is missing, a list or an object.
    fn of(value: &SarValue) -> Option<Self> {
        match value {
            SarValue::Bool(_) => Some(Self::Bool),
            SarValue::Unsigned(_) => Some(Self::Unsigned),
            SarValue::Signed(_) => Some(Self::Signed),
            SarValue::Float(_) => Some(Self::Float),
            SarValue::Text(_) => Some(Self::Text),
            SarValue::Null | SarValue::List(_) | SarValue::Object(_) => None,
        }
    }

    fn content(self) -> NewContent {
        match self {
            Self::Bool => NewContent::Bool,
            Self::Unsigned => NewContent::Unsigned,
            Self::Signed => NewContent::Signed,
            Self::Float => NewContent::Float,
            Self::Text => NewContent::Text,
        }
    }

    /// Converts a value to this kind. Returns `None` if the value is missing or cannot be
    /// converted.
    #[allow(clippy::cast_precision_loss, reason = "sadf prints two decimals, and whole numbers for zero")]
    fn value(self, value: &SarValue) -> Option<PayloadValue<'_>> {
        Some(match (self, value) {
            (Self::Text, SarValue::Text(text)) => PayloadValue::Text(text),
            (Self::Float, SarValue::Float(number)) => PayloadValue::Float(*number),
            (Self::Float, SarValue::Unsigned(number)) => PayloadValue::Float(*number as f64),
            (Self::Float, SarValue::Signed(number)) => PayloadValue::Float(*number as f64),
            (Self::Signed, SarValue::Signed(number)) => PayloadValue::Signed(*number),
            (Self::Signed, SarValue::Unsigned(number)) => PayloadValue::Signed(i64::try_from(*number).ok()?),
            (Self::Unsigned, SarValue::Unsigned(number)) => PayloadValue::Unsigned(*number),
            (Self::Bool, SarValue::Bool(value)) => PayloadValue::Bool(*value),
            _ => return None,
        })
    }
}
