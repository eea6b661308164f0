//! The setup of a source: the description, which comes from the client, and the identity of the
//! client, which the kernel reports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flatcap_format::schema::PayloadVerifier;
use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_lane::SourceRegistration;
use flatcap_os::peer_process::PeerProcess;

use super::limits::DescribedSources;

/// Maximum length of a label's value, in bytes.
const LABEL_BYTES_MAX: usize = 255;
/// Labels that the recorder gives to each pushed source. If a client sends labels with these names,
/// the labels are dropped.
const OWN_LABELS: [&str; 5] = ["client", "uid", "executable", "cgroup", PROCESS_LABEL];
const PROCESS_LABEL: &str = "pid";

/// Labels that remain if the description of a source does not identify the instance of the
/// application.
const PROGRAM_LABELS: [&str; 3] = ["client", "uid", "executable"];
/// Labels that remain if the description of a source omits all labels that an application can
/// change between two starts.
const USER_LABELS: [&str; 2] = ["client", "uid"];

/// The description of a source, independent of the process and the thread that pushes it. Lanes
/// with the same description may use the same source of the recording, one lane after another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceSetup {
    uid: u32,
    name: String,
    root: String,
    period_ns: u64,
    labels: BTreeMap<String, String>,
    schema: Arc<[u8]>,
}

/// A description with which a lane may obtain a source of the recording.
#[derive(Debug, Clone)]
pub(super) struct SourceIdentity {
    pub(super) setup: Arc<SourceSetup>,
    /// The process id in the source's label, or `None` if the source has no such label.
    pub(super) process: Option<i32>,
    /// Limit on the use of this description. A new source gets the description only while the user
    /// has used at most 1 / `parts` of the user's share of the limits.
    pub(super) parts: u64,
}

/// A source that a client has registered.
#[derive(Debug, Clone)]
pub(super) struct RegisteredSource {
    pub(super) setup: Arc<SourceSetup>,
    /// The setup of this source with fewer labels, in two versions. The first version does not
    /// identify the instance of the application. The second version lacks all labels that an
    /// application can change between two starts.
    pub(super) reduced: [Arc<SourceSetup>; 2],
    /// The resources that the description uses in each segment.
    pub(super) described: DescribedSources,
    /// The verifier of payloads. All lanes of the client share the verifier, and one thread reads
    /// these lanes. `None` if the source is opaque.
    pub(super) verifier: Option<Arc<Mutex<PayloadVerifier>>>,
    /// Memory that the description needs, in bytes. A source of the run needs this amount twice,
    /// because the run has a second copy of the description.
    pub(super) bytes: u64,
}

impl RegisteredSource {
    /// Returns the possible descriptions of the source. The first description is complete and
    /// contains this process id, and each further description has fewer labels. With fewer labels,
    /// more starts of an application can share a source. So an application can be started any
    /// number of times, although source ids are never reused.
    pub(super) fn identities(&self, process: Option<i32>) -> [SourceIdentity; 4] {
        let [of_program, of_user] = &self.reduced;
        let identity = |setup: &Arc<SourceSetup>, process, parts| SourceIdentity {
            setup: Arc::clone(setup),
            process,
            parts,
        };
        [
            identity(&self.setup, process, 8),
            identity(&self.setup, None, 4),
            identity(of_program, None, 2),
            identity(of_user, None, 1),
        ]
    }
}

impl SourceSetup {
    /// Returns two copies with fewer labels. The first copy has only [`PROGRAM_LABELS`], and the
    /// second copy has only [`USER_LABELS`].
    pub(super) fn reduced(&self) -> [Arc<Self>; 2] {
        [&PROGRAM_LABELS[..], &USER_LABELS].map(|kept| {
            let mut reduced = self.clone();
            reduced.labels.retain(|name, _| kept.contains(&name.as_str()));
            Arc::new(reduced)
        })
    }

    /// Adds the client's identity, as reported by the kernel, to a registration.
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
        Self { uid, name, root, period_ns, labels, schema: schema.into() }
    }

    /// Returns the name of the source.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the descriptor of the source. The descriptor has the process id if the source
    /// belongs to a process.
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
            schema: self.schema.to_vec(),
            next_seq: 0,
        }
    }
}

/// Truncates a string to the maximum length of a label's value.
fn cut(text: &str) -> &str {
    let end = (0..=LABEL_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the setup of an opaque source of a user.
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

    /// Returns a source that a client has registered with this setup.
    pub(in crate::ingest) fn registered(setup: SourceSetup, described: DescribedSources) -> RegisteredSource {
        let reduced = setup.reduced();
        RegisteredSource { setup: Arc::new(setup), reduced, described, verifier: None, bytes: 0 }
    }

    // Proves that removing labels makes different descriptions equal. The labels of the user and
    // the client stay. Descriptions that differ in anything except labels always stay different.
    #[test]
    fn descriptions_are_reduced() {
        let of = |instance: &str, name| setup(7, name, &[("instance", instance)]).reduced();
        let [first, other, renamed] = [of("1", "orders"), of("2", "orders"), of("1", "trades")];
        assert_eq!(first, other);
        assert_ne!(first, renamed);
        let names: Vec<String> = first[1].info(None).labels.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["client", "uid"]);
    }

    // Proves that a client cannot set the labels that come from the kernel, that the client's other
    // labels are kept, and that values are truncated.
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
