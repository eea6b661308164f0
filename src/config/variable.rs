//! Which settings does the environment make? `FLATCAP_STORAGE__SEGMENT_SIZE=64MiB`: table and key in capitals, with two
//! underscores for each dot.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::known_keys;
use super::error::{ConfigError, Place, Problem};
use super::file::FILE_BYTES_MAX;
use super::merge::lay_over;
use super::source::SourceName;
use super::texts::{Texts, Variable};
use super::walk::{Known, Walk, joined, nearest};
use super::wanted::Wanted;

/// What the names of variables begin with that are settings.
pub const VARIABLE_PREFIX: &str = "FLATCAP_";
/// Most settings from the environment; with more, each beyond is an error.
pub const VARIABLES_MAX: usize = 256;
/// Variables that are no settings and have a meaning elsewhere.
const OTHERS: [&str; 1] = ["FLATCAP_LOG"];
/// What a dot of a key's full name is in a variable's name.
const DOT: &str = "__";

/// Adds the variables that are settings, in the order of their names, or says why one cannot be had. `room` is what all texts may still take; it
/// gets smaller.
pub(super) fn add(
    texts: &mut Texts,
    variables: &[(OsString, OsString)],
    room: &mut usize,
) -> Result<(), Vec<ConfigError>> {
    let mut errors = Vec::new();
    let mut variables: Vec<_> =
        variables.iter().map(|(name, value)| (name.to_string_lossy(), value)).collect();
    variables.retain(|(name, _)| name.starts_with(VARIABLE_PREFIX) && !is_of_others(name));
    variables.sort();
    for (count, (name, value)) in variables.into_iter().enumerate() {
        let mut reject = |problem| {
            let place = Place::Variable(name.to_string());
            errors.push(ConfigError { place, key: None, value: None, problem });
        };
        let Some(value) = value.to_str() else {
            reject(Problem::VariableNotUtf8);
            continue;
        };
        if count >= VARIABLES_MAX {
            reject(Problem::TooManyVariables { limit: VARIABLES_MAX });
            break;
        }
        let Some(left) = room.checked_sub(name.len() + value.len()) else {
            reject(Problem::AllTooLarge { limit: FILE_BYTES_MAX as u64 });
            break;
        };
        *room = left;
        texts.add_variable(&name, value);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The variables' settings as a tree; what names none is noted. `files` tells which instances have names already.
pub(super) fn tree<'t>(walk: &mut Walk<'t>, texts: &'t Texts, files: &DeTable<'_>) -> DeTable<'t> {
    let mut tree = DeTable::new();
    if texts.variables().next().is_none() {
        return tree;
    }
    let keys = known_keys();
    let mut seen = BTreeSet::new();
    for variable in texts.variables() {
        let setting = if seen.insert(variable.name) {
            Setting::of(variable.name, &keys, files)
        } else {
            Err(Problem::Duplicate)
        };
        match setting {
            Ok(setting) => {
                if let Some(value) = value(walk, &variable, &setting) {
                    lay_over(&mut tree, nested(&setting, &variable, value));
                }
            }
            Err(problem) => walk.reject_text(variable.name_span.start, problem),
        }
    }
    tree
}

/// Variables that Kubernetes gives each container for a service of the name `flatcap` (`FLATCAP_SERVICE_HOST`,
/// `FLATCAP_PORT_9598_TCP_ADDR`), and our own that are no settings. No table is called so, and none of these has two underscores.
fn is_of_others(name: &str) -> bool {
    let of_service = ["FLATCAP_SERVICE_", "FLATCAP_PORT_"].iter().any(|start| name.starts_with(start));
    OTHERS.contains(&name) || name == "FLATCAP_PORT" || (of_service && !name.contains(DOT))
}

/// What a variable's name means.
#[derive(Debug, PartialEq, Eq)]
struct Setting<'k> {
    table: String,
    key: &'static str,
    wanted: &'k Wanted,
}

impl<'k> Setting<'k> {
    fn of(name: &str, keys: &'k [Known], files: &DeTable<'_>) -> Result<Self, Problem> {
        let keys = || keys.iter().filter(|known| !matches!(known.wanted, Wanted::Table(_)));
        for kind in SourceName::ALL.iter().filter(|name| name.has_instances()) {
            let kind = kind.as_str();
            let Some((instance, key)) = instance_and_key(name, kind) else { continue };
            let table = format!("source.{kind}.name");
            let known = keys().find(|known| known.table == table && capitals(known.key) == key);
            if let Some(Known { key, wanted, .. }) = known {
                let table = format!("source.{kind}.{}", instance_of(instance, kind, files)?);
                return Ok(Setting { table, key, wanted });
            }
        }
        match keys().find(|known| variable_of(&known.table, known.key) == name) {
            Some(known) => Ok(Setting { table: known.table.clone(), key: known.key, wanted: &known.wanted }),
            None => Err(Problem::UnknownVariable { near: near(name, keys()) }),
        }
    }
}

/// The variable of a key.
fn variable_of(table: &str, key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", capitals(&joined(table, key).replace('.', DOT)))
}

fn capitals(text: &str) -> String {
    text.to_ascii_uppercase()
}

/// The two, where a name is that of a key of an instance. A key has no two underscores in a row; an instance's name may.
fn instance_and_key<'n>(name: &'n str, kind: &str) -> Option<(&'n str, &'n str)> {
    let start = format!("{}{DOT}", variable_of("source", kind));
    let (instance, key) = name.strip_prefix(&start)?.rsplit_once(DOT)?;
    let is_written_so = !instance.is_empty() && !instance.contains(|c: char| c.is_ascii_lowercase());
    is_written_so.then_some((instance, key))
}

/// The instance that is meant: the one of that name in small letters; else the one in a file that is called so but for dashes;
/// else a new one.
fn instance_of(instance: &str, kind: &str, files: &DeTable<'_>) -> Result<String, Problem> {
    let name = instance.to_ascii_lowercase();
    let instances = files
        .get("source")
        .and_then(|sources| sources.get_ref().get(kind))
        .and_then(|instances| instances.get_ref().as_table());
    let names = instances.into_iter().flat_map(|instances| instances.keys());
    let mut names: Vec<String> =
        names.map(|key| key.get_ref().to_string()).filter(|known| known.replace('-', "_") == name).collect();
    if names.contains(&name) {
        return Ok(name);
    }
    match names.len() {
        0 => Ok(name),
        1 => Ok(names.remove(0)),
        _ => Err(Problem::AmbiguousVariable { names }),
    }
}

/// The variable that was probably meant. One underscore for two is the commonest slip.
fn near<'k>(name: &str, keys: impl Iterator<Item = &'k Known>) -> Option<String> {
    let instances = ["file", "command"].map(|kind| (format!("source.{kind}.name"), kind));
    let candidates: Vec<String> = keys
        .map(|known| {
            let of_instance = instances.iter().find(|(table, _)| *table == known.table);
            match of_instance.and_then(|(_, kind)| Some((kind, instance_and_key(name, kind)?.0))) {
                Some((kind, instance)) => variable_of(&format!("source.{kind}.{instance}"), known.key),
                None => variable_of(&known.table, known.key),
            }
        })
        .collect();
    let single = |name: &str| capitals(name).replace(DOT, "_");
    let slip = candidates.iter().find(|candidate| single(candidate) == single(name));
    // Without what all of them begin with, which would make everything look alike.
    let short = |name: &str| name.get(VARIABLE_PREFIX.len()..).unwrap_or_default().to_ascii_lowercase();
    let known: Vec<String> = candidates.iter().map(|candidate| short(candidate)).collect();
    let similar = || nearest(&short(name), known.iter().map(String::as_str));
    slip.cloned().or_else(|| similar().map(|near| format!("{VARIABLE_PREFIX}{}", capitals(&near))))
}

/// The value as the key takes it: numbers, lists, true and false as in a file, everything else as a text without quotes.
fn value<'t>(walk: &mut Walk<'t>, variable: &Variable<'t>, setting: &Setting<'_>) -> Option<DeValue<'t>> {
    let found = match setting.wanted {
        Wanted::Flag | Wanted::Number(_) => "this text",
        Wanted::Numbers(_)
        | Wanted::Patterns
        | Wanted::Words(_)
        | Wanted::Processes
        | Wanted::Ways
        | Wanted::Command => "a text that is no list",
        _ => return Some(DeValue::String(Cow::Borrowed(variable.value))),
    };
    let parsed = DeValue::parse(variable.value).map(Spanned::into_inner);
    if parsed.is_err() {
        let key = format!("[{}] {}", setting.table, setting.key);
        let problem = Problem::WrongType { found, wanted: setting.wanted.clone() };
        walk.reject_value(variable.value_span.clone(), key, problem);
    }
    parsed.ok()
}

/// A tree of one value.
fn nested<'t>(setting: &Setting<'_>, variable: &Variable<'t>, value: DeValue<'t>) -> DeTable<'t> {
    let entry = |name: String, value: Spanned<DeValue<'t>>| {
        DeTable::from_iter([(Spanned::new(variable.name_span.clone(), Cow::Owned(name)), value)])
    };
    let value = Spanned::new(variable.value_span.clone(), value);
    let innermost = entry(setting.key.to_owned(), value);
    setting.table.rsplit('.').fold(innermost, |inner, name| {
        entry(name.to_owned(), Spanned::new(variable.name_span.clone(), DeValue::Table(inner)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigErrors, Layers};

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let variables = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Layers::defaults().with_variables(variables).read().map(|layered| layered.config)
    }

    fn errors(pairs: &[(&str, &str)]) -> String {
        read(pairs).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned())
    }

    #[test]
    fn every_key_has_a_variable_of_its_own() {
        // Proves that no two keys share a name, that each name leads back to its key, and that none looks like another program's.
        let keys: Vec<Known> = known_keys();
        let mut names = BTreeSet::new();
        let none = DeTable::new();
        for known in keys.iter().filter(|known| !matches!(known.wanted, Wanted::Table(_))) {
            let name = variable_of(&known.table, known.key);
            assert!(names.insert(name.clone()), "{name}");
            assert!(!is_of_others(&name), "{name}");
            let setting = Setting::of(&name, &keys, &none).unwrap();
            assert_eq!((setting.table.as_str(), setting.key), (known.table.as_str(), known.key));
        }
        assert!(names.len() > 200, "{}", names.len());
        assert!(
            names.contains("FLATCAP_STORAGE__SEGMENT_SIZE") && names.contains("FLATCAP_SOURCE__CPU__PERIOD")
        );
    }

    #[test]
    fn values_are_what_their_keys_take() {
        // Proves each kind of value: a text that looks like a number stays one where a text belongs.
        let config = read(&[
            ("FLATCAP_AGENT__DATA_DIR", "5"),
            ("FLATCAP_AGENT__LOCK_MEMORY", "true"),
            ("FLATCAP_CONTROL__METRICS_LISTEN", "9598"),
            ("FLATCAP_STORAGE__SEGMENT_SIZE", "64MiB"),
            ("FLATCAP_GROUP__FAST__CPUS", "[3, 1]"),
            ("FLATCAP_GROUP__FAST__PRIORITY", "0x10"),
            ("FLATCAP_SOURCE__DISK__INCLUDE", "[\"sd*\", 'nvme*']"),
            ("FLATCAP_SOURCE__COMMAND__X_Y__COMMAND", "[\"/bin/x\", \"a b\"]"),
            ("FLATCAP_SOURCE__FILE__A__PATH", "/a \"b\" = #c\n"),
        ])
        .unwrap();
        assert_eq!((config.agent.data_dir.to_str(), config.agent.lock_memory), (Some("5"), true));
        assert_eq!(config.control.metrics_listen.unwrap().to_string(), "127.0.0.1:9598");
        assert_eq!(config.storage.segment_size, 64 << 20);
        assert_eq!((config.groups.fast.cpus.as_slice(), config.groups.fast.priority), (&[1, 3][..], 16));
        let disk = config.sources.iter().find(|source| source.full_name() == "disk").unwrap();
        assert!(disk.include[1].fits("nvme0"));
        let names: Vec<_> = config.sources.iter().filter(|source| source.instance.is_some()).collect();
        assert_eq!([names[0].full_name(), names[1].full_name()], ["file.a", "command.x_y"]);
        let crate::config::Origin::File(path) = &names[0].readout.as_ref().unwrap().origin else { panic!() };
        assert_eq!(path.to_str(), Some("/a \"b\" = #c\n"));
    }

    #[test]
    fn wrong_values_are_told_with_the_variable() {
        // Proves the full text of what each kind of mistake is told.
        for (name, value, expected) in [
            (
                "FLATCAP_AGENT__LOCK_MEMORY",
                "yes",
                "[agent] lock_memory = yes: this text is not what belongs here; write true or false without quotes",
            ),
            (
                "FLATCAP_AGENT__LOCK_MEMORY",
                "1",
                "[agent] lock_memory = 1: a number without quotes is not what belongs here; write true or false without quotes",
            ),
            (
                "FLATCAP_GROUP__FAST__PRIORITY",
                "",
                "[group.fast] priority = : this text is not what belongs here; write a whole number without quotes, from 0 to 99",
            ),
            (
                "FLATCAP_GROUP__FAST__CPUS",
                "0-3",
                "[group.fast] cpus = 0-3: a text that is no list is not what belongs here; write a list such as [0, 1] of whole numbers from 0 to 1023",
            ),
            (
                "FLATCAP_GROUP__FAST__CPUS",
                "[0,\n1]\n[agent]",
                "[group.fast] cpus = [0,\\n1]\\n[agent]: a text that is no list is not what belongs here; write a list such as [0, 1] of whole numbers from 0 to 1023",
            ),
            (
                "FLATCAP_SOURCE__CPU__PERIOD",
                "10",
                "[source.cpu] period = 10: no unit; write a number with ns, us, ms, s, m, h or d, from 50us to 1h",
            ),
            (
                "FLATCAP_SOURCE__CPU__PERIOD",
                "\"10ms\"",
                "[source.cpu] period = \"10ms\": no number in front of the unit; write a number with ns, us, ms, s, m, h or d, from 50us to 1h",
            ),
            (
                "FLATCAP_AGENT__HOST_ROOT",
                "",
                "[agent] host_root = : not a path, since it is empty or holds a zero byte; write a path in quotes",
            ),
        ] {
            assert_eq!(errors(&[(name, value)]), format!("environment variable {name}: {expected}"));
        }
        assert_eq!(
            errors(&[("FLATCAP_STORAGE__FRAME_MAX", "1GiB")]).split_once(": too").unwrap().0,
            "built-in default: [agent] memory_max"
        );
    }

    #[test]
    fn unknown_variables_are_not_passed_over() {
        // Proves that each way to miss a name is an error with the nearest name, where there is one.
        for (name, near) in [
            ("FLATCAP_STORAGE_SEGMENT_SIZE", Some("FLATCAP_STORAGE__SEGMENT_SIZE")),
            ("FLATCAP_SOURCE_CPU_PERIOD", Some("FLATCAP_SOURCE__CPU__PERIOD")),
            ("FLATCAP_SOURCE__CPU__PEROID", Some("FLATCAP_SOURCE__CPU__PERIOD")),
            ("FLATCAP_storage__segment_size", Some("FLATCAP_STORAGE__SEGMENT_SIZE")),
            ("FLATCAP_SOURCE__FILE__RAID__PTH", Some("FLATCAP_SOURCE__FILE__RAID__PATH")),
            ("FLATCAP_SOURCE__FILE__raid__PATH", None),
            ("FLATCAP_SEGMENT_SIZE", None),
            ("FLATCAP_", None),
            ("FLATCAP_STORAGE", None),
            ("FLATCAP_LOGS", None),
            ("FLATCAP_X\u{1b}[1m\u{e9}", None),
        ] {
            let text = errors(&[(name, "1")]);
            let shown = name.replace('\u{1b}', "\\u{1b}");
            assert!(text.starts_with(&format!("environment variable {shown}: no such setting; ")), "{text}");
            if let Some(near) = near {
                assert!(text.ends_with(&format!("did you mean {near}?")), "{text}");
            }
        }
        let kubernetes = [
            "FLATCAP_PORT",
            "FLATCAP_PORT_9598_TCP_ADDR",
            "FLATCAP_SERVICE_HOST",
            "FLATCAP_SERVICE_PORT_METRICS",
        ];
        assert_eq!(errors(&kubernetes.map(|name| (name, "tcp://10.0.0.1:9598"))), "no error");
        assert_eq!(errors(&[("FLATCAP_LOG", "debug"), ("flatcap_x", "1"), ("XFLATCAP_Y", "1")]), "no error");
    }

    #[test]
    fn instances_are_found_by_their_names_in_capitals() {
        // Proves which instance of a file a variable means, dashes included, and that what fits several is an error.
        let name = |files: &str, instance: &str| {
            let tree = DeTable::parse(files).unwrap().into_inner();
            instance_of(instance, "file", &tree).unwrap_or_else(|problem| problem.to_string())
        };
        let of = |instance| {
            let names = ["disk-heat", "a_b", "a-b", "c_d-e", "c-d_e"];
            name(&names.map(|name| format!("[source.file.{name}]\n")).concat(), instance)
        };
        assert_eq!([of("DISK_HEAT"), of("A_B"), of("NEW_ONE")], ["disk-heat", "a_b", "new_one"]);
        assert_eq!(of("C_D_E"), "means each of the instances c-d_e and c_d-e; set it in a file");
        assert_eq!(name("source = 5", "X"), "x");
        assert_eq!(name("source.file = [1]", "X"), "x");
        for (name, expected) in [
            ("FLATCAP_SOURCE__FILE__A__B__PATH", Some(("A__B", "PATH"))),
            ("FLATCAP_SOURCE__FILE___X__PATH", Some(("_X", "PATH"))),
            ("FLATCAP_SOURCE__FILE__X___PATH", Some(("X_", "PATH"))),
            ("FLATCAP_SOURCE__FILE____PATH", None),
            ("FLATCAP_SOURCE__FILESYSTEM__PERIOD", None),
        ] {
            assert_eq!(instance_and_key(name, "file"), expected, "{name}");
        }
        let wrong = format!("FLATCAP_SOURCE__FILE__{}__PATH", "A".repeat(33));
        assert!(
            errors(&[(&wrong, "/a")]).contains("not a name; write 1 to 32 of"),
            "{}",
            errors(&[(&wrong, "/a")])
        );
    }

    fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn many_variables_are_refused() {
        // Proves the limits on their number and size, that the same name twice is an error, and that a flood of unknown ones is cut.
        let many = |count: usize| -> Vec<(String, String)> {
            (0..count).map(|at| (format!("FLATCAP_SOURCE__FILE__N{at}__PERIOD"), "1s".to_owned())).collect()
        };
        let text = errors(&borrowed(&many(VARIABLES_MAX + 50)));
        assert_eq!(text.matches("one of more than 256 variables").count(), 1, "{text}");
        assert!(errors(&borrowed(&many(VARIABLES_MAX))).contains("more than 64 of them"));
        let long = "x".repeat(FILE_BYTES_MAX);
        assert!(errors(&[("FLATCAP_AGENT__DATA_DIR", &long)]).contains("may have 1MiB"));
        let twice = [("FLATCAP_AGENT__DATA_DIR", "/a"), ("FLATCAP_AGENT__DATA_DIR", "/b")];
        assert_eq!(errors(&twice), "environment variable FLATCAP_AGENT__DATA_DIR: given twice; keep one");
    }
}
