//! Values in any text, as the configuration describes it: pairs of name and number, or matches of an expression.

use regex::bytes::CaptureLocations;

use super::text;
use crate::config::{Expression, Format, Source};
use crate::sampling::{Chosen, Selection, Shortfall};

/// Most values in one sample.
const VALUES_MAX: usize = 4096;
/// Bytes of a name in the schemas, its end included.
pub(super) const NAME_BYTES: usize = 56;
/// Stands for a whole number that is not there: schemas mark such fields `absent: "min"`.
pub(super) const ABSENT_INTEGER: i64 = i64::MIN;

/// Makes a schema's struct of name, number and whole number.
type Make<V> = fn(&[u8; NAME_BYTES], f64, i64) -> V;

/// Finds values and keeps them until the next text.
#[derive(Debug)]
pub(super) struct Values<V> {
    format: Format,
    locations: Option<CaptureLocations>, // reused
    own_name: Vec<u8>,                   // where the text gives none
    make: Make<V>,
    rows: Rows<V>,
}

#[derive(Debug)]
struct Rows<V> {
    chosen: Chosen,
    found: usize,   // wanted or not
    values: Vec<V>, // reused
    shortfall: Shortfall,
}

impl<V> Values<V> {
    /// For an instance. One without readout finds nothing; the configuration makes none.
    pub(super) fn new(source: &Source, make: Make<V>) -> Self {
        let format = source.readout.as_ref().map_or(Format::Pairs, |readout| readout.format.clone());
        let locations = match &format {
            Format::Regex(expression) => Some(expression.regex().capture_locations()),
            Format::Pairs => None,
        };
        let chosen = Chosen::new(Selection::of(source));
        Self {
            format,
            locations,
            own_name: source.instance.clone().unwrap_or_default().into_bytes(),
            make,
            rows: Rows { chosen, found: 0, values: Vec::new(), shortfall: Shortfall::NONE },
        }
    }

    /// Forgets the values of the text before.
    pub(super) fn clear(&mut self) {
        self.rows.values.clear();
        self.rows.found = 0;
        self.rows.shortfall = Shortfall::NONE;
    }

    /// Finds the values of a text. What follows its last newline is not believed.
    pub(super) fn parse(&mut self, content: &[u8]) -> Shortfall {
        self.clear();
        let Self { format, locations, own_name, make, rows } = self;
        let (lines, shortfall) = text::whole_lines(content);
        rows.shortfall = shortfall;
        match (format, locations) {
            (Format::Regex(expression), Some(locations)) => {
                let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let whole = content.get(..end).unwrap_or_default();
                matches(whole, expression, locations, own_name, |name, value| rows.add(name, value, *make));
            }
            _ => {
                for line in lines.map(<[u8]>::trim_ascii).filter(|line| !matches!(line, [] | [b'#', ..])) {
                    let (name, value) = pair(line);
                    if !rows.add(name, value, *make) {
                        break;
                    }
                }
            }
        }
        rows.shortfall |= Shortfall::CUT.unless(rows.found > 0);
        rows.shortfall
    }

    /// The values of the last text.
    pub(super) fn rows(&self) -> &[V] {
        &self.rows.values
    }
}

impl<V> Rows<V> {
    /// Adds a value if it is wanted. False when there is no room for more.
    fn add(&mut self, name: &[u8], value: &[u8], make: Make<V>) -> bool {
        if self.found == VALUES_MAX {
            self.shortfall |= Shortfall::TOO_MANY;
            return false;
        }
        let place = self.found;
        self.found += 1;
        if !self.chosen.wants(place, name) {
            return true;
        }
        // A name that does not fit is not cut into another one.
        let Some(name) = text::name(name).filter(|name| name[0] != 0) else {
            self.shortfall |= Shortfall::UNREADABLE;
            return true;
        };
        let (number, integer) = number(value);
        self.shortfall |= Shortfall::UNREADABLE.unless(!number.is_nan());
        self.values.push(make(&name, number, integer));
        true
    }
}

/// Calls `add` with name and value of each match until it says no.
fn matches(
    whole: &[u8],
    expression: &Expression,
    locations: &mut CaptureLocations,
    own_name: &[u8],
    mut add: impl FnMut(&[u8], &[u8]) -> bool,
) {
    let mut at = 0;
    while at <= whole.len() {
        let Some(found) = expression.regex().captures_read_at(locations, whole, at) else { return };
        // A match of nothing is not found again.
        at = if found.is_empty() { found.end() + 1 } else { found.end() };
        let group = |group| locations.get(group).and_then(|(start, end)| whole.get(start..end));
        // A group may take no part in a match.
        let Some(value) = group(expression.value_group()) else { continue };
        let name = match expression.name_group() {
            Some(name) => group(name).unwrap_or_default(),
            None => own_name,
        };
        if !add(name.trim_ascii(), value.trim_ascii()) {
            return;
        }
    }
}

/// Name and value of a line: the name ends at a space, a tab, an equals sign, or a colon in front of space or end; the value
/// at the next space or tab.
fn pair(line: &[u8]) -> (&[u8], &[u8]) {
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

/// A number to the nearest double, and exactly if it is whole and fits; not a number, and absent, where it is none.
fn number(text: &[u8]) -> (f64, i64) {
    // No words such as "inf", and no number so large that it would become one.
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
    use crate::sampling::sources::tests::assert_composed;

    type Row = (String, f64, i64);

    fn row(name: &[u8; NAME_BYTES], number: f64, integer: i64) -> Row {
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        (String::from_utf8_lossy(&name[..end]).into_owned(), number, integer)
    }

    fn values(keys: &str) -> Values<Row> {
        let text = format!("[source.file.own]\npath = \"/x\"\n{keys}\n");
        let config = Config::parse("test.toml", &text).unwrap();
        Values::new(config.sources.last().unwrap(), row)
    }

    fn parsed(keys: &str, text: &str) -> (Vec<Row>, Shortfall) {
        let mut values = values(keys);
        let shortfall = values.parse(text.as_bytes());
        (values.rows().to_vec(), shortfall)
    }

    fn rows(expected: &[(&str, f64, i64)]) -> Vec<Row> {
        expected.iter().map(|(name, number, integer)| ((*name).to_owned(), *number, *integer)).collect()
    }

    // Goal: pairs are read in each way that files have of writing them. Method: one line each.
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
        let (found, shortfall) = parsed("", text);
        assert_eq!((&found[..7], shortfall), (&expected[..], Shortfall::UNREADABLE));
        assert!(found[7].0 == "h" && found[7].1.is_nan(), "{found:?}");
    }

    // Goal: expressions find names and values, across lines too. Method: named groups, two groups, one group, none taken.
    #[test]
    fn expressions_are_read() {
        let text = "md0 : active\n   97 blocks\nmd1 : active\n   98 blocks\n";
        let expected = (rows(&[("md0", 97.0, 97), ("md1", 98.0, 98)]), Shortfall::NONE);
        let regex = |pattern: &str| format!("format = \"regex\"\npattern = '{pattern}'");
        assert_eq!(parsed(&regex(r"^(?<name>md\d) : active\n +(?<value>\d+)"), text), expected);
        assert_eq!(parsed(&regex(r"^(md\d)[^\n]*\n\s+(\d+)"), text), expected);
        let own = (rows(&[("own", 97.0, 97), ("own", 98.0, 98)]), Shortfall::NONE);
        assert_eq!(parsed(&regex(r"(\d+) blocks$"), text), own);
        assert_eq!(parsed(&regex(r"(\d+) bytes"), text), (Vec::new(), Shortfall::CUT));
        assert_eq!(parsed(&regex(r"active|(?<value>9\d)"), text), own);
        // A match of nothing moves on.
        assert_eq!(parsed(&regex(r"(x*)"), "ab\n").0.len(), 4);
        assert_eq!(
            parsed(&(regex(r"(\w+) (\d+)") + "\nexclude = [\"a\"]"), "a 1\nb 2\n").0,
            rows(&[("b", 2.0, 2)])
        );
    }

    // Goal: a number is exact or absent, and never a word. Method: edges of both types.
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

    // Goal: no text panics, a cut one is never called whole, and there are no more values than allowed. Method: every cut,
    // every byte replaced, with both formats; long names; many lines.
    #[test]
    fn damaged_text_is_marked() {
        for keys in ["", "format = \"regex\"\npattern = '^(\\w+) (\\d+)$'"] {
            let mut values = values(keys);
            assert_composed(b"first 1\nsecond 22\n", |text| {
                values.parse(text).is_none() && values.rows().len() == 2
            });
        }
        let long = "x".repeat(NAME_BYTES);
        assert_eq!(parsed("", &format!("{long} 1\n")), (Vec::new(), Shortfall::UNREADABLE));
        let (found, shortfall) = parsed("", &"x 1\n".repeat(VALUES_MAX + 1));
        assert_eq!((found.len(), shortfall), (VALUES_MAX, Shortfall::TOO_MANY));
    }
}
