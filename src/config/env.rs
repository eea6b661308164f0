//! Reads settings from environment variables such as `FLATCAP_STORAGE__SEGMENT_SIZE=64MiB`. The
//! name of the variable is the table and the key in capitals, with two underscores for each dot.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;

use flatcap_format::schema::nearest_name;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{At, Diagnostics};
use super::error::{ConfigError, ConfigLocation};
use super::expected_value::{ExpectedValue, listed};
use super::file::all_too_large;
use super::input_texts::{EnvVariable, InputTexts};
use super::merge::merge_over;
use super::syntax::GIVEN_TWICE;
use super::tables::{ANY_INSTANCE, KnownKey, joined, tables_of_instances, with_every_key};
use super::value_error::ValueError;

/// The prefix of all variables that are settings.
pub const VARIABLE_PREFIX: &str = "FLATCAP_";
/// Maximum number of settings from the environment. More settings are an error.
pub const VARIABLES_MAX: usize = 256;
/// Maximum number of variables of one table that an error message lists. No table has more keys
/// than this.
const TABLE_VARIABLES_MAX: usize = 16;
/// Variables of flatcap that are not settings.
// The log filter is set before the configuration is read, so it is not a setting. The push library
// reads the other two variables. They are allowed here, because an application and a recorder may
// share an environment.
const FOREIGN_VARIABLES: [&str; 3] = ["FLATCAP_LOG", "FLATCAP_PUSH_SOCKET", "FLATCAP_PUSH_LIBRARY"];
/// The text that replaces the dot of a key's full name in the name of a variable.
// One underscore cannot be the separator, because many keys contain one.
const DOT: &str = "__";

/// Adds the variables that are settings to `texts`, in the order of their names. `bytes_left` is
/// the remaining number of bytes of all inputs. This function subtracts the bytes that it adds.
///
/// # Errors
/// A variable is not UTF-8, there are too many variables, or their size exceeds `bytes_left`.
pub(super) fn add(
    texts: &mut InputTexts,
    variables: &[(OsString, OsString)],
    bytes_left: &mut usize,
) -> Result<(), Vec<ConfigError>> {
    let mut errors = Vec::new();
    // A name that is not UTF-8 is converted too. No setting has the converted name, so the variable
    // is reported instead of ignored.
    let mut variables: Vec<_> =
        variables.iter().map(|(name, value)| (name.to_string_lossy(), value)).collect();
    variables.retain(|(name, _)| name.starts_with(VARIABLE_PREFIX) && !is_foreign(name));
    // The variables of an environment have no fixed order. They are sorted, so that errors come in
    // the same order each time.
    variables.sort();
    for (count, (name, value)) in variables.into_iter().enumerate() {
        let mut reject = |problem| {
            let place = ConfigLocation::Variable(name.to_string());
            errors.push(ConfigError { location: place, key: None, value: None, problem });
        };
        let Some(value) = value.to_str() else {
            reject("not UTF-8; write it as UTF-8".to_owned());
            continue;
        };
        // At this check and the checks below, one error is reported for this variable and all later
        // variables.
        if count >= VARIABLES_MAX {
            let limit = VARIABLES_MAX;
            reject(format!("more than {limit} variables set the configuration; write a file instead"));
            break;
        }
        let Some(remaining) = bytes_left.checked_sub(name.len() + value.len()) else {
            reject(all_too_large());
            break;
        };
        *bytes_left = remaining;
        texts.add_variable(&name, value);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Returns the variables as a TOML tree and reports variables that name no setting. `files`
/// contains the instances that the files define.
pub(super) fn tree<'t>(
    walk: &mut Diagnostics<'t>,
    texts: &'t InputTexts,
    files: &DeTable<'_>,
) -> DeTable<'t> {
    let mut tree = DeTable::new();
    if texts.variables().next().is_none() {
        return tree;
    }
    let keys = with_every_key().known_keys();
    let mut seen = BTreeSet::new();
    for variable in texts.variables() {
        // The kernel accepts the same name twice, and programs differ in the value that they use.
        let setting = if seen.insert(variable.name) {
            EnvKey::of(variable.name, &keys, files)
        } else {
            Err(GIVEN_TWICE.to_owned())
        };
        match setting {
            Ok(setting) => {
                if let Some(value) = value(walk, &variable, &setting) {
                    merge_over(&mut tree, nested(&setting, &variable, value));
                }
            }
            Err(problem) => walk.reject(At::Offset(variable.name_span.start), problem),
        }
    }
    tree
}

/// Returns whether a variable is not a setting. Such a variable may be set by Kubernetes in each
/// container for a service named `flatcap` (`FLATCAP_SERVICE_HOST`, `FLATCAP_PORT_9598_TCP_ADDR`),
/// or may be a variable of flatcap that is not a setting. No table has such a name, and the names
/// of these variables do not contain two underscores in a row.
fn is_foreign(name: &str) -> bool {
    let of_service = ["FLATCAP_SERVICE_", "FLATCAP_PORT_"].iter().any(|start| name.starts_with(start));
    FOREIGN_VARIABLES.contains(&name) || name == "FLATCAP_PORT" || (of_service && !name.contains(DOT))
}

/// The key that a variable sets.
#[derive(Debug, PartialEq, Eq)]
struct EnvKey<'k> {
    /// The names of the tables that contain the key, the outermost first. The name of an instance
    /// may contain a dot. Such a name is rejected later.
    tables: Vec<String>,
    key: &'static str,
    expected: &'k ExpectedValue,
}

impl<'k> EnvKey<'k> {
    fn of(name: &str, keys: &'k [KnownKey], files: &DeTable<'_>) -> Result<Self, String> {
        // Keys of instances are checked first. In `keys`, all instances have the same placeholder
        // name, which must not match literally.
        for kind in tables_of_instances() {
            let Some((instance, key)) = instance_and_key(name, &kind) else { continue };
            let table = joined(&kind, ANY_INSTANCE);
            let known = keys.iter().find(|known| known.table == table && capitals(known.key) == key);
            if let Some(KnownKey { key, expected, .. }) = known {
                let instance = instance_of(instance, &kind, files)?;
                let tables = kind.split('.').map(str::to_owned).chain([instance]).collect();
                return Ok(EnvKey { tables, key, expected });
            }
        }
        let is_variable = |known: &&KnownKey, name: &str| variable_of(&known.table, known.key) == name;
        if let Some(known) = keys.iter().find(|known| is_variable(known, name)) {
            let tables = known.table.split('.').map(str::to_owned).collect();
            return Ok(EnvKey { tables, key: known.key, expected: &known.expected });
        }
        Err(unknown(name, keys))
    }
}

/// Returns the name of the variable for a key.
fn variable_of(table: &str, key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", capitals(&joined(table, key).replace('.', DOT)))
}

fn capitals(text: &str) -> String {
    text.to_ascii_uppercase()
}

/// Splits the name of a variable into instance and key, if the variable belongs to an instance in
/// the table `kind`. A key never has two underscores in a row, but the name of an instance may have
/// them.
fn instance_and_key<'n>(name: &'n str, kind: &str) -> Option<(&'n str, &'n str)> {
    let start = format!("{VARIABLE_PREFIX}{}{DOT}", capitals(&kind.replace('.', DOT)));
    let (instance, key) = name.strip_prefix(&start)?.rsplit_once(DOT)?;
    // Names of instances are lower case. A lower-case letter in a variable would be a second
    // spelling of the same name.
    let is_written_so = !instance.is_empty() && !instance.contains(|c: char| c.is_ascii_lowercase());
    is_written_so.then_some((instance, key))
}

/// Returns the name of the instance to which a variable refers. This is the lower-case name if a
/// file defines it. Otherwise it is a name in a file that has dashes instead of some underscores of
/// the lower-case name. If there is no such name either, the lower-case name refers to a new
/// instance.
///
/// # Errors
/// The files define several instances whose names differ only in dashes.
fn instance_of(instance: &str, kind: &str, files: &DeTable<'_>) -> Result<String, String> {
    let name = instance.to_ascii_lowercase();
    // Shells do not accept a dash in the name of a variable, so an underscore also means a dash.
    let mut path = kind.split('.');
    let outermost = path.next().and_then(|name| Some(files.get(name)?.get_ref()));
    let instances = path
        .fold(outermost, |table, name| Some(table?.get(name)?.get_ref()))
        .and_then(|instances| instances.as_table());
    let names = instances.into_iter().flat_map(|instances| instances.keys());
    let mut names: Vec<String> =
        names.map(|key| key.get_ref().to_string()).filter(|known| known.replace('-', "_") == name).collect();
    if names.contains(&name) {
        return Ok(name);
    }
    match names.len() {
        0 => Ok(name),
        1 => Ok(names.remove(0)),
        _ => Err(format!(
            "ambiguous: matches the instances {}; set the value in a file",
            listed(&names, "and")
        )),
    }
}

/// Returns the problem of a variable whose name matches no key, with the variables that the user
/// probably meant.
fn unknown(name: &str, keys: &[KnownKey]) -> String {
    // One underscore instead of two is the most common mistake.
    let single = |name: &str| capitals(name).replace(DOT, "_");
    let kinds = tables_of_instances();
    // For a key of an instance, the candidate uses the instance name from the variable, so that
    // only the keys differ.
    let candidate = |known: &KnownKey| {
        let of_instance = kinds.iter().find(|kind| joined(kind, ANY_INSTANCE) == known.table);
        match of_instance.and_then(|kind| Some((kind, instance_and_key(name, kind)?.0))) {
            Some((kind, instance)) => variable_of(&joined(kind, instance), known.key),
            None => variable_of(&known.table, known.key),
        }
    };
    let candidates: Vec<String> = keys.iter().map(candidate).collect();
    if let Some(slip) = candidates.iter().find(|candidate| single(candidate) == single(name)) {
        return format!("no such setting; did you mean {slip}?");
    }
    let start = single(name) + "_";
    let is_in_table = |known: &&KnownKey| single(&variable_of(&known.table, "")).starts_with(&start);
    let of_table: Vec<String> = keys.iter().filter(is_in_table).map(candidate).collect();
    // The common prefix is removed, because it would make all names similar. The name of a table
    // would not be similar to any key.
    let short = |name: &str| name.get(VARIABLE_PREFIX.len()..).unwrap_or_default().to_ascii_lowercase();
    let known: Vec<String> = candidates.iter().map(|candidate| short(candidate)).collect();
    let similar = nearest_name(&short(name), known.iter().map(String::as_str));
    if of_table.is_empty() {
        return match similar {
            Some(near) => format!("no such setting; did you mean {VARIABLE_PREFIX}{}?", capitals(near)),
            None => "no such setting; a name is FLATCAP_, the table and the key in capitals, with two \
                     underscores between them: FLATCAP_STORAGE__SEGMENT_SIZE"
                .to_owned(),
        };
    }
    let mut shown: Vec<String> = of_table.iter().take(TABLE_VARIABLES_MAX).cloned().collect();
    let others = of_table.len() - shown.len();
    if others > 0 {
        shown.push(format!("one of {others} others"));
    }
    format!("no such setting; it names a table; set {}", listed(&shown, "or"))
}

/// Parses the value of a variable as the type of its key requires. Numbers, lists and booleans are
/// written as in a file. All other values are strings without quotes.
fn value<'t>(
    walk: &mut Diagnostics<'t>,
    variable: &EnvVariable<'t>,
    setting: &EnvKey<'_>,
) -> Option<DeValue<'t>> {
    let label = format!("[{}] {}", setting.tables.join("."), setting.key);
    let mut reject = |error: ValueError| {
        walk.reject(At::Value(variable.value_span.clone(), &label), error.with_advice(setting.expected));
    };
    if variable.value.is_empty() && !setting.expected.is_empty_accepted() {
        reject(ValueError::EmptyVariable);
        return None;
    }
    // The key decides the type of a value, whatever the value looks like. For example, a directory
    // called `5` needs no quotes.
    let found = match setting.expected {
        ExpectedValue::Flag | ExpectedValue::Number(_) => "a string",
        ExpectedValue::Numbers(_)
        | ExpectedValue::Patterns
        | ExpectedValue::Keywords(_)
        | ExpectedValue::Processes
        | ExpectedValue::Compression
        | ExpectedValue::Accounts
        | ExpectedValue::PushedSources
        | ExpectedValue::KeywordsOrNone(_)
        | ExpectedValue::CommandOrNone
        | ExpectedValue::Command => "not a list",
        ExpectedValue::Labels => "not a table",
        _ => return Some(DeValue::String(Cow::Borrowed(variable.value))),
    };
    let parsed = DeValue::parse(variable.value).map(Spanned::into_inner);
    if parsed.is_err() {
        reject(ValueError::WrongType { found });
    }
    parsed.ok()
}

/// Returns a tree that contains only this value.
fn nested<'t>(setting: &EnvKey<'_>, variable: &EnvVariable<'t>, value: DeValue<'t>) -> DeTable<'t> {
    let entry = |name: &str, value: Spanned<DeValue<'t>>| {
        let name = Spanned::new(variable.name_span.clone(), Cow::Owned(name.to_owned()));
        DeTable::from_iter([(name, value)])
    };
    let innermost = entry(setting.key, Spanned::new(variable.value_span.clone(), value));
    setting.tables.iter().rfold(innermost, |inner, name| {
        entry(name, Spanned::new(variable.name_span.clone(), DeValue::Table(inner)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigErrors, FILE_BYTES_MAX, Layers};

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let variables = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Layers::defaults().with_variables(variables).read().map(|layered| layered.config)
    }

    fn errors(pairs: &[(&str, &str)]) -> String {
        read(pairs).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned())
    }

    #[test]
    fn every_key_has_a_variable_of_its_own() {
        // Proves that each key has its own variable name, that this name maps back to the key, and
        // that it is never treated as a foreign variable.
        let keys = with_every_key().known_keys();
        let mut names = BTreeSet::new();
        let none = DeTable::new();
        for known in &keys {
            let name = variable_of(&known.table, known.key);
            assert!(names.insert(name.clone()), "{name}");
            assert!(!is_foreign(&name), "{name}");
            let setting = EnvKey::of(&name, &keys, &none).unwrap();
            assert_eq!((setting.tables.join("."), setting.key), (known.table.clone(), known.key));
        }
        assert!(names.len() > 200, "{}", names.len());
        assert!(
            names.contains("FLATCAP_STORAGE__SEGMENT_SIZE") && names.contains("FLATCAP_SOURCE__CPU__PERIOD")
        );
    }

    #[test]
    fn values_are_what_their_keys_take() {
        // Proves that each type of value is parsed, and that a string that looks like a number
        // stays a string.
        let config = read(&[
            ("FLATCAP_RECORDER__DATA_DIR", "5"),
            ("FLATCAP_RECORDER__LOCK_MEMORY", "true"),
            ("FLATCAP_CONTROL__METRICS_LISTEN", "9598"),
            ("FLATCAP_STORAGE__SEGMENT_SIZE", "64MiB"),
            ("FLATCAP_GROUP__FAST__CPUS", "[3, 1]"),
            ("FLATCAP_GROUP__FAST__PRIORITY", "0x10"),
            ("FLATCAP_SOURCE__DISK__INCLUDE", "[\"sd*\", 'nvme*']"),
            ("FLATCAP_SOURCE__COMMAND__X_Y__COMMAND", "[\"/bin/x\", \"a b\"]"),
            ("FLATCAP_SOURCE__FILE__A__PATH", "/a \"b\" = #c\n"),
            ("FLATCAP_PUSH__ALLOW", "[\"user:app\"]"),
            ("FLATCAP_PUSH__RULE_SOURCES", "[]"),
            ("FLATCAP_TRIGGER__X__WHEN", "cpu.running > 1"),
            ("FLATCAP_TRIGGER__X__CAPTURE", "[\"kmsg\"]"),
            ("FLATCAP_TRIGGER__X__RUN", "[\"/bin/page\", \"me\"]"),
        ])
        .unwrap();
        assert_eq!((config.recorder.data_dir.to_str(), config.recorder.lock_memory), (Some("5"), true));
        assert_eq!(config.control.metrics_listen.unwrap().to_string(), "127.0.0.1:9598");
        assert_eq!(config.storage.segment_size, 64 << 20);
        assert_eq!((config.groups.fast.cpus.as_slice(), config.groups.fast.priority), (&[1, 3][..], 16));
        let disk = config.sources.iter().find(|source| source.full_name() == "disk").unwrap();
        assert!(disk.include[1].matches("nvme0"));
        let names: Vec<_> = config.sources.iter().filter(|source| source.instance.is_some()).collect();
        assert_eq!([names[0].full_name(), names[1].full_name()], ["file.a", "command.x_y"]);
        let flatcap_sampling::TextOrigin::File(path) = &names[0].text_source.as_ref().unwrap().origin else {
            panic!()
        };
        assert_eq!(path.to_str(), Some("/a \"b\" = #c\n"));
        assert_eq!((config.push.allow.len(), config.triggers[0].capture.len()), (1, 1));
        assert_eq!(config.triggers[0].run, ["/bin/page", "me"]);
    }

    #[test]
    fn wrong_values_are_reported_with_the_variable() {
        // Proves the full message of each kind of mistake.
        for (name, value, expected) in [
            (
                "FLATCAP_RECORDER__LOCK_MEMORY",
                "yes",
                "[recorder] lock_memory = yes: wrong type: a string; write true or false without quotes",
            ),
            (
                "FLATCAP_RECORDER__LOCK_MEMORY",
                "1",
                "[recorder] lock_memory = 1: wrong type: a number without quotes; write true or false without quotes",
            ),
            (
                "FLATCAP_GROUP__FAST__PRIORITY",
                "",
                "[group.fast] priority = \"\": an empty value, which is not the same as an unset variable; write a whole number without quotes, from 0 to 99",
            ),
            (
                "FLATCAP_GROUP__FAST__CPUS",
                "0-3",
                "[group.fast] cpus = 0-3: wrong type: not a list; write a list such as [0, 1] of whole numbers from 0 to 1023",
            ),
            (
                "FLATCAP_GROUP__FAST__CPUS",
                "[0,\n1]\n[recorder]",
                "[group.fast] cpus = [0,\\n1]\\n[recorder]: wrong type: not a list; write a list such as [0, 1] of whole numbers from 0 to 1023",
            ),
            (
                "FLATCAP_SOURCE__CPU__PERIOD",
                "10",
                "[source.cpu] period = 10: no unit, as in 10s; write a number with ns, us, ms, s, m, h or d, from 50us to 1h",
            ),
            (
                "FLATCAP_SOURCE__CPU__PERIOD",
                "\"10ms\"",
                "[source.cpu] period = \"10ms\": no number before the unit; write a number with ns, us, ms, s, m, h or d, from 50us to 1h",
            ),
            (
                "FLATCAP_RECORDER__HOST_ROOT",
                "",
                "[recorder] host_root = \"\": an empty value, which is not the same as an unset variable; write a path in quotes",
            ),
        ] {
            assert_eq!(errors(&[(name, value)]), format!("environment variable {name}: {expected}"));
        }
    }

    #[test]
    fn unknown_variables_are_not_ignored() {
        // Proves that each misspelt name is an error, and that the error names the most similar
        // name, if there is one.
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
        for (name, hint) in [
            ("FLATCAP_SEGMENT_SIZE", "two underscores between them: FLATCAP_STORAGE__SEGMENT_SIZE"),
            (
                "FLATCAP_BUFFERING",
                "it names a table; set FLATCAP_BUFFERING__SLAB_SIZE, FLATCAP_BUFFERING__FLUSH_INTERVAL or \
                 FLATCAP_BUFFERING__POLL_INTERVAL",
            ),
            ("FLATCAP_STORAGE", "FLATCAP_STORAGE__MIN_FREE or FLATCAP_STORAGE__FRAME_MAX"),
            ("FLATCAP_SOURCE_CPU", "FLATCAP_SOURCE__CPU__INCLUDE or FLATCAP_SOURCE__CPU__EXCLUDE"),
            ("FLATCAP_GROUP", "FLATCAP_GROUP__BLOCKING__CPUS or FLATCAP_GROUP__BLOCKING__ON_FULL"),
            (
                "FLATCAP_SOURCE__FILE",
                "FLATCAP_SOURCE__FILE__NAME__FORMAT or FLATCAP_SOURCE__FILE__NAME__PATTERN",
            ),
        ] {
            let table = errors(&[(name, "3")]);
            assert!(table.contains(": no such setting; ") && table.ends_with(hint), "{table}");
        }
        let sources = errors(&[("FLATCAP_SOURCE", "3")]);
        assert!(
            sources.contains("set FLATCAP_SOURCE__CPU__ENABLED, ") && sources.ends_with(" others"),
            "{sources}"
        );
        let dotted = errors(&[("FLATCAP_SOURCE__FILE__A.B__PATH", "/a")]);
        assert!(dotted.contains(": not a valid name; write 1 to 32 of"), "{dotted}");
        assert_eq!(dotted.lines().count(), 1, "{dotted}");
        let never = errors(&[("FLATCAP_AGENT__CPUS", "1")]);
        assert!(never.contains(": no such setting; "), "{never}");
        let kubernetes = [
            "FLATCAP_PORT",
            "FLATCAP_PORT_9598_TCP_ADDR",
            "FLATCAP_PUSH_SOCKET",
            "FLATCAP_PUSH_LIBRARY",
            "FLATCAP_SERVICE_HOST",
            "FLATCAP_SERVICE_PORT_METRICS",
        ];
        assert_eq!(errors(&kubernetes.map(|name| (name, "tcp://10.0.0.1:9598"))), "no error");
        assert_eq!(errors(&[("FLATCAP_LOG", "debug"), ("flatcap_x", "1"), ("XFLATCAP_Y", "1")]), "no error");
    }

    #[test]
    fn instances_are_found_by_their_names_in_capitals() {
        // Proves which instance in a file a variable refers to, even for names with dashes, and
        // that an ambiguous name is an error.
        let name = |files: &str, instance: &str| {
            let tree = DeTable::parse(files).unwrap().into_inner();
            instance_of(instance, "source.file", &tree).unwrap_or_else(|problem| problem)
        };
        let of = |instance| {
            let names = ["disk-heat", "a_b", "a-b", "c_d-e", "c-d_e"];
            name(&names.map(|name| format!("[source.file.{name}]\n")).concat(), instance)
        };
        assert_eq!([of("DISK_HEAT"), of("A_B"), of("NEW_ONE")], ["disk-heat", "a_b", "new_one"]);
        assert_eq!(of("C_D_E"), "ambiguous: matches the instances c-d_e and c_d-e; set the value in a file");
        assert_eq!(name("source = 5", "X"), "x");
        assert_eq!(name("source.file = [1]", "X"), "x");
        for (name, expected) in [
            ("FLATCAP_SOURCE__FILE__A__B__PATH", Some(("A__B", "PATH"))),
            ("FLATCAP_SOURCE__FILE___X__PATH", Some(("_X", "PATH"))),
            ("FLATCAP_SOURCE__FILE__X___PATH", Some(("X_", "PATH"))),
            ("FLATCAP_SOURCE__FILE____PATH", None),
            ("FLATCAP_SOURCE__FILESYSTEM__PERIOD", None),
        ] {
            assert_eq!(instance_and_key(name, "source.file"), expected, "{name}");
        }
        let wrong = format!("FLATCAP_SOURCE__FILE__{}__PATH", "A".repeat(33));
        assert!(
            errors(&[(&wrong, "/a")]).contains("not a valid name; write 1 to 32 of"),
            "{}",
            errors(&[(&wrong, "/a")])
        );
    }

    fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn many_variables_are_refused() {
        // Proves the limits on the number and the size of variables, and that a name that occurs
        // twice is an error.
        let many = |count: usize| -> Vec<(String, String)> {
            (0..count).map(|at| (format!("FLATCAP_SOURCE__FILE__N{at}__PERIOD"), "1s".to_owned())).collect()
        };
        let text = errors(&borrowed(&many(VARIABLES_MAX + 50)));
        assert_eq!(text.matches("more than 256 variables set the configuration").count(), 1, "{text}");
        assert!(errors(&borrowed(&many(VARIABLES_MAX))).contains("more than 64 instances"));
        let long = "x".repeat(FILE_BYTES_MAX);
        assert!(
            errors(&[("FLATCAP_RECORDER__DATA_DIR", &long)])
                .contains("exceeds the limit of 1MiB for all files and variables together")
        );
        let twice = [("FLATCAP_RECORDER__DATA_DIR", "/a"), ("FLATCAP_RECORDER__DATA_DIR", "/b")];
        assert_eq!(errors(&twice), "environment variable FLATCAP_RECORDER__DATA_DIR: given twice; keep one");
    }
}
