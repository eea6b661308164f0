//! The names of objects (docs/LAKE.md, "What is in the store"). An object belongs to this program
//! only if its complete name can be parsed.

use std::fmt;

use flatcap_format::consumer_names::file_stem;
use jiff::Timestamp;

/// Version of the layout. Every object name begins with this folder.
const LAYOUT: &str = "v1";
/// Suffix of the names of tables.
const PARQUET: &str = ".parquet";
/// Suffix of manifests.
const JSON: &str = ".json";
/// Maximum length of a part of a name, in bytes. File systems allow this length.
const NAME_BYTES_MAX: usize = 200;
/// Largest part number that an object of a table may have.
// This is enough for about 16 GiB of one source in one segment.
pub(crate) const PARTS_MAX: u32 = 1000;

/// Name of the table of lost samples.
pub(crate) const GAPS: &str = "_gaps";
/// Name of the table of marks.
pub(crate) const MARKS: &str = "_marks";
/// Name of the table of sources.
pub(crate) const SOURCES: &str = "_sources";

/// The folder that contains the tables of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Objects of one segment.
    Hot,
    /// Objects of one hour.
    Hour,
    /// Objects of one snapshot.
    Snapshot,
}

impl Tier {
    const ALL: [Self; 3] = [Self::Hot, Self::Hour, Self::Snapshot];

    fn folder(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Hour => "hour",
            Self::Snapshot => "snapshot",
        }
    }

    fn manifests(self) -> &'static str {
        match self {
            Self::Hot => "_segments",
            Self::Hour => "_hours",
            Self::Snapshot => "_snapshots",
        }
    }
}

/// The day and the host of a group. Query engines read the day and the host as columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Partition {
    date: String, // YYYY-MM-DD, UTC
    host: String, // `is_plain`
}

impl Partition {
    /// Returns the partition for a host and a creation time in seconds since 1970.
    pub(crate) fn new(created_s: i64, host: &str) -> Self {
        Self { date: date(created_s), host: host.to_owned() }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    fn parse(date: &str, host: &str) -> Option<Self> {
        let (date, host) = (date.strip_prefix("date=")?, host.strip_prefix("host=")?);
        let is_date = date.len() == 10
            && date.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        let parsed = Self { date: date.to_owned(), host: host.to_owned() };
        (is_date && is_plain(host)).then_some(parsed)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "date={}/host={}", self.date, self.host)
    }
}

/// The unit that determines the names of objects, which is a segment, a snapshot or an hour of a
/// run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectGroup {
    pub(crate) tier: Tier,
    pub(crate) partition: Partition,
    stem: String, // letters, digits, `_` and `-`
}

impl ObjectGroup {
    pub(crate) fn of_segment(partition: Partition, run_id: u64, number: u64) -> Self {
        Self { tier: Tier::Hot, partition, stem: format!("{run_id:016x}-{number:010}") }
    }

    /// Returns the group of a snapshot with this name. Characters that are not allowed are
    /// replaced.
    pub(crate) fn of_snapshot(partition: Partition, run_id: u64, name: &str) -> Self {
        // A dot begins the number of a part, so a stem must not contain one.
        let name = plain_name(name).replace('.', "_");
        Self { tier: Tier::Snapshot, partition, stem: format!("{run_id:016x}-{name}") }
    }

    /// Returns the group for one hour of a day, where the hour is from 0 to 23.
    pub(crate) fn of_hour(partition: Partition, run_id: u64, hour: u8) -> Self {
        Self { tier: Tier::Hour, partition, stem: format!("{run_id:016x}-H{hour:02}") }
    }

    pub(crate) fn stem(&self) -> &str {
        &self.stem
    }

    /// Returns the name of a table's object. Parts are numbered from 1.
    pub(crate) fn table(&self, table: &str, part: u32) -> String {
        let Self { tier, partition, stem } = self;
        let folder = tier.folder();
        let part = if part == 1 { String::new() } else { format!(".p{part}") };
        format!("{LAYOUT}/{folder}/source={table}/{partition}/{stem}{part}{PARQUET}")
    }

    /// Returns the name of the manifest of this group.
    pub(crate) fn manifest(&self) -> String {
        format!("{}/{}{JSON}", manifests(self.tier, &self.partition), self.stem)
    }

    /// Returns the name of the object with the plan of an hour.
    pub(crate) fn plan(&self) -> String {
        format!("{LAYOUT}/_plans/{}/{}{JSON}", self.partition, self.stem)
    }

    /// Parses the name of a table's object. Returns its group, the table and the part.
    pub(crate) fn parse_table(name: &str) -> Option<(Self, &str, u32)> {
        let [layout, folder, table, date, host, file] = components(name)?;
        let tier = Tier::ALL.into_iter().find(|tier| tier.folder() == folder)?;
        let table = table.strip_prefix("source=")?;
        let stem = file.strip_suffix(PARQUET)?;
        let (stem, part) = match stem.split_once('.') {
            None => (stem, 1),
            Some((stem, part)) => (stem, part.strip_prefix('p')?.parse().ok()?),
        };
        let group = Self { tier, partition: Partition::parse(date, host)?, stem: stem.to_owned() };
        // Compare with the name that is built from the parsed parts, so that no other spelling is
        // accepted.
        (layout == LAYOUT && is_plain_stem(stem) && group.table(table, part) == name)
            .then_some((group, table, part))
    }

    /// Parses the name of a manifest.
    pub(crate) fn parse_manifest(name: &str) -> Option<Self> {
        let [layout, folder, date, host, file] = components(name)?;
        let tier = Tier::ALL.into_iter().find(|tier| tier.manifests() == folder)?;
        let stem = file.strip_suffix(JSON)?;
        let group = Self { tier, partition: Partition::parse(date, host)?, stem: stem.to_owned() };
        (layout == LAYOUT && is_plain_stem(stem)).then_some(group)
    }
}

/// Returns the folder of all manifests of segments.
pub(crate) fn segment_manifests() -> String {
    format!("{LAYOUT}/{}", Tier::Hot.manifests())
}

/// Returns the folder of the manifests of a partition.
pub(crate) fn manifests(tier: Tier, partition: &Partition) -> String {
    format!("{LAYOUT}/{}/{partition}", tier.manifests())
}

/// Returns the folder of the manifests of a day.
pub(crate) fn manifests_of_day(tier: Tier, day: &str) -> String {
    format!("{LAYOUT}/{}/date={day}", tier.manifests())
}

/// Returns the folder of the tables of a tier. This folder has one folder per table.
pub(crate) fn tables(tier: Tier) -> String {
    format!("{LAYOUT}/{}", tier.folder())
}

/// Returns the folder of a table on a day. `folder` is the name of the table's folder within its
/// tier.
pub(crate) fn table_of_day(tier: Tier, folder: &str, day: &str) -> String {
    format!("{}/{folder}/date={day}", tables(tier))
}

/// Returns the name of the object that states which host owns an identity.
pub(crate) fn host_object(host: &str) -> String {
    format!("{LAYOUT}/_hosts/{host}{JSON}")
}

/// Returns the name of the object that contains the unconverted segment file.
pub(crate) fn raw_object(partition: &Partition, file: &str) -> String {
    format!("{LAYOUT}/raw/{partition}/{file}")
}

/// Returns the table of a source. If characters in the name of the source are not allowed, the
/// table's name has a checksum of the original name.
pub(crate) fn source_table(source: &str) -> String {
    // The checksum distinguishes the tables of two sources whose names become equal.
    plain_name(source)
}

/// Returns whether a string can be a part of a name without changes.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_ours = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // Query engines ignore names that begin with `_` or `.`.
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_ours)
}

/// Returns the day of a time in seconds since 1970, UTC.
pub(crate) fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%d").to_string()
}

fn plain_name(text: &str) -> String {
    let name = file_stem(text);
    if name == text { name } else { format!("{name}-{:08x}", crc32fast::hash(text.as_bytes())) }
}

fn is_plain_stem(stem: &str) -> bool {
    is_plain(stem) && !stem.contains('.')
}

/// Splits a name into exactly `N` parts. Returns `None` if the name has a different number of
/// parts.
fn components<const N: usize>(name: &str) -> Option<[&str; N]> {
    name.split('/').collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition() -> Partition {
        Partition::new(1_700_000_000, "web-1")
    }

    // Proves that all names have the expected form and can be parsed.
    #[test]
    fn names_are_read_back() {
        let segment = ObjectGroup::of_segment(partition(), 0xab, 42);
        let cpu = segment.table("cpu", 1);
        assert_eq!(cpu, "v1/hot/source=cpu/date=2023-11-14/host=web-1/00000000000000ab-0000000042.parquet");
        assert_eq!(ObjectGroup::parse_table(&cpu), Some((segment.clone(), "cpu", 1)));
        let part = segment.table(GAPS, 12);
        assert!(part.ends_with("-0000000042.p12.parquet"), "{part}");
        assert_eq!(ObjectGroup::parse_table(&part), Some((segment.clone(), GAPS, 12)));
        assert_eq!(
            segment.manifest(),
            "v1/_segments/date=2023-11-14/host=web-1/00000000000000ab-0000000042.json"
        );
        let hour = ObjectGroup::of_hour(partition(), 0xab, 7);
        let snapshot = ObjectGroup::of_snapshot(partition(), 0xab, "20231114T101112.5Z-rule");
        for group in [segment, hour, snapshot] {
            assert_eq!(ObjectGroup::parse_manifest(&group.manifest()), Some(group.clone()));
            let name = group.table("a.b", 3);
            assert_eq!(ObjectGroup::parse_table(&name), Some((group, "a.b", 3)));
        }
    }

    // Proves that the tables of sources and snapshots with hostile names stay in their folder, and
    // that different names stay different.
    #[test]
    fn hostile_names_are_replaced() {
        let names = ["cpu", "../../x", "a b", "a_b", "a\nb", "_gaps", "", "a/b", "x=y", "\u{e4}"];
        let tables: Vec<String> = names.iter().map(|name| source_table(name)).collect();
        let mut distinct = tables.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!((distinct.len(), tables[0].as_str()), (names.len(), "cpu"));
        for name in names {
            let group = ObjectGroup::of_snapshot(partition(), 1, name);
            let object = group.table(&source_table(name), 1);
            assert_eq!(object.matches('/').count(), 5, "{object}");
            assert_eq!(ObjectGroup::parse_table(&object).map(|found| found.0), Some(group), "{object}");
        }
    }

    // Proves that the names of foreign objects in the store are refused.
    #[test]
    fn foreign_names_are_refused() {
        let ours = ObjectGroup::of_segment(partition(), 0xab, 42).table("cpu", 1);
        for (from, to) in [
            ("v1", "v2"),
            ("hot", "cold"),
            ("source=", ""),
            ("2023-11-14", "2023-11-1x"),
            ("2023-11-14", "yesterday"),
            ("host=web-1", "host="),
            ("host=web-1", "host=a b"),
            (".parquet", ".p1.parquet"),
            (".parquet", ".p02.parquet"),
            (".parquet", ".px.parquet"),
            (".parquet", ".csv"),
            ("v1/", "v1//"),
            ("v1/", "x/v1/"),
        ] {
            let name = ours.replacen(from, to, 1);
            assert_eq!(ObjectGroup::parse_table(&name), None, "{name}");
        }
        assert_eq!(ObjectGroup::parse_manifest("v1/_segments/date=2023-11-14/host=a/../x.json"), None);
        assert_eq!(ObjectGroup::parse_manifest("v1/_segments/notes.json"), None);
    }
}
