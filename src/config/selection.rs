//! Selection of sources on the command line. `--source NAME[@PERIOD]` replaces the configured set,
//! `+NAME[@PERIOD]` adds a source to the set, and `-NAME` removes one.

use std::borrow::Cow;

use flatcap_format::schema::nearest_name;
use toml::de::DeValue;

use super::error::{ConfigError, ConfigErrors, ConfigLocation};
use super::expected_value::listed;
use super::key::Table as _;
use super::name_hint::name_hint;
use super::settings::Config;
use super::source::SourceConfig;
use super::validate::{MemoryRule, check_at};

/// The effect of an argument on its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceChange {
    /// `NAME`: the source is one of the sources that replace the configured set.
    Replace,
    /// `+NAME`: the source is added to the set.
    Add,
    /// `-NAME`: the source is removed from the set.
    Remove,
}

/// One argument, split into its parts.
#[derive(Debug, Clone, Copy)]
struct SourceArgument<'a> {
    text: &'a str,
    change: SourceChange,
    name: &'a str,
    period: Option<&'a str>,
}

impl Config {
    /// Selects sources. `NAME` enables the named source and disables all sources without an
    /// argument. `+NAME` enables a source in addition to the enabled sources, and `-NAME` disables
    /// a source. `@PERIOD` may follow the name of a source unless the argument removes the source.
    /// Without arguments, nothing changes.
    ///
    /// A source that is named without a period keeps its configured period. A named source becomes
    /// `required`: the recorder does not start if this host lacks it. Sources that are not named
    /// keep their other settings.
    ///
    /// # Errors
    /// It is an error if some names have a sign and others do not. An argument is an error if its
    /// source is unknown or was named before, if its period is invalid, or if it removes a source
    /// that is not enabled. A selection is an error if it does not fit into `recorder.memory_max`,
    /// or if a synthetic frame is larger than `storage.frame_max`. On error, `self` is unchanged.
    pub fn select_sources(
        &mut self,
        arguments: &[String],
        memory_rule: MemoryRule,
    ) -> Result<(), ConfigErrors> {
        let arguments: Vec<_> = arguments.iter().map(|text| SourceArgument::parse(text)).collect();
        let Some(first) = arguments.first() else { return Ok(()) };
        let replaces = first.change == SourceChange::Replace;
        let is_other = |other: &&SourceArgument<'_>| (other.change == SourceChange::Replace) != replaces;
        if let Some(other) = arguments.iter().find(is_other) {
            let (name, signed) = if replaces { (first, other) } else { (other, first) };
            let problem = format!(
                "{} replaces the sources and {} changes them; write + or - before each name or before none",
                name.text.escape_debug(),
                signed.text.escape_debug()
            );
            return Err(ConfigErrors::new(vec![at_argument("--source".to_owned(), problem)], 0));
        }
        let mut selected = self.clone();
        if replaces {
            selected.sources.iter_mut().for_each(|source| source.enabled = false);
        }
        let mut errors = Vec::new();
        let mut named = Vec::new();
        for argument in &arguments {
            if let Err(problem) = selected.select(*argument, &mut named) {
                let location = format!("--source {}", argument.text.escape_debug());
                errors.push(at_argument(location, problem));
            }
        }
        if !errors.is_empty() {
            return Err(ConfigErrors::new(errors, 0));
        }
        // This check is skipped after an invalid argument, because it would only report the
        // consequences of that argument.
        check_at(&selected, &ConfigLocation::Argument("--source".to_owned()), memory_rule)?;
        *self = selected;
        Ok(())
    }

    /// Applies one argument. `named` has the indices of the sources that earlier arguments name.
    fn select(&mut self, argument: SourceArgument<'_>, named: &mut Vec<usize>) -> Result<(), String> {
        let known: Vec<_> = self.sources.iter().map(SourceConfig::full_name).collect();
        let index = known.iter().position(|name| name == argument.name);
        let Some((index, source)) = index.and_then(|index| Some((index, self.sources.get_mut(index)?)))
        else {
            let near = nearest_name(argument.name, known.iter().map(AsRef::as_ref));
            let all: Vec<String> = known.iter().map(ToString::to_string).collect();
            return Err(format!("no such source; {}", name_hint(near, &all, "the sources are")));
        };
        if named.contains(&index) {
            return Err("named twice; name each source once".to_owned());
        }
        named.push(index);
        if argument.change == SourceChange::Remove {
            if argument.period.is_some() {
                let problem = "has a period but removes the source; leave out the @ and the period";
                return Err(problem.to_owned());
            }
            if !source.enabled {
                let on = self.enabled_sources().map(|source| source.full_name().into_owned());
                let on = listed(&on.collect::<Vec<_>>(), "and");
                return Err(format!("is not on; the sources that are on are {on}"));
            }
            source.enabled = false;
            return Ok(());
        }
        source.enabled = true;
        source.required = true;
        if let Some(period) = argument.period {
            source.read("period", DeValue::String(Cow::Borrowed(period)))?;
        }
        Ok(())
    }
}

impl<'a> SourceArgument<'a> {
    fn parse(text: &'a str) -> Self {
        // No name of a source or instance begins with a sign or contains an @.
        let (change, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => (SourceChange::Add, rest),
            (_, Some(rest)) => (SourceChange::Remove, rest),
            _ => (SourceChange::Replace, text),
        };
        let (name, period) = match rest.split_once('@') {
            Some((name, period)) => (name, Some(period)),
            None => (rest, None),
        };
        Self { text, change, name, period }
    }
}

fn at_argument(location: String, problem: String) -> ConfigError {
    ConfigError { location: ConfigLocation::Argument(location), key: None, value: None, problem }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flatcap_sampling::sources::CATALOG;

    use super::*;

    const NO_RULE: MemoryRule = |_| Ok(());

    fn select(arguments: &[&str]) -> Result<Config, String> {
        let mut config = Config::default();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let unchanged = config.clone();
        match config.select_sources(&arguments, NO_RULE) {
            Ok(()) => Ok(config),
            Err(errors) => {
                assert_eq!(config, unchanged, "a refused selection must not change anything");
                Err(errors.to_string())
            }
        }
    }

    #[test]
    fn replaces_the_configured_set() {
        // Proves that exactly the named sources are enabled. They are required, and have the period
        // from the argument or the configuration.
        let config = select(&["synthetic@100us", "load"]).unwrap();
        let enabled: Vec<_> = config
            .enabled_sources()
            .map(|source| (source.spec.name, source.period, source.required))
            .collect();
        let expected =
            [("load", Duration::from_secs(1), true), ("synthetic", Duration::from_micros(100), true)];
        assert_eq!(enabled, expected);
        assert_eq!(select(&[]), Ok(Config::default()));
    }

    #[test]
    fn instances_are_selected_by_their_full_names() {
        // Proves that an instance is selected by its full name, and that its kind alone does not
        // name a source.
        let mut config = Config::parse("f.toml", "[source.file.a-b]\npath = \"/x\"\n").unwrap();
        config.select_sources(&["file.a-b@2s".to_owned()], NO_RULE).unwrap();
        let enabled: Vec<_> = config.enabled_sources().map(|s| (s.full_name(), s.period)).collect();
        assert_eq!(enabled, [("file.a-b".into(), Duration::from_secs(2))]);
        let errors = config
            .select_sources(&["file".to_owned(), "file.x".to_owned()], NO_RULE)
            .unwrap_err()
            .to_string();
        assert!(errors.starts_with("--source file: no such source;"), "{errors}");
        assert!(errors.ends_with("--source file.x: no such source; did you mean file.a-b?"), "{errors}");
    }

    #[test]
    fn signs_change_the_configured_set() {
        // Proves that + adds a source, or changes the period of an enabled source, that - removes a
        // source, and that all other sources stay as they are.
        let names = |config: &Config| -> Vec<String> {
            config.enabled_sources().map(|source| source.full_name().into_owned()).collect()
        };
        let before = names(&Config::default());
        let config = select(&["+synthetic@50ms", "+load@2s", "-cpu"]).unwrap();
        let mut expected: Vec<String> = before.iter().filter(|name| *name != "cpu").cloned().collect();
        let mut found = names(&config);
        expected.push("synthetic".to_owned());
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        let of = |name: &str| {
            let source = config.sources.iter().find(|source| source.full_name() == name).unwrap();
            (source.period, source.required)
        };
        assert_eq!(of("synthetic"), (Duration::from_millis(50), true));
        assert_eq!(of("load"), (Duration::from_secs(2), true));
        let memory = Config::default().sources.iter().find(|s| s.full_name() == "memory").unwrap().period;
        assert_eq!(of("memory"), (memory, false));
        assert_eq!(of("cpu"), (config.sources[0].period, false));

        // The arguments apply to the sources of a configuration and not to the defaults.
        let text = "[source.cpu]\nenabled = false\n[source.file.a]\npath = \"/x\"\nenabled = false\n";
        let mut config = Config::parse("f.toml", text).unwrap();
        config.select_sources(&["+file.a".to_owned(), "-load".to_owned()], NO_RULE).unwrap();
        assert!(names(&config).contains(&"file.a".to_owned()));
        assert!(!names(&config).iter().any(|name| name == "cpu" || name == "load"));
    }

    #[test]
    fn wrong_changes_are_refused() {
        // Proves the message of each mistake with signs.
        let on: Vec<_> = Config::default().enabled_sources().map(|s| s.full_name().into_owned()).collect();
        let (last, others) = on.split_last().unwrap();
        let on = format!("{} and {last}", others.join(", "));
        for (arguments, expected) in [
            (
                &["cpu", "+load@1s"][..],
                "--source: cpu replaces the sources and +load@1s changes them; write + or - before each name \
                 or before none"
                    .to_owned(),
            ),
            (
                &["-load", "disk"],
                "--source: disk replaces the sources and -load changes them; write + or - before each name \
                 or before none"
                    .to_owned(),
            ),
            (&["-synthetic"], format!("--source -synthetic: is not on; the sources that are on are {on}")),
            (
                &["-cpu@1s"],
                "--source -cpu@1s: has a period but removes the source; leave out the @ and the period"
                    .to_owned(),
            ),
            (&["+prozess"], "--source +prozess: no such source; did you mean process?".to_owned()),
            (&["-cpus"], "--source -cpus: no such source; did you mean cpu?".to_owned()),
            (&["+cpu", "-cpu"], "--source -cpu: named twice; name each source once".to_owned()),
        ] {
            assert_eq!(select(arguments), Err(expected), "{arguments:?}");
        }
        let all: Vec<String> =
            Config::default().enabled_sources().map(|s| format!("-{}", s.full_name())).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let error = select(&all).unwrap_err();
        assert!(error.contains("no source is enabled; enable at least one"), "{error}");
    }

    #[test]
    fn every_invalid_argument_is_reported() {
        // Proves the full message of each kind of invalid argument, and that all of them are
        // reported together.
        let single = CATALOG.iter().filter(|spec| !spec.has_instances());
        let words: Vec<&str> = single.map(|spec| spec.name).collect();
        let (last, others) = words.split_last().unwrap();
        let known = format!("{} and {last}", others.join(", "));
        assert_eq!(
            select(&["cpus", "radio", "cpu@10", "load", "load@1s", "disk@1us", "x\u{1b}@1s", "vmstat@"]),
            Err(format!(
                "--source cpus: no such source; did you mean cpu?\n\
                 --source radio: no such source; the sources are {known}\n\
                 --source cpu@10: no unit, as in 10s; write a number with ns, us, ms, s, m, h or d, from 50us to 1h\n\
                 --source load@1s: named twice; name each source once\n\
                 --source disk@1us: too small; write a number with ns, us, ms, s, m, h or d, from 50us to 1h\n\
                 --source x\\u{{1b}}@1s: no such source; the sources are {known}\n\
                 --source vmstat@: empty; write a number with ns, us, ms, s, m, h or d, from 50us to 1h"
            ))
        );
    }

    #[test]
    fn a_selection_must_fit_the_frame_limit() {
        // Proves that selecting a disabled source also checks its settings, which are not checked
        // while it is disabled.
        let text =
            "[storage]\nframe_max = \"64KiB\"\n[source.synthetic]\nshape = \"wide\"\npayload = \"1MiB\"\n";
        let mut config = Config::parse("f.toml", text).unwrap();
        let errors = config.select_sources(&["synthetic".to_owned()], NO_RULE).unwrap_err().to_string();
        assert_eq!(
            errors,
            "--source: [source.synthetic] payload: a frame of 1053184B exceeds frame_max, which is \"64KiB\"; \
             lower payload or raise [storage] frame_max"
        );
    }
}
