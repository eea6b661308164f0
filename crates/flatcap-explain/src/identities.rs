//! The names that people use for a suspect: command line, systemd unit, container, pod and user.
//! The source of processes records them only from time to time, so they are read from the minute
//! before the window.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flatcap_format::replay::ReplayFilter;
use flatcap_format::schema::FieldValue;
use flatcap_query::{
    ColumnBatch, Query, QueryError, QueryItem, RecordedSource, Recording, TableInfo, exact_path, source_path,
};

use super::answers::{Suspect, SuspectIdentity};
use super::attribution::SuspectKind;
use super::group_names::GroupNames;
use super::reading::RecordingChoice;

/// Root type of the recorder's source of processes.
const PROCESS_ROOT: &str = "flatcap.host.Process";
/// Time before the end of the window that is read for names. The recorder records a name at least
/// once in 60 s.
const NAMES_BEFORE_NS: u64 = 65_000_000_000;
/// Time before the window that is read for the users of processes. A sample of all processes is
/// recorded at least this often by default.
const USERS_BEFORE_NS: u64 = 3_000_000_000;
/// Time after the window that is read. The name of a process follows its first sample.
const AFTER_NS: u64 = 2_000_000_000;
/// The fields with the users of processes.
const USER_FIELDS: [&str; 3] = ["processes[*].pid", "processes[*].start", "processes[*].user"];
/// The lists with names.
const NAME_LISTS: [&str; 3] = ["command_lines", "groups", "users"];

/// A process: its id and its start time.
type ProcessKey = (u64, u64);

/// The names in a recording.
#[derive(Debug, Default)]
struct RecordedNames {
    command_lines: BTreeMap<ProcessKey, String>,
    groups: BTreeMap<ProcessKey, String>,
    user_numbers: BTreeMap<ProcessKey, u64>,
    user_names: BTreeMap<u64, String>,
}

/// Sets the identities of suspects, as of a window of wall time.
pub(super) fn identify(
    suspects: &mut [Suspect],
    (choice, recording): (&RecordingChoice, &Recording),
    window: &Range<i64>,
) -> Result<(), QueryError> {
    let wanted: BTreeSet<ProcessKey> = suspects.iter().filter_map(process_key).collect();
    let mut names = RecordedNames::default();
    if !wanted.is_empty() {
        for source in recording.sources() {
            names.read(source, (choice, recording), (&wanted, window))?;
        }
    }
    for suspect in suspects {
        suspect.identity = match (suspect.kind, process_key(suspect)) {
            (SuspectKind::Cgroup, _) => identity_of_group(&suspect.name),
            (_, Some(key)) => names.identity(key),
            _ => SuspectIdentity::default(),
        };
    }
    Ok(())
}

fn process_key(suspect: &Suspect) -> Option<ProcessKey> {
    Some((suspect.pid?, suspect.start?))
}

impl RecordedNames {
    /// Reads the names of processes in a source, if it is the recorder's source of processes.
    fn read(
        &mut self,
        source: &RecordedSource,
        (choice, recording): (&RecordingChoice, &Recording),
        (wanted, window): (&BTreeSet<ProcessKey>, &Range<i64>),
    ) -> Result<(), QueryError> {
        let schema = source.schema.as_ref().filter(|schema| schema.root_name() == PROCESS_ROOT);
        let (Some(schema), false) = (schema, source.is_pushed() || source.is_imported) else { return Ok(()) };
        let has = |list: &&str| schema.fields().any(|leaf| leaf.path.split(['.', '[']).next() == Some(*list));
        let lists: Vec<&str> = NAME_LISTS.into_iter().filter(has).collect();
        let names_begin = window.end.saturating_sub_unsigned(NAMES_BEFORE_NS);
        let users_begin = window.start.saturating_sub_unsigned(USERS_BEFORE_NS);
        let mut reads = vec![(lists.clone(), &lists[..], names_begin)];
        // Older recordings have no names of users.
        if lists.contains(&"users") {
            reads.push((USER_FIELDS.to_vec(), &["processes"], users_begin));
        }
        for (fields, lists, begin_ns) in reads.into_iter().filter(|(fields, ..)| !fields.is_empty()) {
            let fields = fields.iter().map(|field| exact_path(&source.name, field));
            let query = Query {
                fields: fields.filter_map(|path| path.parse().ok()).collect(),
                filter: ReplayFilter {
                    sources: BTreeSet::from([source.name.clone()]),
                    since_ns: Some(begin_ns),
                    until_ns: Some(window.end.saturating_add_unsigned(AFTER_NS)),
                    host: choice.host.clone(),
                    ..ReplayFilter::default()
                },
                unnamed_lists: lists.iter().map(|list| source_path(&source.name, list)).collect(),
                ..Query::default()
            };
            let mut results = recording.query(&query)?;
            while let Some(item) = results.next()? {
                if let QueryItem::Batch(batch) = item
                    && let Some(table) = results.tables().get(batch.table)
                {
                    self.add(&batch, table, (wanted, window.end));
                }
            }
        }
        Ok(())
    }

    /// Adds the rows of the wanted processes. A later row replaces an earlier one, up to the end of
    /// the window.
    fn add(
        &mut self,
        batch: &ColumnBatch,
        table: &TableInfo,
        (wanted, end_ns): (&BTreeSet<ProcessKey>, i64),
    ) {
        let column = |path: &str| {
            let at = table.columns.iter().position(|column| &*column.path == path)?;
            batch.columns.get(at)
        };
        let number = |path: &str, row: usize| match column(path)?.get(row) {
            FieldValue::Unsigned(number) => Some(number),
            _ => None,
        };
        let text = |path: &str, row: usize| match column(path)?.get(row) {
            FieldValue::Text(text) if !text.is_empty() => Some(text.to_owned()),
            _ => None,
        };
        let list = table.list.as_deref().unwrap_or_default().trim_end_matches("[*]");
        for row in 0..batch.rows() {
            let wall_ns = batch.times.wall_ns.get(batch.sample(row)).copied().unwrap_or(i64::MAX);
            let is_later = wall_ns > end_ns;
            if list == "users" {
                if let (Some(user), Some(name)) = (number("number", row), text("name", row)) {
                    put(&mut self.user_names, user, name, is_later);
                }
                continue;
            }
            let Some(key) = number("pid", row).zip(number("start", row)).filter(|key| wanted.contains(key))
            else {
                continue;
            };
            let known = match list {
                "command_lines" => text("text", row).map(|line| (&mut self.command_lines, line)),
                "groups" => text("path", row).map(|path| (&mut self.groups, path)),
                _ => None,
            };
            if let Some((known, name)) = known {
                put(known, key, name, is_later);
            } else if let Some(user) = number("user", row) {
                put(&mut self.user_numbers, key, user, is_later);
            }
        }
    }

    fn identity(&self, key: ProcessKey) -> SuspectIdentity {
        let group = self.groups.get(&key).map(|path| identity_of_group(path));
        let user = self.user_numbers.get(&key).filter(|_| !self.user_names.is_empty());
        SuspectIdentity {
            command_line: self.command_lines.get(&key).cloned(),
            user: user.map(|user| self.user_names.get(user).cloned().unwrap_or_else(|| user.to_string())),
            ..group.unwrap_or_default()
        }
    }
}

/// Puts a value into a map. After the window, a value does not replace an earlier one.
fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V, is_later: bool) {
    if is_later {
        map.entry(key).or_insert(value);
    } else {
        map.insert(key, value);
    }
}

/// Returns the names in the path of a control group.
fn identity_of_group(path: &str) -> SuspectIdentity {
    let GroupNames { unit, container, pod } = GroupNames::of(path);
    SuspectIdentity { unit, container, pod, ..SuspectIdentity::default() }
}
