//! Parses the names of LOBSTER's files. Only these names give the symbol, the date and, for
//! messages, the number of levels.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::row::{LEVELS_MAX, RowKind};

/// Maximum length of a symbol, in bytes. A name with a longer symbol is not a name of LOBSTER.
const SYMBOL_BYTES_MAX: usize = 32;
/// The exchange's time zone for hosts without a time zone database. The zone has the daylight
/// saving rule that has applied since 2007, and LOBSTER has no data before 2007.
const NEW_YORK_SINCE_2007: &str = "EST5EDT,M3.2.0,M11.1.0";

/// The parts of a file name of the form `SYMBOL_DATE_BEGIN_END_KIND_LEVELS.csv`. Begin and end may
/// be absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LobsterName {
    /// The part that the names of both files of a pair have in common, namely symbol, date, begin,
    /// end and levels.
    pub(super) day: String,
    pub(super) symbol: String,
    pub(super) date: Date,
    /// The kind of the rows, according to the file name. This field is used only for empty files.
    pub(super) kind: RowKind,
    /// Number of levels of the order book to which the messages refer.
    pub(super) levels: usize,
}

impl LobsterName {
    /// Parses a file name without directories. Returns `None` if the name does not have LOBSTER's
    /// form.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let stem = file.strip_suffix(".gz").unwrap_or(file).strip_suffix(".csv")?;
        let (rest, levels) = stem.rsplit_once('_')?;
        let levels: usize = levels.parse().ok().filter(|levels| (1..=LEVELS_MAX).contains(levels))?;
        let (day, kind) = rest.rsplit_once('_')?;
        let kind = match kind {
            "message" => RowKind::Message,
            "orderbook" => RowKind::OrderBook(levels),
            _ => return None,
        };
        let is_time = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = day.rsplitn(4, '_');
        let named =
            match [parts.next()?, parts.next()?, parts.next().unwrap_or(""), parts.next().unwrap_or("")] {
                [end, begin, date, symbol] if is_time(end) && is_time(begin) => (symbol, date),
                [date, ..] => (day.strip_suffix(date)?.strip_suffix('_')?, date),
            };
        let (symbol, date) = (named.0, parse_date(named.1)?);
        is_symbol(symbol).then(|| Self {
            day: format!("{day}_{levels}"),
            symbol: symbol.to_owned(),
            date,
            kind,
            levels,
        })
    }
}

/// Returns whether a text can be a symbol. A symbol becomes a part of source names and file names.
pub(super) fn is_symbol(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'\\');
    (1..=SYMBOL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with('.')
}

/// Parses a date of the form 2012-06-21. The midnight of this date must be within the range of a
/// frame's time.
fn parse_date(text: &str) -> Option<Date> {
    let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let date: Date = text.parse().ok().filter(|_| is_plain)?;
    midnight_ns(date).map(|_| date)
}

/// Returns midnight in the exchange's time zone, in nanoseconds since 1970, UTC, or `None` if this
/// time is out of range.
pub(super) fn midnight_ns(date: Date) -> Option<i64> {
    let zone = TimeZone::get("America/New_York").or_else(|_| TimeZone::posix(NEW_YORK_SINCE_2007)).ok()?;
    let midnight = date.to_zoned(zone).ok()?.timestamp().as_nanosecond();
    // The time two days after this midnight must also fit into 64 bits.
    i64::try_from(midnight).ok().filter(|midnight| midnight.checked_add(2 * 86_400_000_000_000).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that LOBSTER's names are parsed and that other names, including hostile ones, are
    // rejected.
    #[test]
    fn names_are_read() {
        let name = LobsterName::parse("AAPL_2012-06-21_34200000_57600000_message_10.csv").unwrap();
        assert_eq!((name.symbol.as_str(), name.date.to_string().as_str()), ("AAPL", "2012-06-21"));
        assert_eq!(name.kind, RowKind::Message);
        let book = LobsterName::parse("AAPL_2012-06-21_34200000_57600000_orderbook_10.csv.gz").unwrap();
        assert_eq!((book.kind, &book.day), (RowKind::OrderBook(10), &name.day));
        let deeper = LobsterName::parse("AAPL_2012-06-21_34200000_57600000_orderbook_50.csv").unwrap();
        assert_ne!(deeper.day, name.day);
        let short = LobsterName::parse("INTC_2012-06-21_message_10.csv").unwrap();
        assert_eq!((short.symbol.as_str(), short.day.as_str()), ("INTC", "INTC_2012-06-21_10"));
        assert_eq!(LobsterName::parse("BRK.B_2012-06-21_0_1_message_1.csv").unwrap().symbol, "BRK.B");
        assert_eq!(LobsterName::parse("A_B_2012-06-21_0_1_message_1.csv").unwrap().symbol, "A_B");
        for other in [
            "",
            ".csv",
            "message.csv",
            "_message_10.csv",
            "AAPL_2012-06-21_34200000_57600000_message_10",
            "AAPL_2012-06-21_34200000_57600000_message_10.txt",
            "AAPL_2012-06-21_34200000_57600000_trades_10.csv",
            "AAPL_2012-06-21_34200000_57600000_message_0.csv",
            "AAPL_2012-06-21_34200000_57600000_message_x.csv",
            "AAPL_2012-06-31_34200000_57600000_message_10.csv",
            "AAPL_20120621_34200000_57600000_message_10.csv",
            "AAPL_9999-06-21_34200000_57600000_message_10.csv",
            "_2012-06-21_34200000_57600000_message_10.csv",
            "A\nB_2012-06-21_0_1_message_10.csv",
            "../../x_2012-06-21_0_1_message_10.csv",
        ] {
            assert_eq!(LobsterName::parse(other), None, "{other}");
        }
    }

    // Proves that midnight is in the exchange's time zone in summer and winter, with and without a
    // time zone database. Method: the rule is compared with the database on every day of eighteen
    // years.
    #[test]
    fn midnight_is_the_exchanges() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let midnight = |text: &str| midnight_ns(text.parse().unwrap());
        assert_eq!(midnight("2012-06-21"), Some(1_340_251_200_000_000_000)); // 04:00 UTC
        assert_eq!(midnight("2012-01-03").unwrap() % (24 * HOUR_NS), 5 * HOUR_NS);
        assert_eq!(midnight("9999-01-01"), None);
        assert_eq!(midnight("1500-01-01"), None);
        let rule = TimeZone::posix(NEW_YORK_SINCE_2007).unwrap();
        let mut date: Date = "2008-01-01".parse().unwrap();
        while date.year() < 2026 {
            let by_rule = date.to_zoned(rule.clone()).unwrap().timestamp().as_nanosecond();
            assert_eq!(midnight_ns(date).map(i128::from), Some(by_rule), "{date}");
            date = date.tomorrow().unwrap();
        }
    }
}
