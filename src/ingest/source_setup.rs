//! A source as its client has described it, with what the kernel says of the client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flatcap_format::schema::PayloadVerifier;
use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_lane::SourceRegistration;

use crate::os::peer_process::PeerProcess;

/// Longest value of a label, in bytes.
const LABEL_BYTES_MAX: usize = 255;
/// Labels that the recorder gives each pushed source. Those of clients with these names are left
/// out.
const OWN_LABELS: [&str; 5] = ["client", "uid", "executable", "cgroup", PROCESS_LABEL];
const PROCESS_LABEL: &str = "pid";

/// What a source is, whichever process and thread pushes it. Lanes that agree in it may use one
/// source of the recording, one after the other.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceSetup {
    uid: u32,
    name: String,
    root: String,
    period_ns: u64,
    labels: BTreeMap<String, String>,
    schema: Vec<u8>,
}

/// A source that a client has registered.
#[derive(Debug, Clone)]
pub(super) struct RegisteredSource {
    pub(super) setup: Arc<SourceSetup>,
    /// Shared by the lanes of the client, which one thread reads; none if it is opaque.
    pub(super) verifier: Option<Arc<Mutex<PayloadVerifier>>>,
    /// Memory that it takes, and that it takes again as a source of the run, in bytes.
    pub(super) bytes: u64,
}

impl SourceSetup {
    /// Adds to a registration what the kernel says of its client.
    pub(super) fn new(
        registration: SourceRegistration,
        schema: Vec<u8>,
        client: &str,
        (uid, process): (u32, Option<&PeerProcess>),
    ) -> Self {
        let SourceRegistration { period_ns, name, root, labels, .. } = registration;
        let own = |name: &String| OWN_LABELS.contains(&name.as_str());
        let mut labels: BTreeMap<String, String> =
            labels.into_iter().filter(|(name, _)| !own(name)).collect();
        let mut add = |name: &str, value: &str| labels.insert(name.to_owned(), cut(value).to_owned());
        add("client", client);
        add("uid", &uid.to_string());
        if let Some(program) = process.and_then(|process| process.executable.as_deref()) {
            add("executable", program);
        }
        if let Some(group) = process.and_then(|process| process.control_group.as_deref()) {
            add("cgroup", group);
        }
        Self { uid, name, root, period_ns, labels, schema }
    }

    /// Returns the name of the source.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length of the schema, in bytes.
    pub(super) fn schema_bytes(&self) -> u64 {
        self.schema.len() as u64
    }

    /// Returns the descriptor of the source, with the id of its process if it belongs to one.
    pub(super) fn info(&self, process: Option<i32>) -> SourceInfo {
        let mut labels: Vec<(String, String)> =
            self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        labels.extend(process.map(|process| (PROCESS_LABEL.to_owned(), process.to_string())));
        SourceInfo {
            id: 0,
            name: self.name.clone(),
            labels,
            kind: SourceKind::Host,
            period_ns: self.period_ns,
            root: self.root.clone(),
            schema: self.schema.clone(),
            next_seq: 0,
        }
    }
}

/// Cuts a text to the length of a label's value.
fn cut(text: &str) -> &str {
    let end = (0..=LABEL_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An opaque source of a user.
    pub(in crate::ingest) fn setup(uid: u32, name: &str, labels: &[(&str, &str)]) -> SourceSetup {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let registration = SourceRegistration {
            number: 0,
            period_ns: 0,
            name: name.to_owned(),
            root: String::new(),
            labels: labels.iter().map(owned).collect(),
        };
        SourceSetup::new(registration, Vec::new(), "test", (uid, None))
    }

    // Proves that a client cannot choose the labels that the kernel vouches for, that its others
    // are kept, and that values are cut.
    #[test]
    fn the_kernels_labels_are_the_kernels() {
        let labels = [("uid", "0"), ("pid", "1"), ("cgroup", "/"), ("executable", "x"), ("team", "payments")];
        let info = setup(7, "orders", &labels).info(Some(4711));
        let found: Vec<_> = info.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("client", "test"), ("team", "payments"), ("uid", "7"), ("pid", "4711")]);
        assert_eq!(setup(7, "orders", &[]).info(None).labels.len(), 2);
        let long = "\u{e4}".repeat(200);
        assert_eq!(cut(&long).len(), 254);
    }
}
