//! The last good configuration. It is saved to a file whenever a configuration has taken effect,
//! and a start whose configuration is refused uses it.
//!
//! The configuration that is attached to every segment cannot be used instead. It lacks the
//! secrets, and finding the segments needs the data directory, which only a readable configuration
//! states.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use flatcap_format::storage::linux::OutputDirectory;
use flatcap_os::program_guard::ProgramGuard;
use flatcap_sampling::TextOrigin;

use super::reconfigure::RunningConfig;
use crate::config::{Config, SourceConfig};

/// The first lines of the file, which are comments.
const HEADER: &str = "\
# The last configuration that flatcap recorded with. Written after each successful start and reload; used by a start whose
# configuration is refused. Changes made here are lost: correct the configuration itself, then reload.
";

/// The location of the last good configuration, and whether this run uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGood {
    /// The file. Only its owner may read it, because it may contain secrets, for example in the
    /// arguments of commands.
    pub file: PathBuf,
    /// All mistakes of the configured settings; `None` if the configured settings are in effect.
    pub refusal: Option<String>,
}

/// Writes the last good configuration.
#[derive(Debug)]
pub(super) struct LastGoodWriter {
    file: Option<PathBuf>,
    has_failed: bool, // the last write; logged once until one succeeds
}

impl LastGoodWriter {
    /// Creates a writer for this file; without a file nothing is saved.
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file, has_failed: false }
    }

    /// Saves the running configuration. A failure has no effect on this run, so it is only a
    /// warning.
    pub(super) fn save(&mut self, in_force: &RunningConfig) {
        let Some(file) = &self.file else { return };
        let text = text(in_force.config(), |source| in_force.is_reading(source));
        match write(file, &text) {
            Ok(()) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                tracing::warn!(
                    file = %file.display(),
                    %error,
                    "cannot save the configuration as the last good one: a later start with a refused configuration will use an older one or none"
                );
            }
        }
    }
}

/// Returns the text of the file. A command or the program of a rule is not run if other users may
/// change the configuration file that defines it (`sampling::sources::command`, `rules`). Only
/// flatcap can write the saved copy, so this check would accept every program in the copy.
/// Therefore only entries that are in use, or may be run, are saved.
fn text(config: &Config, is_read: impl Fn(&SourceConfig) -> bool) -> String {
    let mut config = config.clone();
    let runs_a_program = |source: &SourceConfig| {
        source.text_source.as_ref().is_some_and(|readout| matches!(readout.origin, TextOrigin::Command(_)))
    };
    config.sources.retain(|source| !runs_a_program(source) || is_read(source));
    for trigger in &mut config.triggers {
        let named_in = trigger.run_defined_in.clone();
        let guard = trigger.run.first().map(|program| ProgramGuard::new(program.into(), named_in));
        if guard.is_some_and(|guard| guard.check().is_err()) {
            trigger.run.clear();
        }
    }
    format!("{HEADER}\n{}", config.to_toml())
}

/// Replaces the file atomically. After a kill or a power failure, the file has either the old or
/// the new content.
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

    // Proves that the program of a rule is saved only if no other user could have changed the
    // configuration file that names it. Otherwise, the recorder would run a program that another
    // user has named.
    #[test]
    fn a_program_that_others_named_is_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("given.toml");
        let given = "[source.cpu]\n[trigger.x]\nwhen = \"cpu.running > 3\"\nrun = [\"/bin/true\", \"x\"]\n";
        std::fs::write(&path, given).unwrap();
        let saved = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            text(&crate::config::Layers::file_alone(&path).read().unwrap().config, |_| true)
        };
        let (ours, of_all) = (saved(0o600), saved(0o666));
        assert!(ours.contains("/bin/true"), "{ours}");
        assert!(!of_all.contains("/bin/true") && of_all.contains("cpu.running > 3"), "{of_all}");
    }

    // Proves that the saved configuration is the running one without the commands that must not be
    // run, and that only its owner can read the file.
    #[test]
    fn the_saved_configuration_can_be_read_back() {
        let given = "[source.load]\nperiod = \"7ms\"\n[source.command.used]\ncommand = [\"/bin/a\", \"--token\", \"x\"]\n";
        let unused = "[source.command.unused]\ncommand = [\"/bin/b\"]\n";
        let config = Config::parse("given.toml", &format!("{given}{unused}")).unwrap();
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
