//! The identity of a host, which is part of the names of its objects.

use std::fmt::Write as _;

use flatcap_format::consumer_names::file_stem;
use flatcap_format::host::HostName;
use ring::hmac;

/// The constant that is hashed with the machine id, so that the identity differs from other
/// identities that are derived from the machine id.
const PURPOSE: &[u8] = b"flatcap lake host identity v1";
/// Length of an identity, in bytes.
// A machine id has the same length.
const IDENTITY_BYTES: usize = 16;

/// Returns the identity of the host that recorded a segment. If an identity is configured, the
/// function returns this identity. Otherwise, the identity is derived from the machine id. If there
/// is no machine id, the identity is derived from the host's name. Returns `None` if the host has
/// no identity.
pub(crate) fn host_identity(host: &HostName, configured: Option<&str>) -> Option<String> {
    if let Some(configured) = configured {
        return Some(configured.to_owned());
    }
    match host.machine_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) {
        Some(machine_id) => Some(derived(machine_id)),
        None if host.name.is_empty() => None,
        // The prefix makes a host name different from every derived identity.
        None => Some(format!("name-{}", file_stem(&host.name))),
    }
}

/// Returns an identity that does not reveal the machine id (machine-id(5)).
fn derived(machine_id: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, machine_id.as_bytes());
    let tag = hmac::sign(&key, PURPOSE);
    tag.as_ref().iter().take(IDENTITY_BYTES).fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::is_plain;

    // Proves that an identity depends only on the machine id, does not contain the machine id, and
    // can be a part of a name.
    #[test]
    fn identities_are_derived() {
        let id = "4c4c4544004a35108052b7c04f4d5831";
        let host = |name: &str, machine_id: Option<&str>| HostName {
            name: name.to_owned(),
            machine_id: machine_id.map(str::to_owned),
            boot_id: None,
            labels: Vec::new(),
        };
        let own = host_identity(&host("web", Some(id)), None).unwrap();
        assert_eq!(host_identity(&host("other", Some(&format!("{id}\n"))), None).as_ref(), Some(&own));
        assert!(own.len() == 32 && is_plain(&own) && !own.contains(id), "{own}");
        assert_ne!(host_identity(&host("web", Some("4c4c")), None).unwrap(), own);
        assert_eq!(host_identity(&host("web", Some(id)), Some("web-1")).as_deref(), Some("web-1"));
        assert_eq!(host_identity(&host("../a b", None), None).as_deref(), Some("name-x._a_b"));
        assert_eq!(host_identity(&host("", Some("")), None), None);
    }
}
