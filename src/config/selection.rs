//! Sources selected on the command line: `--source NAME[@PERIOD]` replaces the configured set.

use std::borrow::Cow;

use flatcap_format::schema::nearest_name;
use toml::de::DeValue;

use super::error::{ConfigError, ConfigErrors, ConfigLocation, Problem};
use super::key::Table as _;
use super::settings::Config;
use super::source::SourceConfig;
use super::validate::{MemoryRule, check_at};

impl Config {
    /// Enables the named sources and disables all others. Each argument is `NAME` or `NAME@PERIOD`;
    /// without arguments nothing changes.
    ///
    /// A source without a period keeps the configured one. A named source becomes `required`: the
    /// recorder does not start if this host lacks it. Sources that are not named keep their other
    /// settings.
    ///
    /// # Errors
    /// Every argument with an unknown source, a source named before, or an invalid period;
    /// a selection that does not fit into `recorder.memory_max`; a synthetic frame larger than
    /// `storage.frame_max`. On error, `self` is unchanged.
    pub fn select_sources(
        &mut self,
        arguments: &[String],
        memory_rule: MemoryRule,
    ) -> Result<(), ConfigErrors> {
        if arguments.is_empty() {
            return Ok(());
        }
        let mut selected = self.clone();
        for source in &mut selected.sources {
            source.enabled = false;
        }
        let mut errors = Vec::new();
        for argument in arguments {
            if let Err(problem) = selected.select(argument) {
                let location = ConfigLocation::Argument(format!("--source {}", argument.escape_debug()));
                errors.push(ConfigError { location, key: None, value: None, problem });
            }
        }
        if !errors.is_empty() {
            return Err(ConfigErrors::new(errors, 0));
        }
        // Not after a wrong argument, whose consequences this would report.
        check_at(&selected, &ConfigLocation::Argument("--source".to_owned()), memory_rule)?;
        *self = selected;
        Ok(())
    }

    fn select(&mut self, argument: &str) -> Result<(), Problem> {
        // No name of a source or instance contains this character.
        let (word, period) = match argument.split_once('@') {
            Some((word, period)) => (word, Some(period)),
            None => (argument, None),
        };
        let known: Vec<_> = self.sources.iter().map(SourceConfig::full_name).collect();
        let at = known.iter().position(|name| name == word);
        let source = at.and_then(|at| self.sources.get_mut(at)).ok_or_else(|| Problem::UnknownSource {
            near: nearest_name(word, known.iter().map(AsRef::as_ref)).map(str::to_owned),
            known: known.iter().map(ToString::to_string).collect(),
        })?;
        // All sources were disabled before, so an enabled one was named already.
        if source.enabled {
            return Err(Problem::DuplicateSource);
        }
        source.enabled = true;
        source.required = true;
        if let Some(period) = period {
            let value = DeValue::String(Cow::Borrowed(period));
            source.read("period", value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sampling::sources::CATALOG;

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
        // Proves that exactly the named sources are enabled, required, and have the given or
        // configured period.
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
        // Proves that an instance is selected by its full name, and that its kind alone is not a
        // source.
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
    fn every_invalid_argument_is_reported() {
        // Proves the full message of each kind of invalid argument, all of them at once.
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
        // Proves that a setting that is not checked in a disabled source is checked when it is
        // selected.
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
