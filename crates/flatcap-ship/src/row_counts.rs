//! Counts the rows of objects in the store. The counts come from the footers of the objects, and do
//! not rely on the manifests.

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::error::ShipError;
use crate::lake::Lake;
use crate::names::{GAPS, MARKS, ObjectGroup, SOURCES, Tier, table_of_day, tables};

/// Number of bytes at the end of an object that are read first.
// Most footers are shorter than this.
const END_BYTES: u64 = 64 << 10;

/// The number of source rows in the objects of each segment and each hour of a day.
#[derive(Debug, Default)]
pub(crate) struct RowCounts {
    rows: BTreeMap<ObjectGroup, u64>,
    /// Objects whose footers cannot be read, with the reason.
    pub(crate) damaged: Vec<String>,
}

impl RowCounts {
    /// Reads the footers of all objects of a day, for both segments and hours.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) fn read(lake: &Lake, day: &str) -> Result<Self, ShipError> {
        let mut counts = Self::default();
        for tier in [Tier::Hot, Tier::Hour] {
            for table in lake.folders(&tables(tier))? {
                if [GAPS, MARKS, SOURCES].iter().any(|name| table.strip_prefix("source=") == Some(name)) {
                    continue;
                }
                let listed = lake.list(&table_of_day(tier, &table, day))?;
                let ours =
                    listed.into_iter().filter(|object| ObjectGroup::parse_table(&object.name).is_some());
                counts.add_objects(lake, &ours.map(|object| (object.name, object.bytes)).collect())?;
            }
        }
        Ok(counts)
    }

    fn add_objects(&mut self, lake: &Lake, objects: &BTreeMap<String, u64>) -> Result<(), ShipError> {
        let ends: Vec<(String, u64)> =
            objects.iter().map(|(name, bytes)| (name.clone(), bytes.saturating_sub(END_BYTES))).collect();
        lake.read_ends(&ends, |name, end| {
            let object_bytes = objects.get(name).copied().unwrap_or_default();
            self.add(lake, name, end, object_bytes)
        })
    }

    fn add(&mut self, lake: &Lake, name: &str, end: &Bytes, object_bytes: u64) -> Result<(), ShipError> {
        let counted = match row_count(end, object_bytes) {
            // This footer is longer than the bytes that were read first. The error states the
            // length of the footer.
            Err(ParquetError::NeedMoreData(bytes)) => {
                let longer = lake.read_end(name, object_bytes.saturating_sub(bytes as u64))?;
                row_count(&longer.unwrap_or_default(), object_bytes)
            }
            counted => counted,
        };
        match (counted, ObjectGroup::parse_table(name)) {
            (Ok(rows), Some((group, _, _))) => *self.rows.entry(group).or_default() += rows,
            (Err(error), _) => self.damaged.push(format!("{name}: its rows cannot be counted: {error}")),
            (Ok(_), None) => {}
        }
        Ok(())
    }

    /// Returns the number of source rows in the objects of a segment or an hour.
    pub(crate) fn of(&self, group: &ObjectGroup) -> u64 {
        self.rows.get(group).copied().unwrap_or_default()
    }
}

/// Returns the number of rows that a Parquet footer states. `end` has the last bytes of the object.
fn row_count(end: &Bytes, object_bytes: u64) -> Result<u64, ParquetError> {
    let mut reader = ParquetMetaDataReader::new();
    reader.try_parse_sized(end, object_bytes)?;
    let rows = reader.finish()?.file_metadata().num_rows();
    u64::try_from(rows).map_err(|_| ParquetError::General(format!("it states {rows} rows")))
}
