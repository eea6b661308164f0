//! The labels of a series.

use std::collections::BTreeMap;

/// The name of the label that contains the metric's name.
pub(crate) const NAME: &str = "__name__";

/// The labels of a series, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    pub(crate) fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        // In PromQL a label with an empty value is the same as no label.
        Self(pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Returns the names and values of the labels, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a label. As in Prometheus, the value is empty if there is no such
    /// label.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Returns these labels without the metric's name, for a computed value.
    pub(crate) fn without_name(&self) -> Self {
        self.without(&[])
    }

    /// Returns these labels without the labels `names` and without the metric's name.
    pub(crate) fn without(&self, names: &[String]) -> Self {
        let is_kept = |name: &str| name != NAME && !names.iter().any(|other| other == name);
        Self(self.0.iter().filter(|(name, _)| is_kept(name)).map(owned).collect())
    }

    /// Returns these labels without the labels `names`, but with the metric's name.
    pub(crate) fn except(&self, names: &[String]) -> Self {
        let is_kept = |name: &str| !names.iter().any(|other| other == name);
        Self(self.0.iter().filter(|(name, _)| is_kept(name)).map(owned).collect())
    }

    /// Returns only the labels whose names are in `names`.
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let is_kept = |name: &str| names.iter().any(|other| other == name);
        Self(self.0.iter().filter(|(name, _)| is_kept(name)).map(owned).collect())
    }
}

impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}

fn owned((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}
