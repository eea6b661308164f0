//! Parses and formats the file names of segments. A name has the form
//! `NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RRRRRRRRRRRRRRRR.bin`. The suffix `.active` follows until the
//! trailer is on disk.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Number of digits of the segment number in a name.
const NUMBER_DIGITS: usize = 10;
/// Highest segment number that a name can contain.
const NUMBER_MAX: u64 = 9_999_999_999;
/// Number of segment numbers that are left unused after a killed run. A recovery may use them for
/// segments that it adds to the run. If a recovery needs more numbers, the killed run and the next
/// run may have the same segment numbers. Listings then order both runs by their creation times.
const SUPPLEMENT_NUMBERS: u64 = 64;
const RUN_DIGITS: usize = 16;
const TIME_BYTES: usize = 16;
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";
const SEALED: &str = ".bin";
const ACTIVE: &str = ".bin.active";

/// Whether a segment is complete, according to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealState {
    /// The segment has no trailer, because a recorder is writing it, or was killed while writing
    /// it.
    Active,
    /// The segment has a footer and a trailer, and is completely on disk.
    Sealed,
}

/// A side file of a segment, whose name is the name of the segment with a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideFile {
    /// The torn tail that a recovery has cut off from the segment. The suffix is `.cut`.
    Cut,
    /// The original file of a recovered segment. A recovery keeps it under this name, because the
    /// recovered segment lacks some of its bytes. The suffix is `.damaged`.
    Damaged,
    /// The unfinished output of a recovery. The suffix is `.recovering`.
    Recovering,
    /// An unfinished compressed segment, or the raw segment that a compressed segment has replaced.
    /// The suffix is `.compressing`. Readers never read such a file.
    Compressing,
}

impl SideFile {
    const ALL: [Self; 4] = [Self::Cut, Self::Damaged, Self::Recovering, Self::Compressing];

    fn suffix(self) -> &'static str {
        match self {
            Self::Cut => ".cut",
            Self::Damaged => ".damaged",
            Self::Recovering => ".recovering",
            Self::Compressing => ".compressing",
        }
    }
}

/// The parts of a segment's name. A file name is the name of a segment only if all parts of it are
/// valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentName {
    /// Number of the segment, which increases within a directory. Only this number defines the
    /// order of segments, because the clocks of hosts may be wrong.
    pub number: u64, // <= NUMBER_MAX
    /// Wall time of the segment's creation, in seconds since 1970, UTC.
    pub created_s: i64,
    /// The run that wrote the segment.
    pub run_id: u64,
    /// Whether the segment is sealed.
    pub state: SealState,
}

impl SegmentName {
    /// Parses a file name. Returns `None` if the name differs from the form that [`fmt::Display`]
    /// produces.
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, state) = match name.strip_suffix(ACTIVE) {
            Some(stem) => (stem, SealState::Active),
            None => (name.strip_suffix(SEALED)?, SealState::Sealed),
        };
        let mut parts = stem.split('-');
        let (number, created, run) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || number.len() != NUMBER_DIGITS || run.len() != RUN_DIGITS {
            return None;
        }
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let are_ours = number.bytes().all(|byte| byte.is_ascii_digit()) && run.bytes().all(is_hexadecimal);
        are_ours.then_some(Self {
            number: number.parse().ok()?,
            created_s: seconds(created)?,
            run_id: u64::from_str_radix(run, 16).ok()?,
            state,
        })
    }

    /// Returns the final name of the same segment.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { state: SealState::Sealed, ..self }
    }

    /// Returns the name of a side file of the segment.
    pub fn side_file(self, kind: SideFile) -> String {
        format!("{}{}", self.sealed(), kind.suffix())
    }

    /// Parses the name of a side file of a segment. Returns the name of the sealed segment and the
    /// kind of the side file.
    pub fn parse_side_file(name: &str) -> Option<(Self, SideFile)> {
        SideFile::ALL.into_iter().find_map(|kind| {
            let segment = Self::parse(name.strip_suffix(kind.suffix())?)?;
            (segment.state == SealState::Sealed).then_some((segment, kind))
        })
    }

    /// Returns the segment number after the highest one in these names of segments and of their
    /// side files. Returns `None` if the highest possible segment number is in use.
    pub fn next_free_number<'a>(names: impl Iterator<Item = &'a str>) -> Option<u64> {
        let shown = |name| Self::parse(name).or_else(|| Some(Self::parse_side_file(name)?.0));
        match names.filter_map(shown).map(|name| name.number).max() {
            None => Some(0),
            Some(last) => Self::next_number(last),
        }
    }

    /// Returns the number of a new run's first segment, in a directory that contains these names.
    /// Leaves some segment numbers free after a killed run, because a recovery may still add
    /// segments to this run. Thus all segment numbers of a run are lower than all segment numbers
    /// of the next run.
    pub fn first_number_of_run<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<u64> {
        let next = Self::next_free_number(names.clone())?;
        let mut segments = names.filter_map(Self::parse);
        let has_killed_run = segments.any(|name| name.state == SealState::Active);
        let first = if has_killed_run { next.saturating_add(SUPPLEMENT_NUMBERS) } else { next };
        // Near the last possible number, no numbers are left free.
        Some(if first <= NUMBER_MAX { first } else { next })
    }

    /// Returns the number after this one, or `None` after the last possible number (10 billion
    /// segments).
    pub fn next_number(number: u64) -> Option<u64> {
        number.checked_add(1).filter(|next| *next <= NUMBER_MAX)
    }
}

/// Reads a time in the form `YYYYMMDDTHHMMSSZ`. This parser is written by hand for speed, because a
/// directory may contain ten thousand names, and a seek parses all of them.
fn seconds(created: &str) -> Option<i64> {
    let (digits, [b'T', b'Z']) =
        (created.as_bytes(), [*created.as_bytes().get(8)?, *created.as_bytes().get(15)?])
    else {
        return None;
    };
    let number = |from: usize, to: usize| -> Option<i16> {
        digits
            .get(from..to)?
            .iter()
            .try_fold(0_i16, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i16::from(*digit - b'0')))
    };
    let small = |from: usize| i8::try_from(number(from, from + 2)?).ok();
    let (month, day) = (small(4)?, small(6)?);
    let (hour, minute, second) = (small(9)?, small(11)?, small(13)?);
    let time = DateTime::new(number(0, 4)?, month, day, hour, minute, second, 0).ok()?;
    let is_whole = digits.len() == TIME_BYTES && second < 60;
    is_whole.then(|| time.to_zoned(TimeZone::UTC).ok()).flatten().map(|time| time.timestamp().as_second())
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A wall time outside of the supported years is written as 1970. This is harmless, because
        // only the segment number defines the order.
        let created = Timestamp::from_second(self.created_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let created = created.strftime(TIME_FORMAT);
        let suffix = match self.state {
            SealState::Active => ACTIVE,
            SealState::Sealed => SEALED,
        };
        write!(f, "{:010}-{created}-{:016x}{suffix}", self.number, self.run_id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves the exact form of names, which scripts rely on.
    #[test]
    fn the_form_of_a_name() {
        let name =
            SegmentName { number: 42, created_s: 1_700_000_000, run_id: 0xab, state: SealState::Active };
        assert_eq!(name.to_string(), "0000000042-20231114T221320Z-00000000000000ab.bin.active");
        assert_eq!(name.sealed().to_string(), "0000000042-20231114T221320Z-00000000000000ab.bin");
        for kind in SideFile::ALL {
            assert_eq!(SegmentName::parse_side_file(&name.side_file(kind)), Some((name.sealed(), kind)));
            assert_eq!(SegmentName::parse(&name.side_file(kind)), None, "not a segment");
        }
        assert_eq!(SegmentName::parse_side_file(&format!("{name}.cut")), None, "no such file is made");
    }

    proptest! {
        // Proves that every name with a time from 1970 to 9999 is read back as it was written.
        #[test]
        fn names_are_read_back(number in 0..=NUMBER_MAX, created_s in 0_i64..253_402_000_000, run_id: u64, active: bool) {
            let state = if active { SealState::Active } else { SealState::Sealed };
            let name = SegmentName { number, created_s, run_id, state };
            prop_assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        }

        // Proves that strings that are not segment names are rejected. If a name in which one
        // character was changed is accepted, formatting it gives the same string.
        #[test]
        fn other_names_are_not_ours(at in 0_usize..47, with in "[ -~]") {
            let mut name = "0000000042-20231114T221320Z-00000000000000ab.bin".to_owned();
            name.replace_range(at..=at, &with);
            if let Some(parsed) = SegmentName::parse(&name) {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }
    }

    // Proves that names that are similar to a valid name are rejected.
    #[test]
    fn near_misses_are_refused() {
        for name in [
            "",
            ".bin",
            "flatcap.lock",
            "0000000042-20231114T221320Z-00000000000000ab.bin.cut",
            "42-20231114T221320Z-00000000000000ab.bin",
            "+000000042-20231114T221320Z-00000000000000ab.bin",
            "0000000042-20231114T221320Z-00000000000000AB.bin",
            "0000000042-20231314T221320Z-00000000000000ab.bin",
        ] {
            assert_eq!(SegmentName::parse(name), None, "{name}");
        }
    }
}
