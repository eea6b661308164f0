//! `command`: values in the output of a program that the configuration names, one source per
//! program.
//!
//! The program runs with the recorder's rights, so only root and the recorder's user may have
//! permission to change what runs. `os::program_guard` checks this rule before each run.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::program::{KillHandle, ProgramEnd, ProgramRun, run};
use flatcap_os::program_guard::ProgramGuard;
use flatcap_schemas::host::{Command, CommandArgs, CommandEnd};

use super::text::ABSENT;
use super::text_values::{ABSENT_INTEGER, TextValues};
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, OwnSettings, ReadError, Sampler, TextOrigin};

/// `include` and `exclude` match the names of values. Starting a program allocates memory in this
/// process too.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "command",
    about: "Values in the output of a program that the configuration names.",
    root: "flatcap.host.Command",
    schema: include_bytes!("../../../../generated/host/command.bfbs"),
    // Starting a program takes a millisecond or more.
    period: Duration::from_secs(10),
    is_on_by_default: true,
    may_block: true,
    refresh: "at each sample, which runs the program",
    selects: "names of values",
    keys: OwnKeys::Command,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let invalid = || Unavailable::of(io::ErrorKind::InvalidInput.into());
    let OwnSettings::Text(text, instance) = context.settings.own else { return Err(invalid()) };
    let TextOrigin::Command(command) = &text.origin else { return Err(invalid()) };
    let program = command.argv.first().map(PathBuf::from).unwrap_or_default();
    let guard = ProgramGuard::new(program, command.defined_in.clone());
    guard.check().map_err(|distrust| Unavailable::of(io::Error::other(distrust.to_string())))?;
    Ok(OpenedSampler::built(CommandSampler {
        guard,
        words: command.argv.clone(),
        timeout_ns: nanoseconds(command.timeout),
        kill_handle: KillHandle::default(),
        output: Vec::new(),
        outcome: CommandOutcome::NotTrusted,
        values: TextValues::new(SPEC.name, (&text.format, instance), context.selection()),
    }))
}

#[derive(Debug)]
struct CommandSampler {
    guard: ProgramGuard,
    words: Vec<String>,
    timeout_ns: u64,
    kill_handle: KillHandle,
    output: Vec<u8>, // reused
    outcome: CommandOutcome,
    values: TextValues,
}

/// The result of a run.
#[derive(Debug, Clone, Copy)]
enum CommandOutcome {
    Ended(ProgramRun),
    NotStarted(Option<i32>), // the kernel's error number, if any
    NotTrusted,
}

impl Sampler for CommandSampler {
    /// Never fails. The sample records how the run ended.
    fn read(&mut self) -> Result<(), ReadError> {
        self.output.clear();
        self.outcome = if self.guard.check().is_err() {
            CommandOutcome::NotTrusted
        } else {
            match run(&self.words, self.timeout_ns, &self.kill_handle, &mut self.output) {
                Ok(run) => CommandOutcome::Ended(run),
                Err(error) => CommandOutcome::NotStarted(error.raw_os_error()),
            }
        };
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = match self.outcome {
            CommandOutcome::Ended(run) => {
                if matches!(run.end, ProgramEnd::Exited(_))
                    && self.output.last().is_some_and(|byte| *byte != b'\n')
                {
                    // If a program exits by itself, its last line is complete even without a
                    // newline.
                    self.output.push(b'\n');
                }
                let printed = self.values.parse(&self.output, builder);
                printed
                    | match run.end {
                        ProgramEnd::Exited(0) => Incomplete::NONE,
                        ProgramEnd::Exited(_) | ProgramEnd::Signalled(_) => Incomplete::UNREADABLE,
                        ProgramEnd::TimedOut => Incomplete::CUT,
                        ProgramEnd::OutputTooLong => Incomplete::CUT | Incomplete::TOO_MANY,
                    }
            }
            CommandOutcome::NotStarted(_) => Incomplete::MISSING,
            CommandOutcome::NotTrusted => Incomplete::DENIED,
        };
        if !matches!(self.outcome, CommandOutcome::Ended(_)) {
            self.values.clear();
        }
        let values = Some(self.values.rows(builder));
        let counters = self.values.counters(builder);
        let gauges = self.values.gauges(builder);
        let skipped = self.values.skipped();
        let outcome = arguments(self.outcome, self.output.len());
        let root = Command::create(builder, &CommandArgs { values, counters, gauges, skipped, ..outcome });
        builder.finish_minimal(root);
        incomplete
    }

    fn kill_handle(&self) -> Option<KillHandle> {
        Some(self.kill_handle.clone())
    }
}

/// Builds all fields except the values.
fn arguments(outcome: CommandOutcome, printed: usize) -> CommandArgs<'static> {
    let mut arguments = CommandArgs {
        values: None,
        counters: None,
        gauges: None,
        skipped: 0,
        end: CommandEnd::NotTrusted,
        exit_status: ABSENT_INTEGER,
        signal: ABSENT,
        error: ABSENT,
        duration: ABSENT,
        output: ABSENT,
    };
    match outcome {
        CommandOutcome::Ended(run) => {
            arguments.duration = run.duration_ns;
            arguments.output = printed as u64;
            arguments.end = match run.end {
                ProgramEnd::Exited(status) => {
                    arguments.exit_status = i64::from(status);
                    CommandEnd::Exited
                }
                ProgramEnd::Signalled(signal) => {
                    arguments.signal = u64::from(signal.unsigned_abs());
                    CommandEnd::Signalled
                }
                ProgramEnd::TimedOut => CommandEnd::TimedOut,
                ProgramEnd::OutputTooLong => CommandEnd::PrintedTooMuch,
            };
        }
        CommandOutcome::NotStarted(error) => {
            arguments.end = CommandEnd::NotStarted;
            arguments.error = error.map_or(ABSENT, |error| u64::from(error.unsigned_abs()));
        }
        CommandOutcome::NotTrusted => {}
    }
    arguments
}

/// Converts a timeout, which is at most one minute, to nanoseconds.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own that come and go")]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use flatcap_os::host::HostRoot;
    use flatcap_os::program_guard::{OwnerAndMode, Provenance};

    use super::*;
    use crate::sources::tests::open_sampler;
    use crate::test_settings::TestSettings;

    fn keys(script: &str, more: &str) -> String {
        format!("command = [\"/bin/sh\", \"-c\", '''{script}''']\n{more}")
    }

    /// Returns how the program ended (kind of end, exit status and signal), the values, and the
    /// reasons why the sample is incomplete.
    fn sampled(script: &str, more: &str) -> (CommandEnd, [u64; 2], Vec<(f64, i64)>, Incomplete) {
        let mut sampler = open_sampler(&SPEC, &keys(script, more), Path::new("/")).unwrap();
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let incomplete = sampler.build(0, &mut builder);
        let command = flatbuffers::root::<Command<'_>>(builder.finished_data()).unwrap();
        assert!(command.duration() > 10_000 && command.error() == ABSENT);
        let values = command.values().iter().map(|value| (value.number(), value.integer())).collect();
        (command.end(), [command.exit_status().cast_unsigned(), command.signal()], values, incomplete)
    }

    // Proves that each kind of end of a run is recorded, together with the output until then.
    #[test]
    fn every_end_is_recorded() {
        let one = vec![(1.0, 1)];
        let no_status = ABSENT_INTEGER.cast_unsigned();
        let cases = [
            ("echo a 1", CommandEnd::Exited, [0, ABSENT], Incomplete::NONE),
            ("printf 'a 1'", CommandEnd::Exited, [0, ABSENT], Incomplete::NONE),
            ("echo a 1; exit 7", CommandEnd::Exited, [7, ABSENT], Incomplete::UNREADABLE),
            ("echo a 1; kill -15 $$", CommandEnd::Signalled, [no_status, 15], Incomplete::UNREADABLE),
            ("echo a 1; printf 'b 2'; sleep 9", CommandEnd::TimedOut, [no_status, ABSENT], Incomplete::CUT),
        ];
        for (script, end, status, incomplete) in cases {
            let found = sampled(script, "timeout = \"300ms\"");
            assert_eq!(found, (end, status, one.clone(), incomplete), "{script}");
        }
        let (end, _, values, incomplete) =
            sampled("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1; done", "timeout = \"20s\"");
        assert_eq!((end, incomplete), (CommandEnd::PrintedTooMuch, Incomplete::CUT | Incomplete::TOO_MANY));
        assert_eq!(values.len(), 4096);
        assert_eq!(sampled("true", "").3, Incomplete::CUT, "nothing printed");
    }

    // Proves that a program that others can change is not run, even if the program changes between
    // two samples. The error names the program and the remedy.
    #[test]
    fn a_program_that_others_can_change_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let program = folder.join("program");
        let secret = folder.join("was-run");
        std::fs::write(&program, format!("#!/bin/sh\ntouch {}\necho a 1\n", secret.display())).unwrap();
        let set = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let keys = format!("command = [\"{}\"]", program.display());
        for (folder_mode, mode) in [(0o755, 0o775), (0o755, 0o757), (0o775, 0o755), (0o1777, 0o755)] {
            set(&folder, folder_mode);
            set(&program, mode);
            let error = open_sampler(&SPEC, &keys, Path::new("/")).unwrap_err().to_string();
            let (bad, mode) = if mode == 0o755 { (&folder, folder_mode) } else { (&program, mode) };
            let bad = bad.display();
            let expected = if mode & 0o1000 == 0 {
                format!(
                    "{bad} is writable by group or others (mode {mode:04o}), so the command is not run; \
                     chmod go-w {bad}"
                )
            } else {
                format!(
                    "{bad} is writable by everyone (mode {mode:04o}), so the command is not run; \
                     move its files into a directory that only their owner can write to"
                )
            };
            assert_eq!(error, expected);
        }
        set(&folder, 0o755);
        set(&program, 0o755);
        let mut sampler = open_sampler(&SPEC, &keys, Path::new("/")).unwrap();
        assert!(!secret.exists(), "nothing is run before the first sample");
        let mut sample = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            let incomplete = sampler.build(0, &mut builder);
            let command = flatbuffers::root::<Command<'_>>(builder.finished_data()).unwrap();
            (command.end(), command.values().len(), incomplete)
        };
        assert_eq!(sample(), (CommandEnd::Exited, 1, Incomplete::NONE));
        std::fs::remove_file(&secret).unwrap();
        set(&program, 0o777);
        assert_eq!(sample(), (CommandEnd::NotTrusted, 0, Incomplete::DENIED));
        assert!(!secret.exists());
        set(&program, 0o600);
        assert_eq!(sample(), (CommandEnd::NotStarted, 0, Incomplete::MISSING));
        std::fs::remove_file(&program).unwrap();
        assert_eq!(sample(), (CommandEnd::NotTrusted, 0, Incomplete::DENIED));
    }

    // Proves that the target of a link is checked too. The link is in a safe directory and leads
    // into an unsafe one.
    #[test]
    fn links_are_followed() {
        let (good, bad) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = bad.path().join("program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        for (path, mode) in [(program.as_path(), 0o755), (bad.path(), 0o777), (good.path(), 0o755)] {
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let link = good.path().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let keys = format!("command = [\"{}\"]", link.display());
        let error = open_sampler(&SPEC, &keys, Path::new("/")).unwrap_err().to_string();
        assert!(error.contains(&format!("{} is writable", bad.path().display())), "{error}");
    }

    // Proves that no other user can redirect the path to a program between check and run. The test
    // tries a link in a directory that others can write to, and another user's link in a sticky
    // directory. Both links initially lead to a safe program.
    #[test]
    fn links_on_the_way_are_ours() {
        let (good, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = good.path().join("program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let [first, hop] = [good.path().join("first"), shared.path().join("hop")];
        std::os::unix::fs::symlink(&program, &hop).unwrap();
        std::os::unix::fs::symlink(&hop, &first).unwrap();
        let error = |program: &Path| {
            let keys = format!("command = [\"{}\"]", program.display());
            open_sampler(&SPEC, &keys, Path::new("/")).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(error(&first), Ok(()));
        set_permissions(shared.path(), Permissions::from_mode(0o777)).unwrap();
        let message = error(&first).unwrap_err();
        assert!(message.starts_with(&format!("{} is writable", shared.path().display())), "{message}");
        set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(error(&first), Ok(()), "only its owner can change a link there");
        if std::os::unix::fs::lchown(&hop, Some(4711), None).is_err() {
            return println!("skipped: only root can change the owner of a link");
        }
        let message = error(&first).unwrap_err();
        assert!(message.starts_with(&format!("{} belongs to user 4711", hop.display())), "{message}");
        std::fs::remove_file(&hop).unwrap();
        std::os::unix::fs::symlink(&first, &hop).unwrap();
        assert!(error(&first).unwrap_err().contains("symbolic links"), "a loop of links");
    }

    // Proves that a configuration that others can change, or that another user owns, starts no
    // program.
    #[test]
    fn the_configuration_must_be_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flatcap.toml");
        std::fs::write(&path, "[source.command.own]\ncommand = [\"/bin/true\"]\n").unwrap();
        let open_with = |folder_mode, mode, owner: Option<u32>| {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            set_permissions(folder.path(), Permissions::from_mode(folder_mode)).unwrap();
            let mut settings = TestSettings::new(&SPEC, "command = [\"/bin/true\"]");
            let TextOrigin::Command(command) = &mut settings.text_mut().origin else { panic!() };
            let [file, directory] = [path.as_path(), folder.path()].map(|path| {
                let found = std::fs::metadata(path).unwrap();
                OwnerAndMode { owner: found.uid(), mode: found.mode() & 0o7777 }
            });
            let file = OwnerAndMode { owner: owner.unwrap_or(file.owner), ..file };
            command.defined_in = Some(Provenance { path: path.clone(), file, directory });
            SPEC.open(&OpenContext { host: &HostRoot::new("/"), settings: settings.get() })
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(open_with(0o755, 0o644, None), Ok(()));
        let name = path.display();
        assert_eq!(
            open_with(0o755, 0o664, None),
            Err(format!(
                "{name} is writable by group or others (mode 0664), so the command is not run; \
                 chmod go-w {name}"
            ))
        );
        assert!(open_with(0o777, 0o644, None).unwrap_err().contains("(mode 0777)"));
        let error = open_with(0o755, 0o600, Some(4711)).unwrap_err();
        assert!(
            error.starts_with(&format!("{name} belongs to user 4711 (mode 0600), neither root")),
            "{error}"
        );
    }
}
