//! Values in any text, as the configuration describes it: pairs of name and number, or matches of a
//! regular expression.

use regex::bytes::CaptureLocations;

use super::text;
use crate::sampling::{CachedNameFilter, Expression, Incomplete, NameFilter, ValueFormat};

/// Maximum number of values in one sample.
const VALUES_MAX: usize = 4096;
/// Bytes of a name in the schemas, its terminating zero byte included.
pub(super) const NAME_BYTES: usize = 56;
/// Marks an integer that is missing: schemas mark such fields `absent: "min"`.
pub(super) const ABSENT_INTEGER: i64 = i64::MIN;

/// Builds a schema's struct from name, number and integer.
type BuildRow<V> = fn(&[u8; NAME_BYTES], f64, i64) -> V;

/// Finds values and keeps them until the next text.
#[derive(Debug)]
pub(super) struct TextValues<V> {
    format: ValueFormat,
    locations: Option<CaptureLocations>, // reused
    default_name: Vec<u8>,               // if the text has no names
    build_row: BuildRow<V>,
    rows: ValueRows<V>,
}

#[derive(Debug)]
struct ValueRows<V> {
    filter: CachedNameFilter,
    found: usize,   // wanted or not
    values: Vec<V>, // reused
    incomplete: Incomplete,
}

impl<V> TextValues<V> {
    /// Creates the parser of an instance, by the format of its values and its name.
    pub(super) fn new(
        (format, instance): (&ValueFormat, &str),
        selection: NameFilter,
        make: BuildRow<V>,
    ) -> Self {
        let locations = match format {
            ValueFormat::Regex(expression) => Some(expression.regex().capture_locations()),
            ValueFormat::Pairs => None,
        };
        let filter = CachedNameFilter::new(selection);
        Self {
            format: format.clone(),
            locations,
            default_name: instance.as_bytes().to_vec(),
            build_row: make,
            rows: ValueRows { filter, found: 0, values: Vec::new(), incomplete: Incomplete::NONE },
        }
    }

    /// Forgets the values of the last text.
    pub(super) fn clear(&mut self) {
        self.rows.values.clear();
        self.rows.found = 0;
        self.rows.incomplete = Incomplete::NONE;
    }

    /// Finds the values of a text. Bytes after its last newline are ignored.
    pub(super) fn parse(&mut self, content: &[u8]) -> Incomplete {
        self.clear();
        let Self { format, locations, default_name, build_row: make, rows } = self;
        let (lines, incomplete) = text::whole_lines(content);
        rows.incomplete = incomplete;
        match (format, locations) {
            (ValueFormat::Regex(expression), Some(locations)) => {
                let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let whole = content.get(..end).unwrap_or_default();
                for_each_match(whole, expression, locations, default_name, |name, value| {
                    rows.add(name, value, *make)
                });
            }
            _ => {
                for line in lines.map(<[u8]>::trim_ascii).filter(|line| !matches!(line, [] | [b'#', ..])) {
                    let (name, value) = split_pair(line);
                    if !rows.add(name, value, *make) {
                        break;
                    }
                }
            }
        }
        rows.incomplete |= Incomplete::CUT.unless(rows.found > 0);
        rows.incomplete
    }

    /// Returns the values of the last text.
    pub(super) fn rows(&self) -> &[V] {
        &self.rows.values
    }
}

impl<V> ValueRows<V> {
    /// Adds a value if it is wanted. Returns false if no more values fit.
    fn add(&mut self, name: &[u8], value: &[u8], make: BuildRow<V>) -> bool {
        if self.found == VALUES_MAX {
            self.incomplete |= Incomplete::TOO_MANY;
            return false;
        }
        let place = self.found;
        self.found += 1;
        if !self.filter.matches(place, name) {
            return true;
        }
        // A name that does not fit is skipped: cut, it would be another name.
        let Some(name) = text::name(name).filter(|name| name[0] != 0) else {
            self.incomplete |= Incomplete::UNREADABLE;
            return true;
        };
        let (number, integer) = number(value);
        self.incomplete |= Incomplete::UNREADABLE.unless(!number.is_nan());
        self.values.push(make(&name, number, integer));
        true
    }
}

/// Calls `add` with name and value of each match until it returns false.
fn for_each_match(
    whole: &[u8],
    expression: &Expression,
    locations: &mut CaptureLocations,
    default_name: &[u8],
    mut add: impl FnMut(&[u8], &[u8]) -> bool,
) {
    let mut at = 0;
    while at <= whole.len() {
        let Some(found) = expression.regex().captures_read_at(locations, whole, at) else { return };
        // An empty match must not be found again.
        at = if found.is_empty() { found.end() + 1 } else { found.end() };
        let group = |group| locations.get(group).and_then(|(start, end)| whole.get(start..end));
        // A group may not take part in a match.
        let Some(value) = group(expression.value_group()) else { continue };
        let name = match expression.name_group() {
            Some(name) => group(name).unwrap_or_default(),
            None => default_name,
        };
        if !add(name.trim_ascii(), value.trim_ascii()) {
            return;
        }
    }
}

/// Splits a line into name and value. The name ends at a space, a tab, an equals sign, or a colon
/// before a space or the end of the line; the value ends at the next space or tab.
fn split_pair(line: &[u8]) -> (&[u8], &[u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let ends = |(at, byte): (usize, &u8)| match byte {
        b' ' | b'\t' | b'=' => true,
        b':' => line.get(at + 1).is_none_or(is_space),
        _ => false,
    };
    let end = line.iter().enumerate().position(ends).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"=").or_else(|| rest.strip_prefix(b":")).unwrap_or(rest).trim_ascii_start();
    let end = rest.iter().position(is_space).unwrap_or(rest.len());
    (name, rest.get(..end).unwrap_or_default())
}

/// Parses a number as the nearest double, and exactly if it is an integer that fits; NaN and absent
/// if it is not.
fn number(text: &[u8]) -> (f64, i64) {
    // No words such as "inf", and no number so large that it would become infinite.
    let is_plain = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let plain = std::str::from_utf8(text).ok().filter(|_| text.iter().all(is_plain));
    let number = plain.and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite());
    let integer = plain.and_then(|text| text.parse::<i64>().ok());
    (number.unwrap_or(f64::NAN), integer.unwrap_or(ABSENT_INTEGER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::sampling::OwnSettings;
    use crate::sampling::sources::tests::assert_damage_is_marked;

    type TestRow = (String, f64, i64);

    fn row(name: &[u8; NAME_BYTES], number: f64, integer: i64) -> TestRow {
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        (String::from_utf8_lossy(&name[..end]).into_owned(), number, integer)
    }

    fn values(keys: &str) -> TextValues<TestRow> {
        let text = format!("[source.file.own]\npath = \"/x\"\n{keys}\n");
        let config = Config::parse("test.toml", &text).unwrap();
        let settings = config.sources.last().unwrap().settings();
        let OwnSettings::Text(text, instance) = settings.own else { panic!() };
        TextValues::new((&text.format, instance), settings.selection(), row)
    }

    fn parsed(keys: &str, text: &str) -> (Vec<TestRow>, Incomplete) {
        let mut values = values(keys);
        let incomplete = values.parse(text.as_bytes());
        (values.rows().to_vec(), incomplete)
    }

    fn rows(expected: &[(&str, f64, i64)]) -> Vec<TestRow> {
        expected.iter().map(|(name, number, integer)| ((*name).to_owned(), *number, *integer)).collect()
    }

    // Proves that pairs are read in each notation that files use.
    #[test]
    fn pairs_are_read() {
        let text =
            "# comment\n\nMemTotal:     10 kB\na=1\nb = -2\nc 3 4\n  d\t+5\ne:f 0.25\ng : 1e3\nh== 6\n";
        let expected = rows(&[
            ("MemTotal", 10.0, 10),
            ("a", 1.0, 1),
            ("b", -2.0, -2),
            ("c", 3.0, 3),
            ("d", 5.0, 5),
            ("e:f", 0.25, ABSENT_INTEGER),
            ("g", 1000.0, ABSENT_INTEGER),
        ]);
        let (found, incomplete) = parsed("", text);
        assert_eq!((&found[..7], incomplete), (&expected[..], Incomplete::UNREADABLE));
        assert!(found[7].0 == "h" && found[7].1.is_nan(), "{found:?}");
    }

    // Proves that expressions find names and values, across lines too.
    #[test]
    fn expressions_are_read() {
        let text = "md0 : active\n   97 blocks\nmd1 : active\n   98 blocks\n";
        let expected = (rows(&[("md0", 97.0, 97), ("md1", 98.0, 98)]), Incomplete::NONE);
        let regex = |pattern: &str| format!("format = \"regex\"\npattern = '{pattern}'");
        assert_eq!(parsed(&regex(r"^(?<name>md\d) : active\n +(?<value>\d+)"), text), expected);
        assert_eq!(parsed(&regex(r"^(md\d)[^\n]*\n\s+(\d+)"), text), expected);
        let own = (rows(&[("own", 97.0, 97), ("own", 98.0, 98)]), Incomplete::NONE);
        assert_eq!(parsed(&regex(r"(\d+) blocks$"), text), own);
        assert_eq!(parsed(&regex(r"(\d+) bytes"), text), (Vec::new(), Incomplete::CUT));
        assert_eq!(parsed(&regex(r"active|(?<value>9\d)"), text), own);
        // An empty match moves on.
        assert_eq!(parsed(&regex(r"(x*)"), "ab\n").0.len(), 4);
        assert_eq!(
            parsed(&(regex(r"(\w+) (\d+)") + "\nexclude = [\"a\"]"), "a 1\nb 2\n").0,
            rows(&[("b", 2.0, 2)])
        );
    }

    // Proves that a number is exact or absent, and that no word is a number.
    #[test]
    fn numbers_are_exact_or_absent() {
        for (text, integer) in
            [("9223372036854775807", i64::MAX), ("-9223372036854775807", -i64::MAX), ("+0", 0)]
        {
            assert_eq!(number(text.as_bytes()).1, integer);
        }
        for text in ["9223372036854775808", "-9223372036854775808", "1.0", "1e3", ".5", "5."] {
            let (number, integer) = number(text.as_bytes());
            assert_eq!((number, integer), (text.parse().unwrap(), ABSENT_INTEGER));
        }
        for text in ["", "inf", "nan", "1e999", "0x10", "1_0", "1,5", "45%", "--1", "e", "."] {
            let (number, integer) = number(text.as_bytes());
            assert!(number.is_nan() && integer == ABSENT_INTEGER, "{text}");
        }
    }

    // Proves that no text panics, that a cut text is always marked, and that the number of values
    // is limited, in both formats.
    #[test]
    fn damaged_text_is_marked() {
        for keys in ["", "format = \"regex\"\npattern = '^(\\w+) (\\d+)$'"] {
            let mut values = values(keys);
            assert_damage_is_marked(b"first 1\nsecond 22\n", |text| {
                values.parse(text).is_none() && values.rows().len() == 2
            });
        }
        let long = "x".repeat(NAME_BYTES);
        assert_eq!(parsed("", &format!("{long} 1\n")), (Vec::new(), Incomplete::UNREADABLE));
        let (found, incomplete) = parsed("", &"x 1\n".repeat(VALUES_MAX + 1));
        assert_eq!((found.len(), incomplete), (VALUES_MAX, Incomplete::TOO_MANY));
    }
}
