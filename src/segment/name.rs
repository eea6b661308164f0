//! File names: `NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RRRRRRRRRRRRRRRR.bin`, with `.active` behind until the trailer is on disk.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Digits of the number in a name.
const NUMBER_DIGITS: usize = 10;
/// The last number a name can show.
const NUMBER_MAX: u64 = 9_999_999_999;
const RUN_DIGITS: usize = 16;
const TIME_BYTES: usize = 16;
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";
const SEALED: &str = ".bin";
const ACTIVE: &str = ".bin.active";

/// Whether a segment is complete, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Without a trailer yet: being written, or left by a recorder that was killed.
    Active,
    /// With footer and trailer, all of it on the medium.
    Sealed,
}

/// A file beside a segment, under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    /// `.cut`: the torn tail that a recovery cut off.
    Cut,
    /// `.damaged`: the file as it was before a recovery that had to leave bytes out.
    Damaged,
    /// `.recovering`: a recovery's work that is not finished.
    Recovering,
    /// `.packing`: a packed segment that is not finished, or the raw one that it has replaced; never read.
    Packing,
}

impl Aside {
    const ALL: [Self; 4] = [Self::Cut, Self::Damaged, Self::Recovering, Self::Packing];

    fn suffix(self) -> &'static str {
        match self {
            Self::Cut => ".cut",
            Self::Damaged => ".damaged",
            Self::Recovering => ".recovering",
            Self::Packing => ".packing",
        }
    }
}

/// A segment's name in its parts. Only a name that parses in full is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentName {
    /// Grows within a directory; the only order there is, since clocks may be wrong.
    pub number: u64, // <= NUMBER_MAX
    /// Wall time of its creation, in seconds since 1970, UTC.
    pub created_s: i64,
    /// Which run of a recorder wrote it.
    pub run_id: u64,
    /// Whether it is sealed.
    pub state: State,
}

impl SegmentName {
    /// Reads a file name; none if any part of it is not exactly as written by [`fmt::Display`].
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, state) = match name.strip_suffix(ACTIVE) {
            Some(stem) => (stem, State::Active),
            None => (name.strip_suffix(SEALED)?, State::Sealed),
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

    /// The same segment under its final name.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { state: State::Sealed, ..self }
    }

    /// The name of a file beside it.
    pub fn aside(self, aside: Aside) -> String {
        format!("{}{}", self.sealed(), aside.suffix())
    }

    /// Reads the name of a file beside a segment: the segment's own, sealed, and what the file is.
    pub fn parse_aside(name: &str) -> Option<(Self, Aside)> {
        Aside::ALL.into_iter().find_map(|aside| {
            let segment = Self::parse(name.strip_suffix(aside.suffix())?)?;
            (segment.state == State::Sealed).then_some((segment, aside))
        })
    }

    /// The number behind all that the names of a directory's files show, of segments and of what lies beside them; none when the last
    /// number is reached.
    pub fn number_behind<'a>(names: impl Iterator<Item = &'a str>) -> Option<u64> {
        let shown = |name| Self::parse(name).or_else(|| Some(Self::parse_aside(name)?.0));
        match names.filter_map(shown).map(|name| name.number).max() {
            None => Some(0),
            Some(last) => Self::next_number(last),
        }
    }

    /// The number after this one; none when the last number is reached (after 10 billion segments).
    pub fn next_number(number: u64) -> Option<u64> {
        number.checked_add(1).filter(|next| *next <= NUMBER_MAX)
    }
}

/// Reads `YYYYMMDDTHHMMSSZ`, by hand: a directory may hold ten thousand names, and whoever seeks in it waits for them.
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
        // A wall clock outside the years that calendars know is written as 1970: the number orders, not the time.
        let created = Timestamp::from_second(self.created_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let created = created.strftime(TIME_FORMAT);
        let suffix = match self.state {
            State::Active => ACTIVE,
            State::Sealed => SEALED,
        };
        write!(f, "{:010}-{created}-{:016x}{suffix}", self.number, self.run_id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: the exact form that scripts watch for. Method: one name by hand.
    #[test]
    fn the_form_of_a_name() {
        let name = SegmentName { number: 42, created_s: 1_700_000_000, run_id: 0xab, state: State::Active };
        assert_eq!(name.to_string(), "0000000042-20231114T221320Z-00000000000000ab.bin.active");
        assert_eq!(name.sealed().to_string(), "0000000042-20231114T221320Z-00000000000000ab.bin");
        for aside in Aside::ALL {
            assert_eq!(SegmentName::parse_aside(&name.aside(aside)), Some((name.sealed(), aside)));
            assert_eq!(SegmentName::parse(&name.aside(aside)), None, "not a segment");
        }
        assert_eq!(SegmentName::parse_aside(&format!("{name}.cut")), None, "no such file is made");
    }

    proptest! {
        // Goal: every name is read back. Method: random parts, years 1970 to 9999.
        #[test]
        fn names_are_read_back(number in 0..=NUMBER_MAX, created_s in 0_i64..253_402_000_000, run_id: u64, active: bool) {
            let state = if active { State::Active } else { State::Sealed };
            let name = SegmentName { number, created_s, run_id, state };
            prop_assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        }

        // Goal: nothing else is taken for ours. Method: a name with one character changed must print as it reads.
        #[test]
        fn other_names_are_not_ours(at in 0_usize..47, with in "[ -~]") {
            let mut name = "0000000042-20231114T221320Z-00000000000000ab.bin".to_owned();
            name.replace_range(at..=at, &with);
            if let Some(parsed) = SegmentName::parse(&name) {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }
    }

    // Goal: near misses are refused. Method: by hand.
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
