//! The users who may push.

use flatcap_os::local_socket::{PeerCredentials, account_number, own_account};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// The superuser.
const ROOT: u32 = 0;

/// Users and groups that may push. Root and the user of this process may always push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedAccounts {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl AllowedAccounts {
    /// Looks up entries of the form `user:NAME` and `group:NAME`, by name or number. Returns the
    /// accounts, and the entries that do not exist on this host.
    pub fn find(names: &[String]) -> (Self, Vec<String>) {
        let (own, _) = own_account();
        let mut accounts = Self { users: vec![own, ROOT], groups: Vec::new() };
        let mut unknown = Vec::new();
        for text in names {
            let (list, file, name) = match text.split_once(':') {
                Some(("user", name)) => (&mut accounts.users, PASSWD, name),
                Some(("group", name)) => (&mut accounts.groups, GROUP, name),
                _ => continue,
            };
            match name.parse().ok().or_else(|| account_number(file, name)) {
                Some(number) => list.push(number),
                None => unknown.push(text.clone()),
            }
        }
        (accounts, unknown)
    }

    /// Returns whether this peer may push.
    pub(super) fn permits(&self, peer: &PeerCredentials) -> bool {
        let in_group = |group: &u32| *group == peer.group || peer.groups.contains(group);
        self.users.contains(&peer.user) || self.groups.iter().any(in_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that users and groups are permitted by name and by number, that a supplementary group
    // is enough, and that all others are refused.
    #[test]
    fn accounts_are_let_in() {
        let names = ["user:4000000001", "group:4000000002", "group:root", "user:no such user"];
        let (accounts, unknown) = AllowedAccounts::find(&names.map(str::to_owned));
        assert_eq!(unknown, ["user:no such user"]);
        let peer = |user, group, groups: &[u32]| {
            accounts.permits(&PeerCredentials { user, group, groups: groups.to_vec(), process: None })
        };
        let other = 4_000_000_009;
        assert!(peer(4_000_000_001, other, &[]) && peer(other, 4_000_000_002, &[]));
        assert!(peer(other, other, &[7, 0]) && peer(own_account().0, other, &[]));
        assert!(!peer(other, other, &[7]) && !peer(4_000_000_002, other, &[]));
    }
}
