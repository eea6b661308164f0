//! Selects the processes to record, by name, by user and by control group.

use std::io::{self, ErrorKind};

use flatcap_os::host::HostRoot;

use super::names::PASSWD;
use super::slot::ProcessSlot;
use super::stat::NAME_BYTES;
use crate::sources::text;
use crate::{NameFilter, Pattern, ProcessConfig};

/// Maximum number of users whose names are read from the file.
const USERS_MAX: usize = 1 << 16;

/// The process filter of the configuration. A decision on a process is kept until the process has
/// another name, user or group.
#[derive(Debug)]
pub(super) struct ProcessFilter {
    names: NameFilter,
    users: Vec<Pattern>,
    groups: Vec<Pattern>,
    known_users: Vec<(u64, String)>,
}

impl ProcessFilter {
    /// Reads the names of users if the configuration has any patterns for users. On a host without
    /// the file of user names, users have only ids. Logs configured names that no user has.
    ///
    /// # Errors
    /// Fails if all configured users are given by name and none of them exists on the host, because
    /// then no process would be recorded.
    pub(super) fn new(names: NameFilter, config: &ProcessConfig, host: &HostRoot) -> io::Result<Self> {
        let mut known_users = Vec::new();
        if !config.users.is_empty()
            && let Ok(mut file) = host.open(PASSWD)
            && file.read().is_ok()
        {
            known_users.extend(users(file.content()).take(USERS_MAX));
        }
        let missing = missing_users(&config.users, &known_users);
        if !missing.is_empty() {
            let users = missing.join(", ");
            if missing.len() == config.users.len() {
                let error = format!("no such user: {users}; correct `users`, or use numeric user ids");
                return Err(io::Error::new(ErrorKind::NotFound, error));
            }
            tracing::warn!(
                source = "process",
                "users: {users}: not in {}; processes of the other users are recorded",
                host.path(PASSWD).display()
            );
        }
        Ok(Self { names, users: config.users.clone(), groups: config.cgroups.clone(), known_users })
    }

    /// Returns whether a process is recorded.
    #[inline]
    pub(super) fn wants(&self, slot: &mut ProcessSlot, name: &[u8; NAME_BYTES]) -> bool {
        if self.names.matches_all() && self.users.is_empty() && self.groups.is_empty() {
            return true;
        }
        let decided_for = Some((*name, slot.user));
        if slot.decided_for != decided_for {
            slot.is_wanted = self.decide(slot, name);
            slot.decided_for = decided_for;
        }
        slot.is_wanted
    }

    fn decide(&self, slot: &ProcessSlot, name: &[u8]) -> bool {
        if !self.names.matches(until_zero(name)) {
            return false;
        }
        let fits = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let is_user = self.users.is_empty() || fits(&self.users, &slot.user.to_string()) || {
            let mut known = self.known_users.iter().filter(|(user, _)| *user == slot.user);
            known.any(|(_, name)| fits(&self.users, name))
        };
        let group = slot.texts.as_ref().map(|texts| texts.group.as_slice()).unwrap_or_default();
        // Neither a path that is not UTF-8 nor a missing group matches a pattern.
        let is_group =
            || std::str::from_utf8(group).is_ok_and(|group| !group.is_empty() && fits(&self.groups, group));
        is_user && (self.groups.is_empty() || is_group())
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the patterns that are plain names and match no user. Other patterns may match the id of
/// a user.
fn missing_users<'p>(patterns: &'p [Pattern], known: &[(u64, String)]) -> Vec<&'p str> {
    let is_name = |text: &&str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        !is_number && !text.contains(['*', '?', '[', '{', '\\'])
    };
    let is_known = |name: &str| known.iter().any(|(_, known)| known == name);
    patterns.iter().map(Pattern::as_str).filter(is_name).filter(|name| !is_known(name)).collect()
}

/// Parses the ids and names of passwd(5).
fn users(content: &[u8]) -> impl Iterator<Item = (u64, String)> {
    content.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = std::str::from_utf8(fields.next()?).ok()?;
        let user = fields.nth(1).and_then(text::number)?;
        Some((user, name.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that names of users are read and invalid lines are skipped.
    #[test]
    fn users_have_names() {
        let content = b"root:x:0:0:root:/root:/bin/sh\n# none\nbad:x:y:0::\nftp:x:14:50::/:\n";
        assert_eq!(users(content).collect::<Vec<_>>(), [(0, "root".to_owned()), (14, "ftp".to_owned())]);
    }

    // Proves that a pattern is reported as an unknown name only if it can be nothing but a name.
    #[test]
    fn unknown_names_are_found() {
        let patterns = ["root", "roots", "r?ot*", "12", "[ab]", "{x,y}", "a\\b", "7up"];
        let patterns = patterns.map(|text| Pattern::new(text).unwrap());
        assert_eq!(missing_users(&patterns, &[(0, "root".to_owned())]), ["roots", "7up"]);
    }
}
