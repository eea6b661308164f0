//! The hosts of recordings. Finds the host that `--host` names, and describes hosts for people.

use std::collections::BTreeMap;

use flatcap_format::replay::{HostIdentity, RecordedHost, RecordedHosts};
use flatcap_text::human;

use super::error::CliError;

/// Returns the host that the value of `--host` names.
///
/// # Errors
/// No host has this name, or several hosts have it. The message lists the names of all hosts.
pub(super) fn find_host(hosts: &RecordedHosts, wanted: &str) -> Result<HostIdentity, CliError> {
    hosts.find(wanted).map_err(|error| {
        let known = human::escaped_list(&error.known);
        CliError::Usage(format!("--host {wanted}: {}; they have {known}", error.why))
    })
}

/// Returns a line for each host with its labels. Also returns a line for each name that several
/// machines share.
pub(super) fn host_lines(hosts: &[RecordedHost]) -> Vec<String> {
    let mut lines: Vec<String> = hosts.iter().map(|host| format!("host: {}", described(host))).collect();
    let mut machines: BTreeMap<&str, usize> = BTreeMap::new();
    for host in hosts {
        *machines.entry(&host.identity.name).or_default() += 1;
    }
    for (name, machines) in machines.into_iter().filter(|(_, machines)| *machines > 1) {
        let name = human::escaped(name);
        lines.push(format!("host: {machines} machines are called {name}; --host takes a machine id, too"));
    }
    lines
}

/// Returns the name and labels of a host in readable form, such as `db1 (role=db, site=fra)`.
fn described(host: &RecordedHost) -> String {
    let labels: Vec<String> = host.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!(" ({})", labels.join(", ")) };
    human::escaped(&format!("{}{labels}", host.name)).into_owned()
}
