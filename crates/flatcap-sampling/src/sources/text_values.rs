//! Values in any text whose format the configuration states. The formats are pairs of name and
//! number, matches of a regular expression, the Prometheus format, and JSON.

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};
use flatcap_schemas::host::FileValue;
use regex::bytes::CaptureLocations;

use super::json_numbers::JsonParser;
use super::named_series::NamedSeries;
use super::prometheus::PrometheusParser;
use super::skipped_values::{SkipReason, SkippedValues};
use super::text;
use crate::{CachedNameFilter, Expression, Incomplete, NameFilter, ValueFormat};

/// Maximum number of values in one sample.
const VALUES_MAX: usize = 4096;
/// Maximum length of the name of a pair or match in the schemas, in bytes, including its
/// terminating zero byte.
const NAME_BYTES: usize = 56;
/// Marks an integer that is missing. Schemas mark such fields with `absent: "min"`.
pub(super) const ABSENT_INTEGER: i64 = i64::MIN;

/// Finds values and keeps them until the next text. All sources with such values use the structs
/// and tables of the schema `file`, because their schemas share these layouts.
#[derive(Debug)]
pub(super) struct TextValues {
    format: ValueFormat,
    locations: Option<CaptureLocations>, // reused
    default_name: String,                // name of a value without a name
    prometheus: PrometheusParser,
    json: JsonParser,
    rows: ValueRows,
    series: NamedSeries,
    skipped: SkippedValues,
}

#[derive(Debug)]
struct ValueRows {
    filter: CachedNameFilter,
    found: usize,           // number of values, wanted or not
    values: Vec<FileValue>, // reused
}

/// A list of tables in the payload.
type Tables<T> = WIPOffset<Vector<'static, ForwardsUOffset<T>>>;

impl TextValues {
    /// Creates the parser for an instance of the source, given the format of the instance's values
    /// and the instance's name.
    pub(super) fn new(source: &str, (format, instance): (&ValueFormat, &str), selection: NameFilter) -> Self {
        let locations = match format {
            ValueFormat::Regex(expression) => Some(expression.regex().capture_locations()),
            ValueFormat::Pairs | ValueFormat::Prometheus | ValueFormat::Json => None,
        };
        Self {
            format: format.clone(),
            locations,
            default_name: instance.to_owned(),
            prometheus: PrometheusParser::default(),
            json: JsonParser::default(),
            rows: ValueRows {
                filter: CachedNameFilter::new(selection.clone()),
                found: 0,
                values: Vec::new(),
            },
            series: NamedSeries::new(selection),
            skipped: SkippedValues::new(format!("{source}.{instance}"), format.name()),
        }
    }

    /// Forgets the values of the last text.
    pub(super) fn clear(&mut self) {
        self.rows.values.clear();
        self.rows.found = 0;
        self.series.clear();
        self.skipped.clear();
    }

    /// Finds the values of a text, for the payload in `builder`.
    pub(super) fn parse(&mut self, content: &[u8], builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        self.clear();
        let Self { format, locations, default_name, prometheus, json, rows, series, skipped } = self;
        let cut = match (format, locations) {
            (ValueFormat::Regex(expression), Some(locations)) => {
                let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let whole = content.get(..end).unwrap_or_default();
                for_each_match(whole, expression, locations, default_name.as_bytes(), |name, value| {
                    rows.add(name, value, skipped)
                });
                text::whole_lines(content).1
            }
            (ValueFormat::Prometheus, _) => prometheus.parse(content, skipped, |found, skipped| {
                series.add(builder, found, skipped);
            }),
            (ValueFormat::Json, _) => json.parse(content, default_name, skipped, |found, skipped| {
                series.add(builder, found, skipped);
            }),
            _ => {
                let (lines, cut) = text::whole_lines(content);
                for line in lines.map(<[u8]>::trim_ascii).filter(|line| !matches!(line, [] | [b'#', ..])) {
                    let (name, value) = split_pair(line);
                    if !rows.add(name, value, skipped) {
                        break;
                    }
                }
                cut
            }
        };
        skipped.log_once();
        cut | skipped.incomplete() | Incomplete::CUT.unless(rows.found + series.found() > 0)
    }

    /// Writes the pairs or matches of the last text.
    pub(super) fn rows<Value>(
        &self,
        builder: &mut FlatBufferBuilder<'static>,
    ) -> WIPOffset<Vector<'static, Value>> {
        in_layout(builder.create_vector(&self.rows.values))
    }

    /// Writes the counters of the last text, if its format has any.
    pub(super) fn counters<Counter>(
        &self,
        builder: &mut FlatBufferBuilder<'static>,
    ) -> Option<Tables<Counter>> {
        self.has_series().then(|| in_layout(builder.create_vector(self.series.counters())))
    }

    /// Writes the gauges of the last text, if its format has any.
    pub(super) fn gauges<Gauge>(&self, builder: &mut FlatBufferBuilder<'static>) -> Option<Tables<Gauge>> {
        self.has_series().then(|| in_layout(builder.create_vector(self.series.gauges())))
    }

    fn has_series(&self) -> bool {
        match self.format {
            ValueFormat::Pairs | ValueFormat::Regex(_) => false,
            ValueFormat::Prometheus | ValueFormat::Json => true,
        }
    }

    /// Returns the number of values of the last text that are missing in the sample.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped.count()
    }
}

/// Converts the offset of a value to an offset of another type with the same layout.
fn in_layout<Written, Same>(written: WIPOffset<Written>) -> WIPOffset<Same> {
    WIPOffset::new(written.value())
}

impl ValueRows {
    /// Adds a value if the filter selects it. Returns false if no more values fit.
    fn add(&mut self, name: &[u8], value: &[u8], skipped: &mut SkippedValues) -> bool {
        if self.found == VALUES_MAX {
            skipped.add(SkipReason::TooMany { values_max: VALUES_MAX }, name);
            return false;
        }
        let place = self.found;
        self.found += 1;
        if !self.filter.matches(place, name) {
            return true;
        }
        // A value whose name does not fit is skipped, because a truncated name would identify
        // another value.
        let Some(fixed) = text::name(name).filter(|name| name[0] != 0) else {
            skipped.add(SkipReason::Name { bytes_max: NAME_BYTES - 1 }, name);
            return true;
        };
        let (number, integer) = number(value);
        if number.is_nan() {
            skipped.add(SkipReason::NotANumber, name);
        }
        self.values.push(FileValue::new(&fixed, number, integer));
        true
    }
}

/// Calls `add` with name and value of each match until `add` returns false.
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
        // After an empty match, the search moves on by one byte, so that the match is not found
        // again.
        at = if found.is_empty() { found.end() + 1 } else { found.end() };
        let group = |group| locations.get(group).and_then(|(start, end)| whole.get(start..end));
        // A group of the expression need not take part in a match.
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
/// before a space or the end of the line. The value ends at the next space or tab.
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

/// Parses a number as the nearest double. If the number is an integer that fits into 64 bits, also
/// parses it exactly. If the number is not such an integer, the integer is absent. If the text is
/// not a number, the double is NaN.
fn number(text: &[u8]) -> (f64, i64) {
    let plain = std::str::from_utf8(text).ok().filter(|_| text::is_plain(text));
    let integer = plain.and_then(|text| text.parse::<i64>().ok());
    (text::finite(text).unwrap_or(f64::NAN), integer.unwrap_or(ABSENT_INTEGER))
}

#[cfg(test)]
mod tests {
    use flatbuffers_reflection::reflection::root_as_schema;

    use super::*;
    use crate::OwnSettings;
    use crate::sources::tests::{assert_damage_is_marked, fixed_text};
    use crate::sources::{SourceSpec, command, file};
    use crate::test_settings::TestSettings;

    type TestRow = (String, f64, i64);

    /// Returns the fields of the structs and tables that contain values, without the source's name.
    fn layouts(spec: &SourceSpec, source: &str) -> Vec<String> {
        let schema = root_as_schema(spec.schema).unwrap();
        let mut layouts = Vec::new();
        for name in ["Value", "Counter", "Gauge"] {
            let name = format!("flatcap.host.{source}{name}");
            let object = schema.objects().iter().find(|object| object.name() == name).unwrap();
            layouts.push(format!("{} {} {}", object.is_struct(), object.minalign(), object.bytesize()));
            layouts.extend(object.fields().iter().map(|field| {
                let (kind, element) = (field.type_().base_type(), field.type_().element());
                let length = field.type_().fixed_length();
                let default = (field.default_integer(), field.default_real(), field.required());
                format!("{} {} {kind:?} {element:?} {length} {default:?}", field.name(), field.offset())
            }));
        }
        layouts
    }

    // Proves that a payload that is written for one source has the layout that the schema of the
    // other source states.
    #[test]
    fn all_sources_have_the_same_layout() {
        let file = layouts(&file::SPEC, "File");
        assert_eq!((layouts(&command::SPEC, "Command"), file.len()), (file, 3 + 3 * 3));
    }

    fn values(keys: &str) -> TextValues {
        let settings = TestSettings::new(&file::SPEC, &format!("path = \"/x\"\n{keys}"));
        let settings = settings.get();
        let OwnSettings::Text(text, instance) = settings.own else { panic!() };
        TextValues::new("file", (&text.format, instance), settings.selection())
    }

    fn parsed(keys: &str, text: &str) -> (Vec<TestRow>, Incomplete) {
        let mut values = values(keys);
        let incomplete = values.parse(text.as_bytes(), &mut FlatBufferBuilder::new());
        let rows = values.rows.values.iter();
        (rows.map(|row| (fixed_text(row.name()), row.number(), row.integer())).collect(), incomplete)
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

    // Proves that expressions find names and values, even across lines.
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
        // After an empty match the search continues.
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

    // Proves that no text causes a panic, that truncated text is always marked, and that the number
    // of values is limited, in both formats.
    #[test]
    fn damaged_text_is_marked() {
        for keys in ["", "format = \"regex\"\npattern = '^(\\w+) (\\d+)$'"] {
            let mut values = values(keys);
            assert_damage_is_marked(b"first 1\nsecond 22\n", |text| {
                values.parse(text, &mut FlatBufferBuilder::new()).is_none() && values.rows.values.len() == 2
            });
        }
        let long = "x".repeat(NAME_BYTES);
        assert_eq!(parsed("", &format!("{long} 1\n")), (Vec::new(), Incomplete::UNREADABLE));
        let (found, incomplete) = parsed("", &"x 1\n".repeat(VALUES_MAX + 1));
        assert_eq!((found.len(), incomplete), (VALUES_MAX, Incomplete::TOO_MANY));
    }
}
