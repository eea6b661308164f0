//! The last good configuration: kept in a file whenever one has taken effect, for a start at which the configuration is refused.
//!
//! The configuration that is attached to every segment cannot serve for this: it has no secrets, and which directory has the segments is
//! known only from a configuration that can be read.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::replan::InForce;
use crate::config::{Config, Origin, Source};
use crate::os::output::OutputDirectory;

/// First lines of the file.
const HEAD: &str = "\
# The configuration that flatcap recorded by last. Written at each start and reload that succeeds; a start whose configuration is
# refused records by it. Changes made here are lost: correct the configuration itself, then reload.
";

/// Where the last good configuration is kept, and whether this run was started by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGood {
    /// Its file. Only its owner may read it: it may hold secrets, as commands have them in their arguments.
    pub file: PathBuf,
    /// All that is wrong with the configuration that should have been recorded by; none if that one is in effect.
    pub refusal: Option<String>,
}

/// Writes the file.
#[derive(Debug)]
pub(super) struct Keeper {
    file: Option<PathBuf>,
    has_failed: bool, // said once until it succeeds
}

impl Keeper {
    /// For this file; without one nothing is kept.
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file, has_failed: false }
    }

    /// Keeps what is in force. A failure costs nothing now, so it is only a warning.
    pub(super) fn keep(&mut self, in_force: &InForce) {
        let Some(file) = &self.file else { return };
        let text = text(in_force.config(), |source| in_force.reads(source));
        match write(file, &text) {
            Ok(()) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                tracing::warn!(
                    file = %file.display(),
                    %error,
                    "cannot keep the configuration as the last good one: a later start with one that is refused has an older one or none"
                );
            }
        }
    }
}

/// A command whose configuration file others may change is not run (`sampling::sources::command`). The copy belongs to flatcap alone, so
/// from the copy it would be: only commands that are in use go into it.
fn text(config: &Config, is_read: impl Fn(&Source) -> bool) -> String {
    let mut config = config.clone();
    let runs_a_program = |source: &Source| {
        source.readout.as_ref().is_some_and(|readout| matches!(readout.origin, Origin::Command(_)))
    };
    config.sources.retain(|source| !runs_a_program(source) || is_read(source));
    format!("{HEAD}\n{}", config.to_toml())
}

/// Replaces the file as a whole: after a kill or a power cut it is the old one or the new one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().and_then(OsStr::to_str).ok_or(ErrorKind::InvalidFilename)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = OutputDirectory::create(parent.unwrap_or(Path::new(".")))?;
    let file = directory.begin_private(name.to_owned())?;
    file.append(text.as_bytes())?;
    file.publish(true)?;
    directory.sync()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the files are the test's own")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // Goal: the kept configuration is the one in force but for commands that are not run, and nobody else can read it. Method: one of two
    // commands in use; the file is written twice and read back.
    #[test]
    fn what_is_kept_can_be_read_back() {
        let given = "[source.load]\nperiod = \"7ms\"\n[source.command.used]\ncommand = [\"/bin/a\", \"--token\", \"x\"]\n";
        let distrusted = "[source.command.unused]\ncommand = [\"/bin/b\"]\n";
        let config = Config::parse("given.toml", &format!("{given}{distrusted}")).unwrap();
        let text = text(&config, |source| source.full_name() == "command.used");
        assert!(text.contains("--token\", \"x\""), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last-good.toml");
        write(&path, "an older one").unwrap();
        write(&path, &text).unwrap();
        let read = std::fs::read_to_string(&path).unwrap();
        assert_eq!(Config::parse("kept.toml", &read).unwrap(), Config::parse("given.toml", given).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
