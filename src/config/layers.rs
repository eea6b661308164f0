//! Reads a configuration from its layers, and records the layer that set each value. The layers are
//! a file, its drop-ins and environment variables. Crates for layered configuration are not used,
//! because they stop at the first error and lose its line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flatcap_os::program_guard::Provenance;
use flatcap_sampling::{TextOrigin, TextSource};

use super::env;
use super::error::{ConfigError, ConfigErrors, ConfigLocation, printable};
use super::file::{ConfigFile, DropIns, FILE_BYTES_MAX, SkippedFiles};
use super::input_texts::InputTexts;
use super::parse::{ResolvedConfig, resolve};
use super::settings::Config;
use super::validate::{CheckScope, MemoryRule};

/// Name of the drop-in directory next to a configuration file.
pub const DROP_IN_DIRECTORY: &str = "conf.d";
/// Name of the configuration file in a configuration directory.
pub const FILE_NAME: &str = "flatcap.toml";

/// The layers of a configuration. Each layer overrides the layers before it. The first layer is a
/// file. The next layers are the files in [`DROP_IN_DIRECTORY`] next to it whose names end in
/// `.toml`, sorted by the bytes of their names. The environment variables are the last layer.
/// Tables are merged key by key, all other values are replaced.
///
/// ```
/// use flatcap::config::Layers;
///
/// let variables = vec![("FLATCAP_SOURCE__CPU__PERIOD".into(), "1ms".into())];
/// let layered = Layers::defaults().with_variables(variables).read()?;
/// assert_eq!(layered.config.sources[0].period.as_millis(), 1);
/// assert!(layered.to_toml().contains("period = \"1ms\" # FLATCAP_SOURCE__CPU__PERIOD\n"));
/// # Ok::<(), flatcap::config::ConfigErrors>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Layers {
    file: Option<PathBuf>,
    file_is_optional: bool,
    without_drop_ins: bool,
    variables: Vec<(OsString, OsString)>,
    scope: CheckScope,
}

/// A validated configuration, with the location that set each value. Two configurations are equal
/// if they have the same effect, even if the locations differ.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// The files that were read. Each file overrides the files before it.
    pub files: Vec<PathBuf>,
    /// The names of the variables that were read, sorted.
    pub variables: Vec<String>,
    /// Files in the drop-in directory whose names do not end in `.toml`.
    pub skipped: SkippedFiles,
    locations: ValueLocations,
}

/// The location of each value that is not a default, by `table.key`.
#[derive(Debug, Default)]
pub(super) struct ValueLocations(BTreeMap<String, ConfigLocation>);

impl Layers {
    /// Creates layers that contain only the built-in defaults.
    pub fn defaults() -> Self {
        Self::default()
    }

    /// Creates layers from a file, which must exist, and its drop-ins, if there are any.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..Self::default() }
    }

    /// Creates layers from [`FILE_NAME`] in a directory and its drop-ins. All of these files may be
    /// missing.
    pub fn directory(path: &Path) -> Self {
        Self { file: Some(path.join(FILE_NAME)), file_is_optional: true, ..Self::default() }
    }

    /// Creates layers from a file, which must exist, without drop-ins.
    pub fn file_alone(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), without_drop_ins: true, ..Self::default() }
    }

    /// Adds the variables that are settings as the last layer. Other variables are ignored.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(OsString, OsString)>) -> Self {
        self.variables = variables;
        self
    }

    /// Adds a check that all buffers fit into `recorder.memory_max`.
    #[must_use]
    pub fn with_memory_rule(mut self, rule: MemoryRule) -> Self {
        self.scope.memory_rule = Some(rule);
        self
    }

    /// Skips the checks that depend on the enabled sources. The caller calls
    /// [`Config::select_sources`] next, which makes these checks.
    #[must_use]
    pub fn with_sources_to_select(mut self) -> Self {
        self.scope.has_final_sources = false;
        self
    }

    /// Reads all layers. Validates each layer separately, and then all layers together. Has no side
    /// effects.
    ///
    /// # Errors
    /// An error is reported for a file that cannot be read, exceeds [`FILE_BYTES_MAX`], is not
    /// UTF-8 or is not TOML. An error is also reported for a directory that cannot be read or
    /// contains more than [`DROP_INS_MAX`](super::DROP_INS_MAX) drop-ins. A variable that names no
    /// setting is an error, and so is every invalid setting. All errors are returned together. Each
    /// error has its file and line, or its variable.
    pub fn read(&self) -> Result<LoadedConfig, ConfigErrors> {
        let mut unread = Vec::new();
        // One limit applies to all inputs together, so that many drop-ins cannot multiply the
        // limit.
        let mut bytes_left = FILE_BYTES_MAX;
        let (files, passed_over) = self.read_files(&mut bytes_left, &mut unread);
        // The inputs are sorted by increasing precedence.
        let mut texts = InputTexts::default();
        for file in &files {
            texts.add_file(&file.path.display().to_string(), &file.text);
        }
        if let Err(errors) = env::add(&mut texts, &self.variables, &mut bytes_left) {
            unread.extend(errors);
        }
        let ResolvedConfig { mut config, value_offsets } = resolve(&texts, unread, self.scope)?;
        // A command from a variable has no file, so there is no owner and mode to check.
        set_command_files(&mut config, |key| {
            let at = texts.file_at(*value_offsets.get(key)?)?;
            files.get(at).map(|file| file.provenance.clone())
        });
        let origins = value_offsets.into_iter().map(|(key, offset)| (key, texts.location(Some(offset))));
        Ok(LoadedConfig {
            config,
            variables: texts.variables().map(|variable| variable.name.to_owned()).collect(),
            skipped: passed_over,
            locations: ValueLocations(origins.collect()),
            files: files.into_iter().map(|file| file.path).collect(),
        })
    }

    fn read_files(&self, room: &mut usize, unread: &mut Vec<ConfigError>) -> (Vec<ConfigFile>, SkippedFiles) {
        let Some(file) = &self.file else { return Default::default() };
        let folder = (!self.without_drop_ins).then(|| file.with_file_name(DROP_IN_DIRECTORY));
        let drop_ins = folder.map_or_else(|| Ok(DropIns::default()), |folder| DropIns::list(&folder));
        // The other files are read even after an error, so that their errors are reported too.
        let drop_ins = drop_ins.unwrap_or_else(|error| {
            unread.push(error);
            DropIns::default()
        });
        // The check examines the link without following it, because a dangling link is a mistake
        // and not a missing file.
        let is_skipped =
            self.file_is_optional && file.symlink_metadata().is_err_and(|error| is_absent(&error));
        let first = (!is_skipped).then_some(file);
        let mut files = Vec::new();
        for path in first.into_iter().chain(&drop_ins.paths) {
            match ConfigFile::read(path, room) {
                Ok(file) => files.push(file),
                Err(error) => unread.push(error),
            }
        }
        (files, drop_ins.skipped)
    }
}

impl Config {
    /// Reads and checks the file at `path` and its drop-ins, as [`Layers`] does, but without the
    /// environment.
    ///
    /// # Errors
    /// The same errors as [`Layers::read`].
    #[cfg(feature = "internals")]
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        Layers::file(path).read().map(|layered| layered.config)
    }
}

impl LoadedConfig {
    /// Returns the whole configuration as [`Config::to_toml`] does. After each value that is not a
    /// default, a comment names the file and line, or the variable, that set the value.
    pub fn to_toml(&self) -> String {
        self.config.to_toml_with(Some(&self.locations), |_, value| value)
    }
}

impl ValueLocations {
    /// Returns the location of a key's value in a form that is safe in a comment. `key` is
    /// `table.key`.
    pub(super) fn of(&self, key: &str) -> Option<String> {
        Some(match self.0.get(key)? {
            // A newline in the name of a file would end the comment and add a line to the
            // configuration.
            ConfigLocation::Line { file, line, .. } => format!("{}:{line}", printable(file)),
            ConfigLocation::Variable(name) => printable(name),
            other => other.to_string(),
        })
    }
}

/// Sets, for each command, the file that defines it. If several files have keys of an instance,
/// this is the file that sets `command`. For a rule, it is the file that sets `run`.
fn set_command_files(config: &mut Config, named_in: impl Fn(&str) -> Option<Provenance>) {
    for source in &mut config.sources {
        let key = format!("source.{}.command", source.full_name());
        if let Some(TextSource { origin: TextOrigin::Command(command), .. }) = &mut source.text_source {
            command.defined_in = named_in(&key);
        }
    }
    for trigger in &mut config.triggers {
        trigger.run_defined_in = named_in(&format!("trigger.{}.run", trigger.name));
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the files are the tests' own")]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStringExt;

    use flatcap_recorder::SyncPolicy;
    use proptest::prelude::*;

    use super::*;
    use crate::config::DROP_INS_MAX;

    /// A directory with `flatcap.toml` and drop-ins.
    struct ConfigDir(tempfile::TempDir);

    impl ConfigDir {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            fs::create_dir(folder.0.path().join("conf.d")).unwrap();
            for (name, text) in files {
                fs::write(folder.0.path().join(name), text).unwrap();
            }
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn layers(&self) -> Layers {
            Layers::file(self.path("flatcap.toml"))
        }

        fn read(&self) -> LoadedConfig {
            self.layers().read().unwrap()
        }

        /// Returns the error text, without the path of the directory.
        fn errors(&self, layers: &Layers) -> String {
            match layers.read() {
                Ok(_) => "no error".to_owned(),
                Err(errors) => errors.to_string().replace(&format!("{}/", self.0.path().display()), ""),
            }
        }
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// Returns the line of a key in a table of the printed configuration.
    fn line<'t>(text: &'t str, table: &str, key: &str) -> &'t str {
        let (_, table) = text.split_once(&format!("[{table}]\n")).unwrap();
        table.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap()
    }

    #[test]
    fn drop_ins_override_the_file_in_name_order() {
        // Proves that drop-ins are sorted by bytes (10 before 9 before Z), and that other files are
        // skipped. Also proves that a table of a drop-in removes no keys of earlier files.
        let folder = ConfigDir::new(&[
            (
                "flatcap.toml",
                "[source.cpu]\nperiod = \"1ms\"\nrequired = true\n[group.fast]\ncpus = [0, 1]\n",
            ),
            ("conf.d/9.toml", "[source.cpu]\nperiod = \"9ms\"\n"),
            ("conf.d/10.toml", "[source.cpu]\nperiod = \"8ms\"\n[group.fast]\ncpus = [2]\n"),
            ("conf.d/Z.toml", "source.cpu.period = \"7ms\"\nsource.cpu.budget = \"1%\"\n"),
            ("conf.d/.hidden.toml", "not toml"),
            ("conf.d/.toml", "not toml"),
            ("conf.d/z.toml.dpkg-old", "not toml"),
            ("conf.d/README", "not toml"),
        ]);
        let layered = folder.read();
        let names = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&layered.files), ["flatcap.toml", "10.toml", "9.toml", "Z.toml"]);
        assert_eq!(names(&layered.skipped.paths), ["README", "z.toml.dpkg-old"]);
        let cpu = &layered.config.sources[0];
        assert_eq!((cpu.period.as_millis(), cpu.required, cpu.budget.basis_points()), (7, true, 100));
        assert_eq!(layered.config.groups.fast.cpus, [2]);
    }

    #[test]
    fn every_value_has_its_location() {
        // Proves that the printed configuration names the file and line, or the variable, of each
        // value that is not a default, and that it parses to the same configuration.
        let folder = ConfigDir::new(&[
            (
                "flatcap.toml",
                "[storage]\nsegment_size = \"64MiB\"\nsync = \"never\"\n\n[source.file.a]\npath = \"/a\"\n",
            ),
            ("conf.d/1.toml", "\n\n[storage]\nsegment_size = \"32MiB\"\nsource.file.a.period = \"2s\"\n"),
        ]);
        // The drop-in has, by mistake, a key of another table below [storage], which is an error.
        assert!(folder.errors(&folder.layers()).starts_with("conf.d/1.toml:5:"));
        fs::write(
            folder.path("conf.d/1.toml"),
            "source.file.a.period = \"2s\"\n\n[storage]\nsegment_size = \"32MiB\"\n",
        )
        .unwrap();
        let set = variables(&[("FLATCAP_RECORDER__DATA_DIR", "5"), ("HOME", "/"), ("FLATCAP_LOG", "info")]);
        let layered = folder.layers().with_variables(set).read().unwrap();
        let text = layered.to_toml();
        let place = |name: &str| folder.path(name).display().to_string();
        let (file, drop_in) = (place("flatcap.toml"), place("conf.d/1.toml"));
        for (table, key, expected) in [
            ("storage", "segment_size", format!("segment_size = \"32MiB\" # {drop_in}:4")),
            ("storage", "sync", format!("sync = \"never\" # {file}:3")),
            ("storage", "segment_age", "segment_age = \"15m\"".to_owned()),
            ("recorder", "data_dir", "data_dir = \"5\" # FLATCAP_RECORDER__DATA_DIR".to_owned()),
            ("source.file.a", "path", format!("path = \"/a\" # {file}:6")),
            ("source.file.a", "period", format!("period = \"2s\" # {drop_in}:1")),
            ("source.cpu", "period", "period = \"10ms\"".to_owned()),
        ] {
            assert_eq!(line(&text, table, key), expected);
        }
        assert_eq!(layered.variables, ["FLATCAP_RECORDER__DATA_DIR"]);
        assert_eq!(Config::parse("printed.toml", &text).unwrap(), layered.config);
        assert_eq!(layered.config.to_toml().matches('#').count() + 5, text.matches('#').count());
    }

    #[test]
    fn a_path_cannot_end_the_comment_that_names_it() {
        // Proves that a newline in a file name adds no line to the printed configuration.
        let folder = ConfigDir::new(&[
            ("flatcap.toml", ""),
            ("conf.d/a\n[x]\n.toml", "[source.cpu]\nperiod = \"1ms\"\n"),
        ]);
        let layered = folder.read();
        let text = layered.to_toml();
        assert!(line(&text, "source.cpu", "period").ends_with("conf.d/a\\n[x]\\n.toml:2"));
        assert_eq!(Config::parse("printed.toml", &text).unwrap(), layered.config);
    }

    #[test]
    fn all_errors_of_all_layers_at_once() {
        // Proves that each mistake is reported with its own location, in the order of the layers,
        // even if a later file overrides the value.
        let folder = ConfigDir::new(&[
            ("flatcap.toml", "[source.cpu]\nperiod = \"10\"\nperiods = 1\n[recorder]\nlock_memory = 1\n"),
            ("conf.d/1.toml", "[source.cpu]\nperiods = 2\nperiod = \"1ms\"\nperiod = \"2ms\"\n"),
            ("conf.d/2.toml", "[storage]\npreallocate = \"1GiB\"\n[sorce.cpu]\n"),
        ]);
        let set = variables(&[("FLATCAP_SOURCE__CPU__PERIOD", "0s"), ("FLATCAP_SOURCE__CPU__PERIODS", "1")]);
        let errors = folder.errors(&folder.layers().with_variables(set));
        let places: Vec<_> = errors.lines().map(|line| line.split_once(": ").unwrap().0).collect();
        let expected = [
            "flatcap.toml:2:10",
            "flatcap.toml:3:1",
            "flatcap.toml:5:15",
            "conf.d/1.toml:2:1",
            "conf.d/1.toml:4:1",
            "conf.d/2.toml:2:15",
            "conf.d/2.toml:3:2",
            "environment variable FLATCAP_SOURCE__CPU__PERIOD",
            "environment variable FLATCAP_SOURCE__CPU__PERIODS",
        ];
        assert_eq!(places, expected, "{errors}");
        assert!(errors.contains("period: given twice; keep one"), "{errors}");
        assert!(errors.contains("preallocate = \"1GiB\": larger than a segment"), "{errors}");
        assert!(errors.contains("PERIOD: [source.cpu] period = 0s: too small; write"), "{errors}");
        assert!(errors.ends_with("no such setting; did you mean FLATCAP_SOURCE__CPU__PERIOD?"), "{errors}");
    }

    #[test]
    fn a_broken_file_hides_no_mistake_of_the_others() {
        // Proves that errors in other layers are reported only if the broken file could not fix
        // them.
        let folder = ConfigDir::new(&[
            ("flatcap.toml", "[source.file.a]\nperiod = \"1\"\n"),
            ("conf.d/1.toml", "[source.file.a]\npath = /a\n"),
        ]);
        let errors = folder.errors(&folder.layers());
        assert!(
            errors.starts_with("flatcap.toml:2:10: [source.file.a] period = \"1\": no unit, as in 1s;"),
            "{errors}"
        );
        assert!(errors.lines().nth(1).unwrap().starts_with("conf.d/1.toml:2:8: not TOML: "), "{errors}");
        assert_eq!(errors.lines().count(), 2, "{errors}");
        fs::remove_file(folder.path("conf.d/1.toml")).unwrap();
        assert!(folder.errors(&folder.layers()).contains("[source.file.a] path: missing"));
    }

    #[test]
    fn conflicts_are_located_at_the_last_value() {
        // Proves the location of conflicts between keys, and that a key is no error if a later file
        // makes it have no effect.
        let folder = ConfigDir::new(&[
            (
                "flatcap.toml",
                "[storage]\nsync_interval = \"2s\"\n[source.synthetic]\nshape = \"wide\"\npayload = \"1MiB\"\n",
            ),
            ("conf.d/1.toml", "[storage]\nframe_max = \"64KiB\"\n[source.synthetic]\nenabled = true\n"),
            ("conf.d/2.toml", "[recorder]\nmemory_max = \"12MiB\"\n"),
        ]);
        let errors = folder.errors(&folder.layers());
        let lines: Vec<_> = errors.lines().collect();
        assert!(
            lines[0].starts_with("flatcap.toml:5:11: [source.synthetic] payload = \"1MiB\": a frame of"),
            "{errors}"
        );
        assert_eq!(lines.len(), 1, "{errors}");
        let set = |pairs: &[(&str, &str)]| folder.layers().with_variables(variables(pairs));
        let point = ("FLATCAP_SOURCE__SYNTHETIC__SHAPE", "point");
        let never = ("FLATCAP_STORAGE__SYNC", "never");
        let config = set(&[point, never]).read().unwrap().config;
        assert_eq!(config.storage.sync, SyncPolicy::Never);
        let both = set(&[point, never, ("FLATCAP_STORAGE__SYNC_INTERVAL", "1s")]);
        assert!(folder.errors(&both).starts_with(
            "environment variable FLATCAP_STORAGE__SYNC_INTERVAL: [storage] sync_interval = 1s: has no effect"
        ));
    }

    #[test]
    fn only_named_files_must_exist() {
        // Proves that a missing file is an error only if the user named it. A missing drop-in or a
        // missing file in a configuration directory is no error.
        let folder = ConfigDir::new(&[("conf.d/1.toml", "[source.cpu]\nperiod = \"1ms\"\n")]);
        assert_eq!(
            folder.errors(&folder.layers()),
            "flatcap.toml: cannot be read: No such file or directory (os error 2); \
             create it, or correct its path"
        );
        let denied = crate::config::file::unreadable(&std::io::ErrorKind::PermissionDenied.into());
        assert!(
            denied.ends_with("; give the recorder's account read access to it and its directory"),
            "{denied}"
        );
        let layered = Layers::directory(folder.0.path()).read().unwrap();
        assert_eq!(layered.files, [folder.path("conf.d/1.toml")]);
        assert_eq!(layered.config.sources[0].period.as_millis(), 1);
        fs::remove_dir_all(folder.path("conf.d")).unwrap();
        let layered = Layers::directory(folder.0.path()).read().unwrap();
        assert_eq!((layered.config, layered.files.len()), (Config::default(), 0));
        fs::write(folder.path("conf.d"), "").unwrap();
        let errors = folder.errors(&Layers::directory(folder.0.path()));
        assert_eq!(errors, "conf.d: cannot be read: Not a directory (os error 20)");
        fs::remove_file(folder.path("conf.d")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path("conf.d")).unwrap();
        assert!(
            folder.errors(&Layers::directory(folder.0.path())).starts_with("conf.d: cannot be read: No such")
        );
    }

    #[test]
    fn special_files_are_rejected_without_blocking() {
        // Proves that pipes, directories, sockets, and circular and dangling links are errors that
        // state the path and never block. Also proves that a link to /dev/null masks a drop-in.
        let folder = ConfigDir::new(&[("flatcap.toml", "")]);
        let conf_d = folder.path("conf.d");
        let pipe = conf_d.join("1-pipe.toml");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        fs::create_dir(conf_d.join("2-folder.toml")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(conf_d.join("3-socket.toml")).unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, conf_d.join(name)).unwrap();
        link("5-circle.toml", "4-circle.toml");
        link("4-circle.toml", "5-circle.toml");
        link("nowhere", "6-dangling.toml");
        link("/dev/null", "7-masked.toml");
        link("/dev/zero", "8-endless.toml");
        assert_eq!(
            folder.errors(&folder.layers()),
            "conf.d/1-pipe.toml: is a pipe; write the path of a file\n\
             conf.d/2-folder.toml: is a directory; write the path of a file\n\
             conf.d/3-socket.toml: cannot be read: No such device or address (os error 6)\n\
             conf.d/4-circle.toml: cannot be read: Too many levels of symbolic links (os error 40)\n\
             conf.d/5-circle.toml: cannot be read: Too many levels of symbolic links (os error 40)\n\
             conf.d/6-dangling.toml: cannot be read: No such file or directory (os error 2); \
             create it, or correct its path\n\
             conf.d/8-endless.toml: larger than 1MiB, the limit of a configuration file"
        );
        assert_eq!(
            folder.errors(&Layers::file(&pipe)).lines().next(),
            Some("conf.d/1-pipe.toml: is a pipe; write the path of a file")
        );
        assert!(Layers::file("/dev/null").read().is_ok());
    }

    #[test]
    fn size_and_count_limits() {
        // Proves the limits on the size of one file, on the size of all files, and on their number.
        // The test uses a file of 1 GiB, 10,000 drop-ins and many skipped files.
        let folder = ConfigDir::new(&[("flatcap.toml", "")]);
        let huge = fs::File::create(folder.path("conf.d/huge.toml")).unwrap();
        huge.set_len(1 << 30).unwrap();
        assert_eq!(
            folder.errors(&folder.layers()),
            "conf.d/huge.toml: larger than 1MiB, the limit of a configuration file"
        );
        fs::remove_file(folder.path("conf.d/huge.toml")).unwrap();
        for name in ["1", "2"] {
            fs::write(folder.path(&format!("conf.d/{name}.toml")), "#".repeat(600 << 10)).unwrap();
        }
        assert_eq!(
            folder.errors(&folder.layers()),
            "conf.d/2.toml: exceeds the limit of 1MiB for all files and variables together; shorten or remove some"
        );
        for number in 0..DROP_INS_MAX {
            fs::write(folder.path(&format!("conf.d/{number}.toml")), "").unwrap();
            fs::write(folder.path(&format!("conf.d/{number:05}.txt")), "").unwrap();
        }
        let layered = folder.read();
        assert_eq!(layered.files.len(), 1 + DROP_INS_MAX);
        assert_eq!((layered.skipped.paths.len(), layered.skipped.more), (10, DROP_INS_MAX - 10));
        assert_eq!(layered.skipped.paths[9], folder.path("conf.d/00009.txt"));
        for number in DROP_INS_MAX..10_000 {
            fs::write(folder.path(&format!("conf.d/{number}.toml")), "").unwrap();
        }
        assert_eq!(folder.errors(&folder.layers()), "conf.d: contains more than 256 .toml files; merge some");
    }

    #[test]
    fn invalid_utf8_is_reported_with_its_location() {
        // Proves that a byte that is not UTF-8 is reported with its line or variable, and that a
        // byte order mark is accepted.
        let folder = ConfigDir::new(&[("flatcap.toml", "\u{feff}[recorder]\nx = 1\n")]);
        fs::write(folder.path("conf.d/1.toml"), b"[recorder]\n# caf\xe9\n").unwrap();
        let wrong = OsString::from_vec(vec![b'/', 0xE9]);
        let set = vec![
            ("FLATCAP_RECORDER__DATA_DIR".into(), wrong.clone()),
            (OsString::from_vec(b"FLATCAP_\xE9".to_vec()), wrong),
        ];
        let errors = folder.errors(&folder.layers().with_variables(set));
        let lines: Vec<_> = errors.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "conf.d/1.toml:2:6: byte 16 is not UTF-8; save the file as UTF-8",
                "environment variable FLATCAP_RECORDER__DATA_DIR: not UTF-8; write it as UTF-8",
                "environment variable FLATCAP_\u{fffd}: not UTF-8; write it as UTF-8",
            ]
        );
        assert!(lines[3].starts_with("flatcap.toml:2:1: [recorder] x: no such key here;"), "{errors}");
    }

    #[test]
    fn commands_belong_to_the_file_that_sets_them() {
        // Proves that only the file that sets `command` determines whether a program may run. A
        // file that changes only the period has no influence.
        let folder = ConfigDir::new(&[
            (
                "flatcap.toml",
                "[source.command.a]\ncommand = [\"/bin/a\"]\n[source.command.b]\ncommand = [\"/bin/b\"]\n",
            ),
            (
                "conf.d/1.toml",
                "[source.command.a]\nperiod = \"2s\"\n[source.command.b]\ncommand = [\"/bin/x\"]\n",
            ),
        ]);
        let set = variables(&[("FLATCAP_SOURCE__COMMAND__C__COMMAND", "[\"/bin/c\"]")]);
        let config = folder.layers().with_variables(set).read().unwrap().config;
        let named_in =
            config.sources.iter().filter_map(|source| source.text_source.as_ref()).map(|readout| {
                let TextOrigin::Command(command) = &readout.origin else { panic!() };
                command.defined_in.as_ref().map(|provenance| provenance.path.clone())
            });
        let expected = [Some(folder.path("flatcap.toml")), Some(folder.path("conf.d/1.toml")), None];
        assert_eq!(named_in.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_hostile_tree_ends_in_errors() {
        // Proves that the deepest nesting that fits into a file does not overflow the stack and
        // does not take long.
        let folder = ConfigDir::new(&[]);
        for text in [
            format!("{}b = 1\n", "a.".repeat(400_000)),
            format!("[{}b]\n", "a.".repeat(400_000)),
            format!("a = {}", "[".repeat(1_000_000)),
            format!("a = {}", "{a=".repeat(300_000)),
        ] {
            fs::write(folder.path("flatcap.toml"), text).unwrap();
            assert_ne!(folder.errors(&folder.layers()), "no error");
        }
    }

    /// Settings that are valid in any combination, with two values each.
    const SETTINGS: [(&str, &str, [&str; 2]); 6] = [
        ("storage", "segment_size", ["\"64MiB\"", "\"32MiB\""]),
        ("storage", "segment_age", ["\"1m\"", "\"2m\""]),
        ("source.cpu", "period", ["\"1ms\"", "\"2ms\""]),
        ("source.disk", "include", ["[\"sd*\"]", "[]"]),
        ("group.fast", "priority", ["5", "6"]),
        ("source.file.a", "path", ["\"/a\"", "\"/b\""]),
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn layers_are_the_merged_text(
            choices in prop::collection::vec(prop::array::uniform6(prop::option::of(0..2_usize)), 1..4),
        ) {
            // Proves that layered files are equal to one file that has the last value of each key.
            // The last layer may consist of variables.
            let folder = ConfigDir::new(&[("flatcap.toml", "")]);
            let given = |choice: &[Option<usize>; 6]| -> Vec<_> {
                let given = SETTINGS.iter().zip(choice);
                given.filter_map(|((table, key, values), at)| at.map(|at| (*table, *key, values[at]))).collect()
            };
            let text = |settings: &[(&str, &str, &str)]| -> String {
                let lines = settings.iter().map(|(table, key, value)| format!("{table}.{key} = {value}\n"));
                lines.collect::<Vec<_>>().concat()
            };
            let mut last = [None; 6];
            for (number, choice) in choices.iter().enumerate() {
                fs::write(folder.path(&format!("conf.d/{number}.toml")), text(&given(choice))).unwrap();
                last.iter_mut().zip(choice).for_each(|(last, at)| *last = at.or(*last));
            }
            let merged = Config::parse("merged.toml", &text(&given(&last))).unwrap();
            prop_assert_eq!(&folder.read().config, &merged);
            let number = choices.len() - 1;
            fs::remove_file(folder.path(&format!("conf.d/{number}.toml"))).unwrap();
            let pairs = given(&choices[number]).into_iter().map(|(table, key, value)| {
                let name = format!("FLATCAP_{}__{}", table.replace('.', "__"), key).to_uppercase();
                (name.into(), value.trim_matches('"').into())
            });
            let layered = folder.layers().with_variables(pairs.collect()).read().unwrap();
            prop_assert_eq!(&layered.config, &merged);
            prop_assert_eq!(Config::parse("printed.toml", &layered.to_toml()).unwrap(), merged);
        }
    }
}
