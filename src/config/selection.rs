//! Which sources does the command line ask for? `--source NAME[@PERIOD]` replaces the configured set.

use super::check;
use super::default::PERIOD_RANGE;
use super::error::{ConfigError, ConfigErrors, Place, Problem};
use super::settings::Config;
use super::source::Source;
use super::table::with_unit;
use super::units::parse_duration;
use super::walk::nearest;
use super::wanted::Wanted;

impl Config {
    /// Reads the named sources and no others, each as `NAME` or `NAME@PERIOD`; no argument leaves everything
    /// as it is.
    ///
    /// A source without a period keeps the configured one. Whoever names a source wants it, so it becomes
    /// `required`: where this host lacks it, the agent does not start. Sources that are not named are off
    /// and else unchanged.
    ///
    /// # Errors
    /// Every argument that names no source, one that was named before, or an unusable period; a selection
    /// that does not fit into `agent.memory_max`; a synthetic frame larger than `storage.frame_max`. `self` is then unchanged.
    pub fn select_sources(&mut self, arguments: &[String]) -> Result<(), ConfigErrors> {
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
                errors.push(error(argument, problem));
            }
        }
        if errors.is_empty() {
            let checks = [
                ("[agent] memory_max", check::memory(&selected)),
                ("[source.synthetic] payload", check::synthetic_frame(&selected)),
            ];
            for (key, result) in checks {
                if let Err(problem) = result {
                    let place = Place::Argument("--source".to_owned());
                    errors.push(ConfigError { place, key: Some(key.to_owned()), value: None, problem });
                }
            }
        }
        if !errors.is_empty() {
            return Err(ConfigErrors::new(errors, 0));
        }
        *self = selected;
        Ok(())
    }

    fn select(&mut self, argument: &str) -> Result<(), Problem> {
        let (word, period) = match argument.split_once('@') {
            Some((word, period)) => (word, Some(period)),
            None => (argument, None),
        };
        let known: Vec<_> = self.sources.iter().map(Source::full_name).collect();
        let at = known.iter().position(|name| name == word);
        let source = at.and_then(|at| self.sources.get_mut(at)).ok_or_else(|| Problem::UnknownSource {
            near: nearest(word, known.iter().map(AsRef::as_ref)),
            known: known.iter().map(ToString::to_string).collect(),
        })?;
        if source.enabled {
            return Err(Problem::SourceTwice);
        }
        source.enabled = true;
        source.required = true;
        if let Some(period) = period {
            let wanted = Wanted::Duration(PERIOD_RANGE.clone());
            source.period = with_unit(parse_duration(period), &PERIOD_RANGE, wanted)?;
        }
        Ok(())
    }
}

fn error(argument: &str, problem: Problem) -> ConfigError {
    let place = Place::Argument(format!("--source {}", argument.escape_debug()));
    ConfigError { place, key: None, value: None, problem }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::SourceName;

    fn select(arguments: &[&str]) -> Result<Config, String> {
        let mut config = Config::default();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let unchanged = config.clone();
        match config.select_sources(&arguments) {
            Ok(()) => Ok(config),
            Err(errors) => {
                assert_eq!(config, unchanged, "a refused selection must not change anything");
                Err(errors.to_string())
            }
        }
    }

    #[test]
    fn replaces_the_configured_set() {
        // Proves that exactly the named sources are on, required, and at the asked or configured period.
        let config = select(&["synthetic@100us", "load"]).unwrap();
        let enabled: Vec<_> =
            config.enabled_sources().map(|source| (source.name, source.period, source.required)).collect();
        let expected = [
            (SourceName::Load, Duration::from_secs(1), true),
            (SourceName::Synthetic, Duration::from_micros(100), true),
        ];
        assert_eq!(enabled, expected);
        assert_eq!(select(&[]), Ok(Config::default()));
    }

    #[test]
    fn instances_are_selected_by_their_full_names() {
        // Proves that an instance is asked for as it is shown, and that its kind alone is no source.
        let mut config = Config::parse("f.toml", "[source.file.a-b]\npath = \"/x\"\n").unwrap();
        config.select_sources(&["file.a-b@2s".to_owned()]).unwrap();
        let enabled: Vec<_> = config.enabled_sources().map(|s| (s.full_name(), s.period)).collect();
        assert_eq!(enabled, [("file.a-b".into(), Duration::from_secs(2))]);
        let errors =
            config.select_sources(&["file".to_owned(), "file.x".to_owned()]).unwrap_err().to_string();
        assert!(errors.starts_with("--source file: no such source;"), "{errors}");
        assert!(errors.ends_with("--source file.x: no such source; did you mean file.a-b?"), "{errors}");
    }

    #[test]
    fn every_bad_argument_is_told() {
        // Proves the full text of each way an argument can be wrong, all of them at once.
        let words: Vec<&str> = SourceName::single().map(SourceName::as_str).collect();
        let (last, others) = words.split_last().unwrap();
        let known = format!("{} and {last}", others.join(", "));
        assert_eq!(
            select(&["cpus", "radio", "cpu@10", "load", "load@1s", "disk@1us", "x\u{1b}@1s", "vmstat@"]),
            Err(format!(
                "--source cpus: no such source; did you mean cpu?\n\
                 --source radio: no such source; the sources are {known}\n\
                 --source cpu@10: no unit; write a number with ns, us, ms, s, m, h or d, from 50us to 1h\n\
                 --source load@1s: asked for twice; name each source once\n\
                 --source disk@1us: too small; write a number with ns, us, ms, s, m, h or d, from 50us to 1h\n\
                 --source x\\u{{1b}}@1s: no such source; the sources are {known}\n\
                 --source vmstat@: empty; write a number with ns, us, ms, s, m, h or d, from 50us to 1h"
            ))
        );
    }

    #[test]
    fn a_selection_must_fit_into_memory() {
        // Proves that a selection of more sources is checked against memory_max again.
        let text = "[agent]\nmemory_max = \"39MiB\"\n[source.synthetic]\nenabled = true\n";
        let off = ["cpu", "memory", "vmstat", "load", "disk", "network", "pressure", "self"];
        let off = off.map(str::to_owned);
        let all_off = off.each_ref().map(|name| format!("[source.{name}]\nenabled = false\n")).concat();
        let mut config = Config::parse("f.toml", &(text.to_owned() + &all_off)).unwrap();
        let errors = config.select_sources(&off).unwrap_err().to_string();
        assert!(
            errors.starts_with("--source: [agent] memory_max: too little: 3 slabs being filled"),
            "{errors}"
        );
        assert!(config.select_sources(&["cpu".to_owned()]).is_ok());
    }

    #[test]
    fn a_selection_must_fit_the_frame_limit() {
        // Proves that what a file may leave unchecked in a source that is off is checked when it is turned on.
        let text =
            "[storage]\nframe_max = \"64KiB\"\n[source.synthetic]\nshape = \"wide\"\npayload = \"1MiB\"\n";
        let mut config = Config::parse("f.toml", text).unwrap();
        let errors = config.select_sources(&["synthetic".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            errors,
            "--source: [source.synthetic] payload: a frame of 1053184B exceeds frame_max, which is \"64KiB\"; \
             lower payload or raise [storage] frame_max"
        );
    }
}
