//! The content of the metrics file, in the text format of Prometheus, version 0.0.4. The textfile
//! collector of `node_exporter` reads this file.

use std::fmt::{Display, Write as _};

/// Prefix of the name of each metric.
const PREFIX: &str = "flatcap_ship_";

/// Metrics, each with its help text and type.
#[derive(Debug, Default)]
pub(crate) struct MetricsText(String);

impl MetricsText {
    /// Adds the version of the program as a label. A version may contain letters, digits, `.`, `+`
    /// and `-`.
    pub(crate) fn version(&mut self, version: &str) {
        self.family("gauge", "info", "The program.");
        let _written = writeln!(self.0, "{PREFIX}info{{version=\"{version}\"}} 1");
    }

    /// Adds a value that only increases. The name of such a value ends in `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family("counter", name, help);
        self.value(name, value);
    }

    /// Adds a value that may increase and decrease.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family("gauge", name, help);
        self.value(name, value);
    }

    fn family(&mut self, kind: &str, name: &str, help: &str) {
        // Writing to a String does not fail.
        let _written = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    fn value(&mut self, name: &str, value: impl Display) {
        let _written = writeln!(self.0, "{PREFIX}{name} {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}
