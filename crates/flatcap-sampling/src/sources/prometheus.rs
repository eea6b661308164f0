//! The text format of Prometheus, version 0.0.4, and the parts that `OpenMetrics` has in common
//! with it. <https://prometheus.io/docs/instrumenting/exposition_formats/>
//!
//! Series follow the `# TYPE` of their metric, so only the last `# TYPE` line is kept. Exemplars
//! are ignored.

use std::ops::Range;

use super::named_series::{FoundSeries, SeriesKind};
use super::skipped_values::{SkipReason, SkippedValues};
use super::text;
use crate::Incomplete;

/// Parses the text format, and reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct PrometheusParser {
    labels: Vec<LabelPlace>,
    canonical: String, // the labels of the current line
}

/// The positions of a label's name and value, without quotes, in a line.
#[derive(Debug)]
struct LabelPlace {
    name: Range<usize>,
    value: Range<usize>,
}

/// The metric that the last `# TYPE` line declares.
#[derive(Debug, Default)]
struct DeclaredMetric<'t> {
    name: &'t str,
    metric_type: MetricType,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum MetricType {
    Counter,
    Histogram,
    Summary,
    /// Gauges, and metrics that the text does not declare.
    #[default]
    Other,
}

/// A line that was split into its parts. The labels are in `PrometheusParser::canonical`.
#[derive(Debug)]
struct SampleLine<'t> {
    name: &'t str,
    value: f64, // NaN if the text has no finite value
    has_time: bool,
}

impl PrometheusParser {
    /// Calls `add` with each series of a text. Bytes after the last newline are ignored, because
    /// the last value there may lack digits.
    pub(super) fn parse(
        &mut self,
        content: &[u8],
        skipped: &mut SkippedValues,
        mut add: impl FnMut(FoundSeries<'_>, &mut SkippedValues),
    ) -> Incomplete {
        let (lines, incomplete) = text::whole_lines(content);
        let mut declared = DeclaredMetric::default();
        for bytes in lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            let line = str::from_utf8(bytes).ok();
            if let Some(comment) = line.and_then(|line| line.strip_prefix('#')) {
                declared.update(comment);
                continue;
            }
            let Some(sample) = line.and_then(|line| self.split(line)) else {
                skipped.add(SkipReason::NotALine, bytes);
                continue;
            };
            if sample.has_time {
                skipped.add(SkipReason::Time, bytes);
            }
            let SampleLine { name, value, .. } = sample;
            add(FoundSeries { kind: declared.kind_of(name), name, labels: &self.canonical, value }, skipped);
        }
        incomplete
    }

    /// Splits a line that is not a comment. Returns `None` if the line is malformed.
    fn split<'t>(&mut self, line: &'t str) -> Option<SampleLine<'t>> {
        let end = line.find(|next: char| next == '{' || next.is_ascii_whitespace())?;
        let (name, rest) = line.split_at(end);
        if !is_name(name) {
            return None;
        }
        self.labels.clear();
        self.canonical.clear();
        let rest = match rest.trim_ascii_start().strip_prefix('{') {
            Some(labels) => self.split_labels(line, labels)?,
            None => rest,
        };
        let mut words = rest.split_ascii_whitespace();
        let value = number(words.next()?)?;
        let time = words.next().filter(|word| !word.starts_with('#'));
        // A time may follow the value, in milliseconds or, in OpenMetrics, in seconds. An exemplar
        // may follow the time.
        if time.is_some_and(|time| text::finite(time.as_bytes()).is_none())
            || (time.is_some() && words.next().is_some_and(|word| !word.starts_with('#')))
        {
            return None;
        }
        Some(SampleLine { name, value, has_time: time.is_some() })
    }

    /// Finds the labels in `rest`, which is the part of `line` after the opening brace. Returns the
    /// text after the closing brace.
    fn split_labels<'t>(&mut self, line: &str, mut rest: &'t str) -> Option<&'t str> {
        let place = |part: &str, rest: &str| {
            let start = line.len() - rest.len();
            start..start + part.len()
        };
        loop {
            rest = rest.trim_ascii_start();
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (name, after) = rest.split_once('=')?;
            let name = name.trim_ascii_end();
            if !is_name(name) || name.contains(':') {
                return None;
            }
            let quoted = after.trim_ascii_start().strip_prefix('"')?;
            let (value, after) = quoted.split_at(quoted_bytes(quoted)?);
            // A label with an empty value is the same as no label.
            if !value.is_empty() {
                self.labels.push(LabelPlace { name: place(name, rest), value: place(value, quoted) });
            }
            let after = after.strip_prefix('"')?.trim_ascii_start();
            rest = match after.strip_prefix(',') {
                Some(after) => after,
                None => Some(after).filter(|after| after.starts_with('}'))?,
            };
        }
        self.write_canonical(line)?;
        Some(rest)
    }

    /// Writes the labels of a line in the order of their names. Returns `None` if a name occurs
    /// twice.
    fn write_canonical(&mut self, line: &str) -> Option<()> {
        let name = |label: &LabelPlace| line.get(label.name.clone());
        self.labels.sort_unstable_by(|one, other| name(one).cmp(&name(other)));
        let mut before = None;
        for label in &self.labels {
            let name = name(label)?;
            if before.replace(name) == Some(name) {
                return None;
            }
            let separator = if self.canonical.is_empty() { "" } else { "," };
            let value = line.get(label.value.clone())?;
            for part in [separator, name, "=\"", value, "\""] {
                self.canonical.push_str(part);
            }
        }
        Some(())
    }
}

impl<'t> DeclaredMetric<'t> {
    /// Reads a comment, without its `#`.
    fn update(&mut self, comment: &'t str) {
        let mut words = comment.split_ascii_whitespace();
        if words.next() == Some("TYPE")
            && let (Some(name), Some(word)) = (words.next(), words.next())
        {
            let metric_type = match word {
                "counter" => MetricType::Counter,
                "histogram" => MetricType::Histogram,
                "summary" => MetricType::Summary,
                _ => MetricType::Other,
            };
            *self = Self { name, metric_type };
        }
    }

    /// Returns the kind of the series with the name `name`. `OpenMetrics` declares a counter
    /// without the ending `_total`.
    fn kind_of(&self, name: &str) -> SeriesKind {
        let is_counter = matches!(
            (self.metric_type, name.strip_prefix(self.name)),
            (MetricType::Counter, Some("" | "_total"))
                | (MetricType::Histogram, Some("_bucket" | "_sum" | "_count"))
                | (MetricType::Summary, Some("_sum" | "_count"))
        );
        if is_counter { SeriesKind::Counter } else { SeriesKind::Gauge }
    }
}

/// Returns whether a word is the name of a metric. The name of a label, unlike the name of a
/// metric, must not contain colons.
fn is_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    let mut bytes = word.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// Returns the length of a quoted text, up to its closing quote. A backslash escapes the character
/// after it.
fn quoted_bytes(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Parses a value. Returns NaN if the value is valid but not finite, and `None` if the word is not
/// a number.
fn number(word: &str) -> Option<f64> {
    let is_special = || {
        let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
        ["nan", "inf", "infinity"].iter().any(|special| unsigned.eq_ignore_ascii_case(special))
            || (text::is_plain(word.as_bytes()) && word.parse::<f64>().is_ok())
    };
    text::finite(word.as_bytes()).or_else(|| is_special().then_some(f64::NAN))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sources::tests::assert_damage_is_marked;

    /// Returns the series as kind, identity and value, the number of skipped values, and the
    /// reasons why values were skipped.
    fn parsed(text: &[u8]) -> (Vec<(SeriesKind, String, f64)>, u64, Incomplete) {
        let mut skipped = SkippedValues::new("file.x".to_owned(), "prometheus");
        let mut found = Vec::new();
        let cut = PrometheusParser::default().parse(text, &mut skipped, |series, _| {
            found.push((series.kind, format!("{}{{{}}}", series.name, series.labels), series.value));
        });
        (found, skipped.count(), cut | skipped.incomplete())
    }

    fn series(kind: SeriesKind, identity: &str, value: f64) -> (SeriesKind, String, f64) {
        (kind, identity.to_owned(), value)
    }

    // Proves that equal sets of labels become the same text, in any order and notation, and that
    // escaped quotes, braces and commas belong to the value.
    #[test]
    fn labels_are_canonical() {
        for line in [
            r#"m{code="200",method="get"} 1"#,
            r#"m{method="get",code="200"} 1"#,
            r#"m { method = "get" , code = "200" , }  1.0"#,
            "\tm{code=\"200\",none=\"\",method=\"get\"}1",
        ] {
            let expected = series(SeriesKind::Gauge, r#"m{code="200",method="get"}"#, 1.0);
            assert_eq!(
                parsed(format!("{line}\n").as_bytes()),
                (vec![expected], 0, Incomplete::NONE),
                "{line}"
            );
        }
        let escaped = r#"m{a="\\",b="\"},{=",c="x\ny",d="}"}"#;
        let text = format!("{escaped} -2.5e3\nm 3\nm{{}} 4\n");
        let expected = [series(SeriesKind::Gauge, escaped, -2500.0), series(SeriesKind::Gauge, "m{}", 3.0)];
        assert_eq!(parsed(text.as_bytes()).0[..2], expected);
    }

    // Proves that a series is a counter exactly if its declared type counts and its name is one of
    // the names that belong to this type.
    #[test]
    fn types_decide_what_counts() {
        use SeriesKind::{Counter, Gauge};
        let text = "# HELP a_total counter\n# TYPE a_total counter\na_total 1\na_total_other 2\n\
            # TYPE b gauge\nb 3\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 4\nh_sum 5\nh_count 6\nh_created 7\n\
            #  TYPE  s\tsummary \ns{quantile=\"0.5\"} 8\ns_sum 9\ns_count 10\na_total 11\n\
            # TYPE o counter\no_total 12\no_created 13\n# TYPE u untyped\nu_total 14\n# EOF\n";
        let (found, skipped, incomplete) = parsed(text.as_bytes());
        let kinds: Vec<SeriesKind> = found.iter().map(|(kind, ..)| *kind).collect();
        let expected = [
            Counter, Gauge, Gauge, Counter, Counter, Counter, Gauge, Gauge, Counter, Counter, Gauge, Counter,
            Gauge, Gauge,
        ];
        assert_eq!(kinds, expected, "{found:?}");
        assert_eq!((skipped, incomplete), (0, Incomplete::NONE));
        assert_eq!(found[3].1, "h_bucket{le=\"+Inf\"}");
    }

    // Proves that values that are not finite are absent, and that exemplars are ignored without
    // making the sample incomplete. Times are dropped and malformed lines are skipped, each with a
    // reason.
    #[test]
    fn what_does_not_fit_is_counted() {
        for line in ["m NaN", "m{a=\"b\"} +Inf", "m -inf", "m 1e999"] {
            let (found, ..) = parsed(format!("{line}\n").as_bytes());
            assert!(found.len() == 1 && found[0].2.is_nan(), "{line}: {found:?}");
        }
        let timed = series(SeriesKind::Gauge, "m{}", 2.0);
        for line in ["m 2 1395066363000", "m 2 1395066363.25", "m 2 1 # {trace=\"x\"} 0.5"] {
            let expected = (vec![timed.clone()], 1, Incomplete::UNREADABLE);
            assert_eq!(parsed(format!("{line}\n").as_bytes()), expected, "{line}");
        }
        let exemplar = parsed(b"m 2 # {trace=\"x\"} 0.5 1.5\n");
        assert_eq!(exemplar, (vec![timed], 0, Incomplete::NONE));
        for line in [
            "m",
            "m{} ",
            "m{a=b} 1",
            "m{a=\"b} 1",
            "m{a=\"b\" c=\"d\"} 1",
            "m{a=\"b\"",
            "m{a=\"b\",a=\"c\"} 1",
            "m{,} 1",
            "m{1a=\"b\"} 1",
            "m{a:b=\"c\"} 1",
            "1m 1",
            "m x",
            "m 1 x",
            "m 1 2 3",
            "m 0x1",
            "{a=\"b\"} 1",
            "m-n 1",
            "m\u{e4} 1",
        ] {
            let expected = (Vec::new(), 1, Incomplete::UNREADABLE);
            assert_eq!(parsed(format!("{line}\n").as_bytes()), expected, "{line}");
        }
        assert_eq!(parsed(b"m{a=\"\xFF\"} 1\n"), (Vec::new(), 1, Incomplete::UNREADABLE));
        assert_eq!(parsed(b"m 1\nm 2"), (vec![series(SeriesKind::Gauge, "m{}", 1.0)], 0, Incomplete::CUT));
        assert_damage_is_marked(b"# TYPE m counter\nm{a=\"b\",c=\"\\\"\"} 12\nn 3\n", |text| {
            let (found, _, incomplete) = parsed(text);
            incomplete.is_none() && found.len() == 2
        });
    }

    proptest! {
        // Proves that no input causes a panic, and that the names and labels that are found are not
        // longer than the text.
        #[test]
        fn no_bytes_panic(text in prop::collection::vec(
            prop_oneof![prop::sample::select(b"a1{}\"\\=,# \n+.e".to_vec()), any::<u8>()], 0..200)) {
            let (found, skipped, _) = parsed(&text);
            let lines = text.split(|byte| *byte == b'\n').count();
            prop_assert!(found.len() <= lines && skipped <= 2 * lines as u64);
            for (_, identity, _) in &found {
                prop_assert!(identity.len() <= text.len() + 2);
            }
        }

        // Proves that the labels and the value of any series are read back, whatever the order of
        // the labels in the text.
        #[test]
        fn series_come_back(
            labels in prop::collection::btree_map("[a-z_][a-z0-9_]{0,4}", "([ -!#-\\[\\]-~\u{e4}]|\\\\[\\\\n\"]){1,8}", 0..6),
            value in -1e300..1e300_f64,
            is_reversed in any::<bool>(),
        ) {
            let mut pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let expected = format!("m{{{}}}", pairs.join(","));
            if is_reversed {
                pairs.reverse();
            }
            let text = format!("m{{{}}} {value:e}\n", pairs.join(","));
            prop_assert_eq!(parsed(text.as_bytes()), (vec![series(SeriesKind::Gauge, &expected, value)], 0, Incomplete::NONE));
        }
    }
}
