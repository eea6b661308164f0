//! The file of one source, and the runs to which the rows belong.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use flatcap_arrow::FileLayout;
use flatcap_format::schema::to_visible_json;
use flatcap_format::storage::linux::OpenPendingFile;
use flatcap_query::RunInfo;
use parquet::file::metadata::KeyValue;

use crate::error::ColumnarError;
use crate::parquet_file::ParquetFile;
use crate::record_table::{Cell, text};
use crate::request::ColumnarFile;

/// The file of a source.
pub(crate) struct SourceFile {
    pub(crate) layout: FileLayout,
    pub(crate) file: ParquetFile,
    /// The rows of each run, in the order of the runs in the recording.
    pub(crate) runs: Vec<RunRows>,
}

/// The rows of one run in one file.
pub(crate) struct RunRows {
    pub(crate) run: RunInfo,
    rows: u64,
    first_ns: i64,
    last_ns: i64,
}

impl SourceFile {
    /// Adds rows of a run to the counts of this file.
    pub(crate) fn count(
        &mut self,
        run: &RunInfo,
        batch: &RecordBatch,
        (first, last): (Option<&i64>, Option<&i64>),
    ) {
        let (Some(first), Some(last)) = (first, last) else { return };
        let rows = batch.num_rows() as u64;
        match self.runs.iter_mut().find(|own| own.run.run_id == run.run_id) {
            Some(own) => {
                own.rows += rows;
                own.last_ns = own.last_ns.max(*last);
            }
            None => self.runs.push(RunRows { run: run.clone(), rows, first_ns: *first, last_ns: *last }),
        }
    }

    /// Returns the row of `flatcap_sources` for a run.
    pub(crate) fn describe(&self, run: &RunRows, (period_ns, lost): (u64, u64)) -> Vec<Cell> {
        let host = &run.run.host;
        let file = self.file.path.file_name().and_then(|name| name.to_str());
        vec![
            Cell::Text(self.layout.source.clone()),
            text(file),
            text(self.layout.list.as_deref()),
            Cell::Text(format!("{:016x}", run.run.run_id)),
            Cell::Text(host.name.clone()),
            text(host.machine_id.as_deref()),
            text(host.boot_id.as_deref()),
            Cell::Text(labels(&host.labels)),
            Cell::number(period_ns),
            Cell::number(run.rows),
            Cell::Time(run.first_ns),
            Cell::Time(run.last_ns),
            Cell::number(lost),
        ]
    }

    /// Writes the rest of the file.
    pub(crate) fn complete(self) -> Result<(OpenPendingFile, ColumnarFile), ColumnarError> {
        let about = self.about();
        self.file.complete(Some(self.layout.source), about)
    }

    /// Returns the keys and values for the metadata of the file.
    fn about(&self) -> Vec<KeyValue> {
        let runs: Vec<serde_json::Value> = self
            .runs
            .iter()
            .map(|run| {
                let host = &run.run.host;
                serde_json::json!({
                    "run": format!("{:016x}", run.run.run_id),
                    "host": host.name,
                    "machine_id": host.machine_id,
                    "boot_id": host.boot_id,
                    "labels": host.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
                })
            })
            .collect();
        let key = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        vec![
            key("flatcap.source", self.layout.source.clone()),
            key("flatcap.runs", serde_json::Value::from(runs).to_string()),
        ]
    }
}

fn labels(labels: &[(String, String)]) -> String {
    let labels: BTreeMap<&String, &String> = labels.iter().map(|(name, value)| (name, value)).collect();
    to_visible_json(&labels).unwrap_or_default()
}
