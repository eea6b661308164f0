//! Classifies the elements of a list by the fields of the list.

use flatcap_format::schema::MetricKind;
use flatcap_query::FieldInfo;

/// Kind of the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementShape {
    /// Processes, which have a process id and memory.
    Processes,
    /// Control groups, which have a path and memory.
    ControlGroups,
    /// Disks, which have counts of sectors.
    Disks,
    /// Network interfaces.
    Interfaces,
}

impl ElementShape {
    /// Returns the kind of the elements of a list, or `None` if the kind is unknown. The fields
    /// below the list determine the kind.
    pub(super) fn of(list: &str, fields: &[&FieldInfo]) -> Option<Self> {
        let has = |name: &str| fields.iter().any(|field| leaf_of(&field.path) == name);
        let has_unit = |unit: &str, kind: MetricKind| {
            fields.iter().any(|field| field.unit.as_deref() == Some(unit) && field.kind == kind)
        };
        let holds_bytes = has_unit("bytes", MetricKind::Gauge);
        let counts = fields.iter().any(|field| field.kind == MetricKind::Counter);
        if has("pid") && counts && holds_bytes {
            Some(Self::Processes)
        } else if has("path") && counts && holds_bytes {
            Some(Self::ControlGroups)
        } else if has_unit("sectors", MetricKind::Counter) {
            Some(Self::Disks)
        } else if list == "interfaces" && counts {
            Some(Self::Interfaces)
        } else {
            None
        }
    }
}

/// Returns the part of a path that follows the list in the path.
pub(super) fn leaf_of(path: &str) -> &str {
    path.rsplit_once("[*].").map_or(path, |(_, leaf)| leaf)
}

/// Returns the list of a path, for example `devices` for `devices[*].reads`. Returns `None` for a
/// path without a list or with nested lists.
pub(super) fn list_of(path: &str) -> Option<&str> {
    let (list, leaf) = path.split_once("[*].")?;
    (!leaf.contains("[*]")).then_some(list)
}
