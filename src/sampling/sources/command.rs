//! `command`: values in what a program prints that the configuration names, one source a program.
//!
//! What runs is what whoever may write the configuration says, with the rights of the agent. So nobody else may: the
//! configuration and its directory, as they were when it was read, and the program with every directory and link on the way to it are
//! looked at before each run.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;

use super::text::ABSENT;
use super::values::{ABSENT_INTEGER, Values};
use super::{Entry, Opening, Unavailable};
use crate::config::{self, Origin, Provenance, Rights};
use crate::os::program::{End, Entry as Found, Leash, Run, entry, own_user, run};
use crate::sampling::{Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Command, CommandArgs, CommandEnd, CommandValue};

const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit only its owner can replace a file.
const STICKY: u32 = 0o1000;
/// The kernel follows as many links on one way, then says so.
const LINKS_MAX: usize = 40;
const ELOOP: i32 = 40;

/// `include` and `exclude` match the values' names. Starting a program allocates, in this process too.
pub(super) const ENTRY: Entry = Entry {
    name: "command",
    root: "flatcap.host.Command",
    schema: include_bytes!("../../../generated/host/command.bfbs"),
    files: &[],
    refresh: "at each sample: the program is run for it",
    selects: "names of values",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let readout = opening.config.readout.as_ref();
    let Some(Origin::Command(command)) = readout.map(|readout| &readout.origin) else {
        return Err(Unavailable::of(io::Error::from(io::ErrorKind::InvalidInput)));
    };
    let guard = Guard::of(command);
    guard.check().map_err(|distrust| Unavailable::of(io::Error::other(distrust.to_string())))?;
    Ok(Opened::built(CommandSampler {
        guard,
        words: command.words.clone(),
        timeout_ns: nanoseconds(command.timeout),
        leash: Leash::default(),
        output: Vec::new(),
        outcome: Outcome::NotTrusted,
        values: Values::new(opening.config, CommandValue::new),
    }))
}

#[derive(Debug)]
struct CommandSampler {
    guard: Guard,
    words: Vec<String>,
    timeout_ns: u64,
    leash: Leash,
    output: Vec<u8>, // reused
    outcome: Outcome,
    values: Values<CommandValue>,
}

/// What came of a run.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Ended(Run),
    NotStarted(Option<i32>), // the kernel's error number
    NotTrusted,
}

impl Sampler for CommandSampler {
    /// Never fails: how a run ended is part of the sample.
    fn read(&mut self) -> Result<(), ReadError> {
        self.output.clear();
        self.outcome = if self.guard.check().is_err() {
            Outcome::NotTrusted
        } else {
            match run(&self.words, self.timeout_ns, &self.leash, &mut self.output) {
                Ok(run) => Outcome::Ended(run),
                Err(error) => Outcome::NotStarted(error.raw_os_error()),
            }
        };
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = match self.outcome {
            Outcome::Ended(run) => {
                if matches!(run.end, End::Exited(_)) && self.output.last().is_some_and(|byte| *byte != b'\n')
                {
                    // Who ends by itself has said all.
                    self.output.push(b'\n');
                }
                let printed = self.values.parse(&self.output);
                printed
                    | match run.end {
                        End::Exited(0) => Shortfall::NONE,
                        End::Exited(_) | End::Signalled(_) => Shortfall::UNREADABLE,
                        End::TimedOut => Shortfall::CUT,
                        End::PrintedTooMuch => Shortfall::CUT | Shortfall::TOO_MANY,
                    }
            }
            Outcome::NotStarted(_) => Shortfall::MISSING,
            Outcome::NotTrusted => Shortfall::DENIED,
        };
        if !matches!(self.outcome, Outcome::Ended(_)) {
            self.values.clear();
        }
        let values = Some(builder.create_vector(self.values.rows()));
        let root =
            Command::create(builder, &CommandArgs { values, ..arguments(self.outcome, self.output.len()) });
        builder.finish_minimal(root);
        shortfall
    }

    fn leash(&self) -> Option<Leash> {
        Some(self.leash.clone())
    }
}

/// Everything but the values.
fn arguments(outcome: Outcome, printed: usize) -> CommandArgs<'static> {
    let mut arguments = CommandArgs {
        values: None,
        end: CommandEnd::NotTrusted,
        exit_status: ABSENT_INTEGER,
        signal: ABSENT,
        error: ABSENT,
        duration: ABSENT,
        output: ABSENT,
    };
    match outcome {
        Outcome::Ended(run) => {
            arguments.duration = run.duration_ns;
            arguments.output = printed as u64;
            arguments.end = match run.end {
                End::Exited(status) => {
                    arguments.exit_status = i64::from(status);
                    CommandEnd::Exited
                }
                End::Signalled(signal) => {
                    arguments.signal = u64::from(signal.unsigned_abs());
                    CommandEnd::Signalled
                }
                End::TimedOut => CommandEnd::TimedOut,
                End::PrintedTooMuch => CommandEnd::PrintedTooMuch,
            };
        }
        Outcome::NotStarted(error) => {
            arguments.end = CommandEnd::NotStarted;
            arguments.error = error.map_or(ABSENT, |error| u64::from(error.unsigned_abs()));
        }
        Outcome::NotTrusted => {}
    }
    arguments
}

/// What must be in nobody else's hands for a command to be run.
#[derive(Debug)]
struct Guard {
    program: PathBuf,
    named_in: Option<Provenance>,
    user: u32,
}

/// Why a command is not run.
#[derive(Debug, thiserror::Error)]
enum Distrust {
    #[error("{}: {error}", path.display())]
    Gone { path: PathBuf, error: io::Error },
    #[error(
        "{} may be changed by others than its owner (mode {:04o}), so the command is not run; \
         chmod go-w {}",
        path.display(), rights.mode, path.display()
    )]
    Writable { path: PathBuf, rights: Rights },
    #[error(
        "{} is for everybody (mode {:04o}), so the command is not run; \
         move what lies in it into a directory that nobody else may change",
        path.display(), rights.mode
    )]
    Common { path: PathBuf, rights: Rights },
    #[error(
        "{} belongs to user {} (mode {:04o}), who is neither root nor user {user}, that flatcap runs as, so the command \
         is not run; chown root {}",
        path.display(), rights.owner, rights.mode, path.display()
    )]
    Foreign { path: PathBuf, rights: Rights, user: u32 },
}

impl Guard {
    fn of(command: &config::Command) -> Self {
        let program = command.words.first().map(PathBuf::from).unwrap_or_default();
        Self { program, named_in: command.named_in.clone(), user: own_user() }
    }

    fn check(&self) -> Result<(), Distrust> {
        if let Some(named_in) = &self.named_in {
            // As they were when the file was read: what became of them later changes nothing that is run.
            let parent = named_in.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.trust(&named_in.path, named_in.file)?;
            self.trust(parent.unwrap_or(Path::new(".")), named_in.directory)?;
        }
        self.check_way()
    }

    /// Every directory and every link on the way to the program, and the program. What is in nobody else's hands from the root on leads to
    /// the same program when it is run.
    fn check_way(&self) -> Result<(), Distrust> {
        let look = |path: &Path| entry(path).map_err(|error| Distrust::Gone { path: path.to_owned(), error });
        let (mut directory, mut names) = (PathBuf::from("/"), reversed(&self.program));
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == ".." {
                directory.pop();
                continue;
            }
            let path = directory.join(name);
            let (Found { owner, mode, .. }, found) = (look(&directory)?, look(&path)?);
            let is_program = names.is_empty() && found.target.is_none();
            // Others can add names there, but not change what one of us has put.
            let is_sticky = mode & STICKY != 0 && !is_program;
            let mode = if is_sticky { mode & !WRITABLE_BY_OTHERS } else { mode };
            self.trust(&directory, Rights { owner, mode })?;
            if let Some(target) = found.target {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Distrust::Gone { path, error: io::Error::from_raw_os_error(ELOOP) });
                }
                // Anybody may write to a link, as its mode says; its owner alone can make another one of it.
                self.trust(&path, Rights { owner: found.owner, mode: 0 })?;
                if target.has_root() {
                    directory = PathBuf::from("/");
                }
                names.extend(reversed(&target));
                continue;
            }
            // In a directory with the sticky bit a part of the way must be one of ours, as the program must everywhere.
            let mode = if is_program { found.mode } else { 0 };
            self.trust(&path, Rights { owner: found.owner, mode })?;
            directory = path;
        }
        Ok(())
    }

    fn trust(&self, path: &Path, rights: Rights) -> Result<(), Distrust> {
        let path = || path.to_owned();
        if rights.mode & WRITABLE_BY_OTHERS != 0 {
            return Err(if rights.mode & STICKY == 0 {
                Distrust::Writable { path: path(), rights }
            } else {
                Distrust::Common { path: path(), rights }
            });
        }
        if rights.owner != 0 && rights.owner != self.user {
            return Err(Distrust::Foreign { path: path(), rights, user: self.user });
        }
        Ok(())
    }
}

/// The names of a path, the first one at the end.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// A minute at most.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own that come and go")]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Config;
    use crate::os::host::HostRoot;
    use crate::sampling::sources::tests::opened;

    fn keys(script: &str, more: &str) -> String {
        format!("command = [\"/bin/sh\", \"-c\", '''{script}''']\n{more}")
    }

    /// A sample's end, numbers and what it lacks.
    fn sampled(script: &str, more: &str) -> (CommandEnd, [u64; 2], Vec<(f64, i64)>, Shortfall) {
        let mut sampler = opened(&ENTRY, &keys(script, more), Path::new("/")).unwrap();
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let shortfall = sampler.build(0, &mut builder);
        let command = flatbuffers::root::<Command<'_>>(builder.finished_data()).unwrap();
        assert!(command.duration() > 10_000 && command.error() == ABSENT);
        let values = command.values().iter().map(|value| (value.number(), value.integer())).collect();
        (command.end(), [command.exit_status().cast_unsigned(), command.signal()], values, shortfall)
    }

    // Goal: each way to end is told, and what was printed until then is there, marked. Method: a shell that ends so.
    #[test]
    fn every_end_is_told() {
        let one = vec![(1.0, 1)];
        let no_status = ABSENT_INTEGER.cast_unsigned();
        let cases = [
            ("echo a 1", CommandEnd::Exited, [0, ABSENT], Shortfall::NONE),
            ("printf 'a 1'", CommandEnd::Exited, [0, ABSENT], Shortfall::NONE),
            ("echo a 1; exit 7", CommandEnd::Exited, [7, ABSENT], Shortfall::UNREADABLE),
            ("echo a 1; kill -15 $$", CommandEnd::Signalled, [no_status, 15], Shortfall::UNREADABLE),
            ("echo a 1; printf 'b 2'; sleep 9", CommandEnd::TimedOut, [no_status, ABSENT], Shortfall::CUT),
        ];
        for (script, end, status, shortfall) in cases {
            let found = sampled(script, "timeout = \"300ms\"");
            assert_eq!(found, (end, status, one.clone(), shortfall), "{script}");
        }
        let (end, _, values, shortfall) =
            sampled("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1; done", "timeout = \"20s\"");
        assert_eq!((end, shortfall), (CommandEnd::PrintedTooMuch, Shortfall::CUT | Shortfall::TOO_MANY));
        assert_eq!(values.len(), (64 << 10) / 35);
        assert_eq!(sampled("true", "").3, Shortfall::CUT, "nothing printed");
    }

    // Goal: what others than root and we may change is not run, and the error names it and what to do. Method: a program and
    // its folder with each bad mode; one that becomes bad, or goes, between two samples.
    #[test]
    fn what_others_may_change_is_not_run() {
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
            let error = opened(&ENTRY, &keys, Path::new("/")).unwrap_err().to_string();
            let (bad, mode) = if mode == 0o755 { (&folder, folder_mode) } else { (&program, mode) };
            let bad = bad.display();
            let expected = if mode & STICKY == 0 {
                format!(
                    "{bad} may be changed by others than its owner (mode {mode:04o}), so the command is not run; chmod go-w {bad}"
                )
            } else {
                format!(
                    "{bad} is for everybody (mode {mode:04o}), so the command is not run; move what lies in it into a \
                     directory that nobody else may change"
                )
            };
            assert_eq!(error, expected);
        }
        set(&folder, 0o755);
        set(&program, 0o755);
        let mut sampler = opened(&ENTRY, &keys, Path::new("/")).unwrap();
        assert!(!secret.exists(), "nothing is run before the first sample");
        let mut sample = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            let shortfall = sampler.build(0, &mut builder);
            let command = flatbuffers::root::<Command<'_>>(builder.finished_data()).unwrap();
            (command.end(), command.values().len(), shortfall)
        };
        assert_eq!(sample(), (CommandEnd::Exited, 1, Shortfall::NONE));
        std::fs::remove_file(&secret).unwrap();
        set(&program, 0o777);
        assert_eq!(sample(), (CommandEnd::NotTrusted, 0, Shortfall::DENIED));
        assert!(!secret.exists());
        set(&program, 0o600);
        assert_eq!(sample(), (CommandEnd::NotStarted, 0, Shortfall::MISSING));
        std::fs::remove_file(&program).unwrap();
        assert_eq!(sample(), (CommandEnd::NotTrusted, 0, Shortfall::DENIED));
    }

    // Goal: a link is judged by where it leads, too. Method: a good folder with a link into a bad one.
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
        let error = opened(&ENTRY, &keys, Path::new("/")).unwrap_err().to_string();
        assert!(error.contains(&format!("{} may be changed", bad.path().display())), "{error}");
    }

    // Goal: nobody else can lead the way to a program elsewhere between look and run. Method: a link by way of a folder that others may
    // write to, and one that somebody else owns in a folder with the sticky bit; both lead to a good program for now.
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
            opened(&ENTRY, &keys, Path::new("/")).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(error(&first), Ok(()));
        set_permissions(shared.path(), Permissions::from_mode(0o777)).unwrap();
        let told = error(&first).unwrap_err();
        assert!(told.starts_with(&format!("{} may be changed", shared.path().display())), "{told}");
        set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(error(&first), Ok(()), "only its owner can turn a link there");
        if std::os::unix::fs::lchown(&hop, Some(4711), None).is_err() {
            return println!("passed over: only root gives links away");
        }
        let told = error(&first).unwrap_err();
        assert!(told.starts_with(&format!("{} belongs to user 4711", hop.display())), "{told}");
        std::fs::remove_file(&hop).unwrap();
        std::os::unix::fs::symlink(&first, &hop).unwrap();
        assert!(error(&first).unwrap_err().contains("symbolic links"), "in a circle");
    }

    // Goal: a configuration that others may change, or that is somebody else's, starts nothing. Method: a real file with
    // these modes; an owner that is neither root nor we.
    #[test]
    fn the_configuration_must_be_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flatcap.toml");
        std::fs::write(&path, "[source.command.own]\ncommand = [\"/bin/true\"]\n").unwrap();
        let open_with = |folder_mode, mode, owner: Option<u32>| {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            set_permissions(folder.path(), Permissions::from_mode(folder_mode)).unwrap();
            let mut config = Config::read(&path).unwrap();
            let source = config.sources.last_mut().unwrap();
            if let (Some(owner), Some(config::Readout { origin: Origin::Command(command), .. })) =
                (owner, &mut source.readout)
            {
                command.named_in.as_mut().unwrap().file.owner = owner;
            }
            (ENTRY.open)(&Opening { host: &HostRoot::new("/"), config: source })
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(open_with(0o755, 0o644, None), Ok(()));
        let name = path.display();
        assert_eq!(
            open_with(0o755, 0o664, None),
            Err(format!(
                "{name} may be changed by others than its owner (mode 0664), so the command is not run; chmod go-w {name}"
            ))
        );
        assert!(open_with(0o777, 0o644, None).unwrap_err().contains("(mode 0777)"));
        let error = open_with(0o755, 0o600, Some(4711)).unwrap_err();
        assert!(
            error.starts_with(&format!("{name} belongs to user 4711 (mode 0600), who is neither")),
            "{error}"
        );
    }
}
