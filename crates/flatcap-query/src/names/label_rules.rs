//! Chooses the fields that the label of an element contains.
//!
//! A schema declares the identity of an element, which is longer than the name that people use for
//! the element. If two elements have the same label,
//! [`ElementNames::label`](crate::ElementNames::label) appends the rest of the identity.

/// The role of a field in the label of its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelRole {
    /// Used in the label only if other elements have the same label.
    Rest,
    /// The name.
    Name,
    /// The name, if the value is not a number. A value that is a number has the role `Number`.
    Text,
    /// The second part of the name, after a slash.
    Part,
    /// The second part of the name, if there is no `Part`.
    PartElse,
    /// A number, which the label contains in brackets.
    Number,
    /// A further string, which the label contains in braces.
    Braces,
}

/// The root table of a schema, the path of a list, and the roles of the list's fields in the label.
type ListRules = (&'static str, &'static str, &'static [(&'static str, LabelRole)]);

const SENSOR: &[(&str, LabelRole)] = &[
    ("place.chip_name", LabelRole::Name),
    ("place.label", LabelRole::Part),
    ("place.sensor", LabelRole::PartElse),
    ("place.chip", LabelRole::Number),
];
const OF_PROCESS: &[(&str, LabelRole)] = &[
    ("text", LabelRole::Name),
    ("path", LabelRole::Name),
    ("name", LabelRole::Name),
    ("pid", LabelRole::Number),
];

/// Rules for lists in this program's schemas that declare no identity, and whose first string does
/// not identify an element. The rules are found by root table and list.
const RULES: [ListRules; 16] = [
    ("flatcap.host.Hwmon", "temperatures", SENSOR),
    ("flatcap.host.Hwmon", "voltages", SENSOR),
    ("flatcap.host.Hwmon", "fans", SENSOR),
    ("flatcap.host.Hwmon", "powers", SENSOR),
    ("flatcap.host.Hwmon", "currents", SENSOR),
    ("flatcap.host.Hwmon", "energies", SENSOR),
    ("flatcap.host.Hwmon", "humidities", SENSOR),
    ("flatcap.host.Hwmon", "frequencies", SENSOR),
    ("flatcap.host.Thermal", "zones", &[("type", LabelRole::Name), ("zone", LabelRole::Number)]),
    ("flatcap.host.Buddy", "zones", &[("zone", LabelRole::Name), ("node", LabelRole::Number)]),
    ("flatcap.host.Perf", "cores", &[("event", LabelRole::Name), ("core", LabelRole::Number)]),
    (
        "flatcap.host.Perf",
        "processes",
        &[("name", LabelRole::Name), ("event", LabelRole::Part), ("process", LabelRole::Number)],
    ),
    ("flatcap.host.Ethtool", "statistics", &[("interface", LabelRole::Name), ("name", LabelRole::Part)]),
    ("flatcap.host.Process", "command_lines", OF_PROCESS),
    ("flatcap.host.Process", "groups", OF_PROCESS),
    ("flatcap.host.Process", "execs", OF_PROCESS),
];

/// A field that identifies or names an element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamingField<'s> {
    pub(crate) path: &'s str,
    pub(crate) is_text: bool,
    pub(crate) is_key: bool,
    /// Whether the field is the start time of the element and a part of its identity.
    pub(crate) is_time: bool,
}

/// For each of these fields of a list, returns its role in the labels of the list's elements.
pub(crate) fn label_rules(
    (root, list): (&str, &str),
    fields: &[NamingField<'_>],
    has_identity: bool,
) -> Vec<LabelRole> {
    if let Some((.., own)) = RULES.iter().find(|(of, own, _)| *of == root && *own == list) {
        let rule = |field: &NamingField<'_>| {
            own.iter().find(|(path, _)| *path == field.path).map_or(LabelRole::Rest, |(_, rule)| *rule)
        };
        return fields.iter().map(rule).collect();
    }
    let has_text = fields.iter().any(|field| field.is_text);
    let mut has_name = false;
    let rule = |field: &NamingField<'_>| match (field.is_text, has_identity) {
        (true, false) => LabelRole::Text,
        (true, true) if !std::mem::replace(&mut has_name, true) => LabelRole::Name,
        (true, true) if field.is_key => LabelRole::Braces,
        (false, true) if !field.is_time => LabelRole::Number,
        (false, false) if !has_text => LabelRole::Number,
        _ => LabelRole::Rest,
    };
    fields.iter().map(rule).collect()
}
