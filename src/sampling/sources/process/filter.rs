//! Which processes are recorded: by name, by user, by control group.

use std::io::{self, ErrorKind};

use super::stat::NAME_BYTES;
use super::table::Slot;
use crate::config::{Pattern, Process};
use crate::os::host::HostRoot;
use crate::sampling::Selection;
use crate::sampling::sources::text;

/// The users' names.
pub(super) const PASSWD: &str = "etc/passwd";
/// Most users whose names are known.
const USERS_MAX: usize = 1 << 16;

/// What the configuration asks for. What it says of a process is kept with the process, until that has another name, user or
/// group.
#[derive(Debug)]
pub(super) struct Filter {
    names: Selection,
    users: Vec<Pattern>,
    groups: Vec<Pattern>,
    known_users: Vec<(u64, String)>,
}

impl Filter {
    /// Reads the users' names where they are asked for; a host without them has numbers alone. A name that nobody has is said.
    ///
    /// # Errors
    /// Names are all that is asked for, and nobody has one of them: nothing would ever be recorded.
    pub(super) fn new(names: Selection, config: &Process, host: &HostRoot) -> io::Result<Self> {
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
                let error = format!("no user {users} there; correct users, or write the user's number");
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

    /// Whether a process is recorded.
    #[inline]
    pub(super) fn wants(&self, slot: &mut Slot, name: &[u8; NAME_BYTES]) -> bool {
        if self.names.is_everything() && self.users.is_empty() && self.groups.is_empty() {
            return true;
        }
        let judged = Some((*name, slot.user));
        if slot.judged != judged {
            slot.is_wanted = self.judge(slot, name);
            slot.judged = judged;
        }
        slot.is_wanted
    }

    fn judge(&self, slot: &Slot, name: &[u8]) -> bool {
        if !self.names.wants(until_zero(name)) {
            return false;
        }
        let fits = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.fits(name));
        let is_user = self.users.is_empty() || fits(&self.users, &slot.user.to_string()) || {
            let mut known = self.known_users.iter().filter(|(user, _)| *user == slot.user);
            known.any(|(_, name)| fits(&self.users, name))
        };
        let group = slot.texts.as_ref().map(|texts| until_zero(&texts.group)).unwrap_or_default();
        // A path that is not UTF-8, or of no group at all, fits no pattern.
        let is_group =
            || std::str::from_utf8(group).is_ok_and(|group| !group.is_empty() && fits(&self.groups, group));
        is_user && (self.groups.is_empty() || is_group())
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// What is plainly a name, and nobody's. Anything else may fit a number.
fn missing_users<'p>(patterns: &'p [Pattern], known: &[(u64, String)]) -> Vec<&'p str> {
    let is_name = |text: &&str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        !is_number && !text.contains(['*', '?', '[', '{', '\\'])
    };
    let is_known = |name: &str| known.iter().any(|(_, known)| known == name);
    patterns.iter().map(Pattern::as_str).filter(is_name).filter(|name| !is_known(name)).collect()
}

/// Numbers and names of passwd(5).
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

    // Goal: names of users are read, and lines that are none passed over. Method: a small file.
    #[test]
    fn users_have_names() {
        let content = b"root:x:0:0:root:/root:/bin/sh\n# none\nbad:x:y:0::\nftp:x:14:50::/:\n";
        assert_eq!(users(content).collect::<Vec<_>>(), [(0, "root".to_owned()), (14, "ftp".to_owned())]);
    }

    // Goal: only what is plainly a name can be nobody's. Method: each kind of pattern.
    #[test]
    fn names_that_nobody_has() {
        let patterns = ["root", "roots", "r?ot*", "12", "[ab]", "{x,y}", "a\\b", "7up"];
        let patterns = patterns.map(|text| Pattern::new(text).unwrap());
        assert_eq!(missing_users(&patterns, &[(0, "root".to_owned())]), ["roots", "7up"]);
    }
}
