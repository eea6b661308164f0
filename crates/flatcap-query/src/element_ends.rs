//! Finds list elements that have ended. An element has ended when the samples of its source no
//! longer contain the element.
//!
//! If a complete sample lacks an element, the element has ended. A sample is not complete if its
//! list is `sparse`, or if the sample was cut. If a sample that is not complete lacks an element,
//! the element may still exist. The element has ended if the source lists its end, or if the next
//! complete sample also lacks it.

use std::collections::{HashMap, HashSet};

use flatcap_format::schema::FieldValue;

use super::fields::FieldInfo;
use super::plan::TableInfo;
use crate::columns::batch::ColumnBatch;
use crate::names::elements::{ElementNames, NO_ELEMENT};
use crate::names::path::FieldPath;
use crate::names::path_text::exact_path;

/// The name of the list of ended processes, and the names of the fields that identify a process in
/// this list and in sparse lists.
const EXITS: &str = "exits";
const PID: &str = "pid";
const START: &str = "start";

/// The identity of a process, which is its id and its start time.
type ProcessKey = (u64, u64);

/// The elements in the last samples of a run.
#[derive(Debug, Default)]
pub struct ElementEnds {
    lists: HashMap<usize, OpenElements>,
}

/// The elements that ended in the samples of one source, and the samples that leave out elements.
#[derive(Debug, Default)]
pub struct SampleEnds {
    /// For each table, the samples that leave out elements.
    sparse: Vec<HashSet<usize>>,
    /// For each table, the elements that ended.
    ended: Vec<Vec<EndedElement>>,
}

/// An element that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedElement {
    /// Position of the first sample without the element, within the batch.
    pub sample: usize,
    /// The id of the element, which [`ElementNames`] resolves.
    pub element: u32,
}

#[derive(Debug, Default)]
struct OpenElements {
    /// Number of samples so far.
    samples: u64,
    /// The elements that have not ended.
    open: Vec<u32>,
    /// For each element, the sequence number of the last sample that contains the element. The
    /// first sample has the number 1. The entry is 0 for an element that has ended or was never in
    /// a sample.
    last_seen: Vec<u64>,
    /// The element of each process, by process id and start time.
    processes: HashMap<ProcessKey, u32>,
    /// Processes whose end was listed while a sample still contained the process.
    // The parents of these processes had not yet waited for them.
    exited: Vec<ProcessKey>,
}

/// The processes whose end is listed. The key is the position of the first sample without the
/// process.
type ListedExits = HashMap<usize, Vec<ProcessKey>>;

/// Returns the fields of a source that [`ElementEnds`] needs in addition to the requested fields.
/// Returns no fields if the source does not list the ends of processes.
pub fn end_fields<'f>(source: &str, fields: impl IntoIterator<Item = &'f FieldInfo>) -> Vec<FieldPath> {
    let needed = [format!("{EXITS}[*].{PID}"), format!("{EXITS}[*].{START}")];
    let fields: HashSet<&str> = fields.into_iter().map(|field| field.path.as_str()).collect();
    if !needed.iter().all(|path| fields.contains(path.as_str())) {
        return Vec::new();
    }
    needed.iter().filter_map(|path| exact_path(source, path).parse().ok()).collect()
}

/// Returns, for [`Query::unnamed_lists`](super::Query::unnamed_lists), the list of a source whose
/// elements need no names. If the elements had names, each ended process would count towards the
/// limit on named elements.
pub fn unnamed_end_list(source: &str) -> String {
    format!("{source}.{EXITS}")
}

impl ElementEnds {
    /// Adds the tables of one source. All tables have the same samples. These samples follow the
    /// samples of the previous call.
    pub fn add<'t>(
        &mut self,
        batches: &[ColumnBatch],
        tables: impl Fn(usize) -> Option<&'t TableInfo>,
        names: &ElementNames,
    ) -> SampleEnds {
        let exits = listed_exits(batches, &tables);
        let mut ends = SampleEnds::default();
        for batch in batches {
            let sparse = (0..batch.times.len()).filter(|sample| batch.leaves_out(*sample)).collect();
            let is_list = tables(batch.table).is_some_and(|table| table.list.is_some());
            ends.ended.push(if is_list {
                // Listed ends are needed only for lists whose samples leave out elements.
                let exits = (!batch.sparse.is_empty()).then_some(&exits);
                self.lists.entry(batch.table).or_default().add(batch, (exits, &sparse), names)
            } else {
                Vec::new()
            });
            ends.sparse.push(sparse);
        }
        ends
    }

    /// Clears all elements, because another run begins.
    pub fn clear(&mut self) {
        self.lists.clear();
    }
}

impl SampleEnds {
    /// Returns whether a sample contains all elements of a table. `position` is the table's
    /// position in the call of [`ElementEnds::add`].
    pub fn is_complete(&self, position: usize, sample: usize) -> bool {
        !self.sparse.get(position).is_some_and(|sparse| sparse.contains(&sample))
    }

    /// Returns the ended elements of a table, ordered by sample. `position` is the table's position
    /// in the call of [`ElementEnds::add`].
    pub fn of_table(&self, position: usize) -> &[EndedElement] {
        self.ended.get(position).map_or(&[], Vec::as_slice)
    }
}

impl OpenElements {
    fn add(
        &mut self,
        batch: &ColumnBatch,
        (listed, sparse): (Option<&ListedExits>, &HashSet<usize>),
        names: &ElementNames,
    ) -> Vec<EndedElement> {
        let (mut ended, mut row) = (Vec::new(), 0);
        for sample in 0..batch.times.len() {
            self.samples += 1;
            let mut present = 0;
            while row < batch.rows() && batch.sample(row) == sample {
                let element = batch.element(row).filter(|element| *element != NO_ELEMENT);
                row += 1;
                let Some(element) = element else { continue };
                let before = self.see(element);
                // An element that occurs twice in a sample is counted only one time.
                present += usize::from(before != self.samples);
                // The identity of a process is read only when its element appears, and only if the
                // source lists ends.
                if before == 0 && listed.is_some() {
                    self.processes.extend(process_key(names, element).map(|key| (key, element)));
                }
            }
            let exits = listed.and_then(|listed| listed.get(&sample));
            let known = exits.into_iter().flatten().filter(|key| self.processes.contains_key(key));
            self.exited.extend(known);
            // Most samples contain all open elements, in which case no element can have ended.
            if present == self.open.len() {
                continue;
            }
            // Only a complete sample proves that the missing elements have ended.
            if !sparse.contains(&sample) {
                self.end_all_unseen(sample, &mut ended);
                continue;
            }
            for key in std::mem::take(&mut self.exited) {
                self.end_process(key, sample, &mut ended);
            }
        }
        ended
    }

    /// Records that the current sample contains an element. Returns the sequence number of the
    /// previous sample that contained the element, or 0 if the element was not open.
    fn see(&mut self, element: u32) -> u64 {
        let place = element as usize;
        if self.last_seen.len() <= place {
            self.last_seen.resize(place + 1, 0);
        }
        let before = self.last_seen.get_mut(place).map(|seen| std::mem::replace(seen, self.samples));
        if before == Some(0) {
            self.open.push(element);
        }
        before.unwrap_or_default()
    }

    /// Ends the elements that the current sample lacks.
    fn end_all_unseen(&mut self, sample: usize, ended: &mut Vec<EndedElement>) {
        let Self { samples, open, last_seen, processes, exited } = self;
        open.retain(|element| {
            let seen = last_seen.get_mut(*element as usize).filter(|seen| **seen < *samples);
            let has_ended = seen.map(|seen| *seen = 0).is_some();
            ended.extend(has_ended.then_some(EndedElement { sample, element: *element }));
            !has_ended
        });
        processes.retain(|_, element| last_seen.get(*element as usize).is_some_and(|seen| *seen > 0));
        exited.retain(|key| processes.contains_key(key));
    }

    /// Ends a process. If the current sample still contains the process, stores the end of the
    /// process until a later sample lacks the process.
    fn end_process(&mut self, key: ProcessKey, sample: usize, ended: &mut Vec<EndedElement>) {
        let Some(element) = self.processes.get(&key).copied() else { return };
        let seen = self.last_seen.get_mut(element as usize).filter(|seen| **seen < self.samples);
        // An ended process stays in the kernel's table until the parent waits for this process.
        let Some(seen) = seen else {
            self.exited.push(key);
            return;
        };
        *seen = 0;
        self.processes.remove(&key);
        self.open.retain(|open| *open != element);
        ended.push(EndedElement { sample, element });
    }
}

/// Returns the processes whose ends a source lists.
fn listed_exits<'t>(batches: &[ColumnBatch], tables: impl Fn(usize) -> Option<&'t TableInfo>) -> ListedExits {
    let mut found = ListedExits::new();
    for batch in batches {
        let Some(table) = tables(batch.table) else { continue };
        let list = table.list.as_deref().and_then(|list| list.split('[').next());
        let column = |name: &str| {
            let place = table.columns.iter().position(|info| &*info.path == name)?;
            batch.columns.get(place)
        };
        if list != Some(EXITS) {
            continue;
        }
        let (Some(pids), Some(starts)) = (column(PID), column(START)) else { continue };
        for row in 0..batch.rows() {
            if let (FieldValue::Unsigned(pid), FieldValue::Unsigned(start)) = (pids.get(row), starts.get(row))
            {
                found.entry(batch.sample(row)).or_default().push((pid, start));
            }
        }
    }
    found
}

fn process_key(names: &ElementNames, element: u32) -> Option<ProcessKey> {
    let identity = names.identity(names.latest(element));
    let number = |name: &str| identity.iter().find(|part| &*part.field == name)?.value.parse().ok();
    Some((number(PID)?, number(START)?))
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::{ColumnType, MetricKind, Usage};
    use proptest::prelude::*;

    use super::*;
    use crate::names::elements::ElementLabel;
    use crate::{BatchTimes, ColumnInfo, ElementIdentity, RowSource, ValueColumn};

    fn column(path: &str, values: &[u64]) -> (ColumnInfo, ValueColumn) {
        let info = ColumnInfo {
            path: path.into(),
            column_type: ColumnType::Unsigned,
            type_name: "ulong".into(),
            unit: None,
            kind: MetricKind::State,
            usage: Usage::Use,
            is_identity: false,
            order: 0,
        };
        let mut column = ValueColumn::new(ColumnType::Unsigned, 0);
        for value in values {
            column.push_absent();
            column.set_last(FieldValue::Unsigned(*value));
        }
        (info, column)
    }

    /// Makes a table. `samples` lists the elements of each sample.
    fn table(
        number: usize,
        (list, samples): (Option<&str>, &[Vec<u32>]),
        columns: Vec<(ColumnInfo, ValueColumn)>,
    ) -> (TableInfo, ColumnBatch) {
        let (infos, columns) = columns.into_iter().unzip();
        let info = TableInfo {
            source: "process".into(),
            instance: None,
            list: list.map(Into::into),
            columns: infos,
        };
        let rows = (0_u32..).zip(samples).flat_map(|(sample, all)| all.iter().map(move |one| (sample, *one)));
        let (of_sample, elements) = rows.unzip();
        let times = BatchTimes { seq: vec![0; samples.len()], ..BatchTimes::default() };
        let rows = match list {
            None => RowSource::Samples,
            Some(_) => RowSource::Elements { samples: of_sample, elements, names: Vec::new() },
        };
        (info, ColumnBatch { table: number, times, rows, columns, ..ColumnBatch::default() })
    }

    fn names(count: u32) -> ElementNames {
        let mut names = ElementNames::default();
        for number in 0..count {
            names.begin_sample();
            let (element, _) = names.intern(0, &number.to_le_bytes());
            let part = |field: &str, value: u32| ElementIdentity {
                field: field.into(),
                value: value.to_string().into(),
                is_key: true,
            };
            let identity = vec![part(PID, 100 + number), part(START, 7)];
            names.name(element, ElementLabel { identity, ..ElementLabel::default() });
        }
        names
    }

    type Samples = Vec<(bool, Vec<u32>, Vec<u32>)>;

    fn samples() -> impl Strategy<Value = Samples> {
        let elements =
            || prop::collection::btree_set(0..6_u32, 0..5).prop_map(|set| set.into_iter().collect());
        prop::collection::vec((any::<bool>(), elements(), elements()), 1..20)
    }

    proptest! {
        // Proves that an element ends exactly once. It ends at the first complete sample without
        // the element, or at the first sample without the element after its end was listed. The
        // length of the batches does not matter. The test compares the result with a walk over all
        // samples.
        #[test]
        fn elements_end_with_the_first_sample_without_them(
            samples in samples(),
            (is_process, is_flagged) in any::<(bool, bool)>(),
            batch in 1..5_usize,
        ) {
            let names = names(6);
            let list = if is_process { "processes[*]" } else { "counters[*]" };
            let mut ends = ElementEnds::default();
            let mut found = Vec::new();
            for (number, part) in samples.chunks(batch).enumerate() {
                let thinned: Vec<bool> = part.iter().map(|(is_thinned, ..)| *is_thinned).collect();
                let lists: Vec<Vec<u32>> = part.iter().map(|(_, present, _)| present.clone()).collect();
                let exits: Vec<Vec<u32>> = part.iter().map(|(.., exits)| exits.clone()).collect();
                let pids: Vec<u64> = exits.iter().flatten().map(|number| 100 + u64::from(*number)).collect();
                let starts = vec![7; pids.len()];
                let (infos, mut batches): (Vec<TableInfo>, Vec<ColumnBatch>) = [
                    table(0, (None, &lists), Vec::new()),
                    table(1, (Some(list), &lists), Vec::new()),
                    table(2, (Some("exits[*]"), &exits), vec![column(PID, &pids), column(START, &starts)]),
                ]
                .into_iter()
                .unzip();
                // Bit 4 of the flags means that a sample was thinned, because there were too many
                // elements.
                let flags: Vec<u16> = thinned.iter().map(|own| u16::from(*own) * 0b1_0001).collect();
                if is_process {
                    batches[1].sparse = thinned;
                }
                if is_flagged {
                    for batch in &mut batches {
                        batch.times.flags.clone_from(&flags);
                    }
                }
                let of = ends.add(&batches, |table| infos.get(table), &names);
                for (sample, (is_thinned, ..)) in part.iter().enumerate() {
                    prop_assert_eq!(of.is_complete(0, sample), !is_flagged || !is_thinned);
                    prop_assert_eq!(of.is_complete(1, sample), !(is_process || is_flagged) || !is_thinned);
                }
                found.extend(of.of_table(1).iter().map(|end| (number * batch + end.sample, end.element)));
            }
            let mut naive = Vec::new();
            for element in 0..6 {
                let (mut is_open, mut has_exited) = (false, false);
                for (number, (is_thinned, present, exits)) in samples.iter().enumerate() {
                    if present.contains(&element) {
                        is_open = true;
                    }
                    has_exited |= is_open && exits.contains(&element);
                    if is_open
                        && !present.contains(&element)
                        && (!*is_thinned || !(is_process || is_flagged) || (is_process && has_exited))
                    {
                        naive.push((number, element));
                        (is_open, has_exited) = (false, false);
                    }
                }
            }
            naive.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, naive);
        }
    }
}
