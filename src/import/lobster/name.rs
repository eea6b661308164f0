//! What LOBSTER's names say of a file: symbol, day, levels. Nothing else says it.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Kind;
use super::row::LEVELS_MAX;

/// Longest symbol, in bytes; a name with a longer one is none of LOBSTER's.
const SYMBOL_BYTES_MAX: usize = 32;
/// The exchange's clock where the host has no database of time zones: the rule since 2007, before which LOBSTER has no days.
const NEW_YORK_SINCE_2007: &str = "EST5EDT,M3.2.0,M11.1.0";

/// What a name says: `SYMBOL_DATE_BEGIN_END_KIND_LEVELS.csv`, or without begin and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// What files of one pair have in common: symbol, date, begin, end, levels.
    pub(super) day: String,
    pub(super) symbol: String,
    pub(super) date: Date,
    /// What the file is said to be. Believed of empty files alone.
    pub(super) kind: Kind,
    /// How many levels of the book its messages are about.
    pub(super) levels: usize,
}

impl Name {
    /// The name of a file without its folders; none where it is not of LOBSTER's form.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let stem = file.strip_suffix(".gz").unwrap_or(file).strip_suffix(".csv")?;
        let (rest, levels) = stem.rsplit_once('_')?;
        let levels: usize = levels.parse().ok().filter(|levels| (1..=LEVELS_MAX).contains(levels))?;
        let (day, kind) = rest.rsplit_once('_')?;
        let kind = match kind {
            "message" => Kind::Message,
            "orderbook" => Kind::OrderBook(levels),
            _ => return None,
        };
        let is_time = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = day.rsplitn(4, '_');
        let named =
            match [parts.next()?, parts.next()?, parts.next().unwrap_or(""), parts.next().unwrap_or("")] {
                [end, begin, date, symbol] if is_time(end) && is_time(begin) => (symbol, date),
                [date, ..] => (day.strip_suffix(date)?.strip_suffix('_')?, date),
            };
        let (symbol, date) = (named.0, date(named.1)?);
        is_symbol(symbol).then(|| Self {
            day: format!("{day}_{levels}"),
            symbol: symbol.to_owned(),
            date,
            kind,
            levels,
        })
    }
}

/// Whether a text may be a symbol: it becomes a part of names of sources and files.
pub(super) fn is_symbol(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'\\');
    (1..=SYMBOL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with('.')
}

/// A date of the form 2012-06-21 whose midnight a frame can have.
fn date(text: &str) -> Option<Date> {
    let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let date: Date = text.parse().ok().filter(|_| is_plain)?;
    midnight_ns(date).map(|_| date)
}

/// Midnight of the exchange's clock on a day, in nanoseconds since 1970, UTC; none where that does not fit.
pub(super) fn midnight_ns(date: Date) -> Option<i64> {
    let zone = TimeZone::get("America/New_York").or_else(|_| TimeZone::posix(NEW_YORK_SINCE_2007)).ok()?;
    let midnight = date.to_zoned(zone).ok()?.timestamp().as_nanosecond();
    // A day behind it is still a number of 64 bits.
    i64::try_from(midnight).ok().filter(|midnight| midnight.checked_add(2 * 86_400_000_000_000).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: LOBSTER's names say what they say, others say nothing. Method: names as they come, and as people and attackers change them.
    #[test]
    fn names_are_read() {
        let name = Name::parse("AAPL_2012-06-21_34200000_57600000_message_10.csv").unwrap();
        assert_eq!((name.symbol.as_str(), name.date.to_string().as_str()), ("AAPL", "2012-06-21"));
        assert_eq!(name.kind, Kind::Message);
        let book = Name::parse("AAPL_2012-06-21_34200000_57600000_orderbook_10.csv.gz").unwrap();
        assert_eq!((book.kind, &book.day), (Kind::OrderBook(10), &name.day));
        let deeper = Name::parse("AAPL_2012-06-21_34200000_57600000_orderbook_50.csv").unwrap();
        assert_ne!(deeper.day, name.day);
        let short = Name::parse("INTC_2012-06-21_message_10.csv").unwrap();
        assert_eq!((short.symbol.as_str(), short.day.as_str()), ("INTC", "INTC_2012-06-21_10"));
        assert_eq!(Name::parse("BRK.B_2012-06-21_0_1_message_1.csv").unwrap().symbol, "BRK.B");
        assert_eq!(Name::parse("A_B_2012-06-21_0_1_message_1.csv").unwrap().symbol, "A_B");
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
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    // Goal: midnight is that of the exchange, in summer and in winter, with a database of time zones and without. Method: known hours,
    // and the rule against the database on every day of eighteen years.
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
