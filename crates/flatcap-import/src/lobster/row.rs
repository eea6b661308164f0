//! Parses rows of message and order-book files into checked numbers.
//!
//! Columns are defined at lobsterdata.com/info/DataStructure.php.

/// Maximum number of levels of an order book. A row with more levels is rejected. The files that
/// LOBSTER delivers have up to 200 levels.
pub const LEVELS_MAX: usize = 1000;
/// Maximum length of a line, in bytes. This length is enough for an order book of the maximum size
/// in which each number has 19 digits, a sign and a comma. Longer lines are rejected without being
/// parsed.
pub(super) const LINE_BYTES_MAX: usize = LEVELS_MAX * LEVEL_COLUMNS * 21;
/// Upper bound of a time, in seconds. No day of the exchange has more than 25 hours. A row with a
/// later time is rejected.
pub(super) const SECONDS_MAX: u64 = 25 * 3600;
/// Number of bytes of a level in a payload. A level has four numbers of eight bytes.
pub(super) const LEVEL_BYTES: usize = LEVEL_COLUMNS * 8;

const LEVEL_COLUMNS: usize = 4;
const LEVEL_NAMES: [&str; LEVEL_COLUMNS] = ["ask price", "ask size", "bid price", "bid size"];
const NS_PER_S: u64 = 1_000_000_000;
const DECIMALS_MAX: u32 = 9; // nanoseconds
/// Maximum number of bytes that an error shows of an invalid value.
const PRINTED_BYTES_MAX: usize = 24;

/// The kind of a file's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    Message,
    /// Order books with this number of levels.
    OrderBook(usize),
}

/// The time of a row, counted in seconds from midnight in the exchange's time zone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RowTime {
    /// The value of the decimal text, truncated to nanoseconds.
    pub(super) ns: u64,
    /// The 64-bit float nearest to the value of the decimal text, in seconds.
    pub(super) seconds: f64,
    /// Whether the text has non-zero digits below a nanosecond.
    pub(super) is_truncated: bool,
}

/// A row of a message file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MessageRow {
    pub(super) time: RowTime,
    pub(super) event_type: u8,
    pub(super) order_id: i64,
    pub(super) size: i64,
    pub(super) price: i64,
    pub(super) direction: i8, // -1 to 1
    /// Whether there is a seventh column, which the published structure lacks.
    pub(super) has_extra_column: bool,
}

/// The reason why a row is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowError(pub(super) String);

/// Parses a row of a message file, which has six or seven columns.
///
/// # Errors
/// The error contains the reason why the row is invalid, and the time of the row if this time is
/// valid.
#[inline]
pub(super) fn parse_message(line: &[u8]) -> Result<MessageRow, (RowError, Option<RowTime>)> {
    let mut columns = ColumnIter(Some(line));
    let (text, mut rest) = (columns.next(), columns);
    let time = text.and_then(parse_time);
    let row = time.and_then(|time| {
        let columns = &mut rest;
        let row = MessageRow {
            time,
            event_type: u8::try_from(parse_integer(columns.next()?)?).ok()?,
            order_id: parse_integer(columns.next()?)?,
            size: parse_integer(columns.next()?)?,
            price: parse_integer(columns.next()?)?,
            direction: i8::try_from(parse_integer(columns.next()?)?)
                .ok()
                .filter(|direction| (-1..=1).contains(direction))?,
            has_extra_column: columns.next().is_some(),
        };
        columns.next().is_none().then_some(row)
    });
    row.ok_or_else(|| (message_error(line), time))
}

/// Parses a row of an order-book file into `levels`, in the layout of a payload. The length of
/// `levels` determines the required number of levels.
///
/// # Errors
/// The error contains the reason why the row is invalid.
#[inline]
pub(super) fn parse_order_book(line: &[u8], levels: &mut [u8]) -> Result<(), RowError> {
    let mut columns = ColumnIter(Some(line));
    let (numbers, _) = levels.as_chunks_mut();
    let is_row = numbers.iter_mut().all(|number| match columns.next().and_then(parse_integer) {
        Some(value) => {
            *number = value.to_le_bytes();
            true
        }
        None => false,
    });
    if is_row && columns.next().is_none() {
        Ok(())
    } else {
        Err(order_book_error(line, levels.len() / LEVEL_BYTES))
    }
}

/// Returns how many levels a row of an order-book file has, or `None` if the line is not such a
/// row.
pub(super) fn count_levels(line: &[u8]) -> Option<usize> {
    let mut count = 0;
    for column in ColumnIter(Some(line)) {
        parse_integer(column)?;
        count += 1;
    }
    (count % LEVEL_COLUMNS == 0 && count / LEVEL_COLUMNS <= LEVELS_MAX).then_some(count / LEVEL_COLUMNS)
}

/// Returns whether a first line contains names of columns. The line must have as many columns as a
/// row, and no column may be a number.
pub(super) fn is_header(line: &[u8], column_count: usize) -> bool {
    let is_name = |name: &[u8]| {
        name.iter().any(u8::is_ascii_alphabetic)
            && name.iter().all(|byte| *byte == b'"' || !byte.is_ascii_control())
    };
    let names = || ColumnIter(Some(line));
    // A row may have a seventh column, and so may its header.
    (names().count() == column_count || (column_count == 6 && names().count() == 7)) && names().all(is_name)
}

/// Parses a non-negative decimal number below [`SECONDS_MAX`] seconds, with or without a decimal
/// point.
#[inline]
pub(super) fn parse_time(text: &[u8]) -> Option<RowTime> {
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (text.get(..at)?, text.get(at + 1..).filter(|fraction| !fraction.is_empty())?),
        None => (text, &[][..]),
    };
    let seconds = u64::try_from(parse_integer(whole)?).ok().filter(|_| !whole.starts_with(b"-"))?;
    if seconds >= SECONDS_MAX {
        return None;
    }
    let (mut ns, mut decimals, mut is_finer) = (seconds, 0, false);
    for byte in fraction {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        if decimals < DECIMALS_MAX {
            ns = ns * 10 + u64::from(digit);
            decimals += 1;
        } else {
            is_finer |= digit != 0;
        }
    }
    let ns = ns * 10_u64.pow(DECIMALS_MAX - decimals);
    #[allow(clippy::cast_precision_loss, reason = "fewer than 2^53 nanoseconds: exact")]
    // Both numbers are exact, so only the quotient is rounded. The quotient is therefore the 64-bit
    // float nearest to the value of the text.
    let exact = (ns as f64) / (NS_PER_S as f64);
    let seconds = if is_finer { str::from_utf8(text).ok()?.parse().ok()? } else { exact };
    Some(RowTime { ns, seconds, is_truncated: is_finer })
}

/// Parses a decimal integer of 64 bits with an optional minus sign.
#[inline]
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    const SAFE_DIGITS: usize = 18; // 10^18 < 2^63
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() > SAFE_DIGITS {
        return if digits.iter().all(u8::is_ascii_digit) {
            str::from_utf8(text).ok()?.parse().ok()
        } else {
            None
        };
    }
    let mut value = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if is_negative { -value } else { value })
}

/// Iterates over comma-separated columns.
#[derive(Debug)]
struct ColumnIter<'l>(Option<&'l [u8]>);

impl<'l> Iterator for ColumnIter<'l> {
    type Item = &'l [u8];

    #[inline]
    fn next(&mut self) -> Option<&'l [u8]> {
        let rest = self.0?;
        // Columns are short, so the setup of a vectorized search would take longer than the search.
        match rest.iter().position(|byte| *byte == b',') {
            Some(at) => {
                let (column, behind) = rest.split_at_checked(at)?;
                self.0 = behind.get(1..);
                Some(column)
            }
            None => self.0.take(),
        }
    }
}

#[cold]
fn message_error(line: &[u8]) -> RowError {
    const NAMES: [&str; 6] = ["time", "event type", "order ID", "size", "price", "direction"];
    let count = ColumnIter(Some(line)).count();
    if !matches!(count, 6 | 7) {
        return RowError(format!("{count} column(s), where a message has 6"));
    }
    for (number, (name, text)) in NAMES.into_iter().zip(ColumnIter(Some(line))).enumerate() {
        let value = parse_integer(text);
        let what = match number {
            0 if parse_time(text).is_none() => format!("not a decimal number below {SECONDS_MAX}"),
            1 if value.is_none_or(|value| u8::try_from(value).is_err()) => {
                "not a number from 0 to 255".to_owned()
            }
            5 if value.is_none_or(|value| !(-1..=1).contains(&value)) => "not -1, 0 or 1".to_owned(),
            2..=4 if value.is_none() => "not a 64-bit integer".to_owned(),
            _ => continue,
        };
        return RowError(format!("{name} {}: {what}", printable(text)));
    }
    RowError("not a message".to_owned())
}

#[cold]
fn order_book_error(line: &[u8], levels: usize) -> RowError {
    let (count, wanted) = (ColumnIter(Some(line)).count(), levels * LEVEL_COLUMNS);
    if count != wanted {
        return RowError(format!(
            "{count} column(s), where the file's rows of {levels} levels have {wanted}"
        ));
    }
    for (number, text) in ColumnIter(Some(line)).enumerate() {
        if parse_integer(text).is_none() {
            let name = LEVEL_NAMES.get(number % LEVEL_COLUMNS).unwrap_or(&"");
            let level = number / LEVEL_COLUMNS + 1;
            return RowError(format!("{name} {level} {}: not a 64-bit integer", printable(text)));
        }
    }
    RowError("not an order book".to_owned())
}

/// Returns the start of a text, escaped for a terminal.
fn printable(text: &[u8]) -> String {
    let begin = text.get(..PRINTED_BYTES_MAX).unwrap_or(text);
    let dots = if begin.len() < text.len() { "..." } else { "" };
    format!("`{}{dots}`", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that the nanoseconds and the 64-bit float of a time are exact, and that invalid times
    // are rejected.
    #[test]
    fn times_are_exact() {
        let ns = |text: &str| parse_time(text.as_bytes()).map(|time| (time.ns, time.is_truncated));
        assert_eq!(ns("34200.004241176"), Some((34_200_004_241_176, false)));
        assert_eq!(ns("34200.00426064"), Some((34_200_004_260_640, false)));
        assert_eq!(ns("34200"), Some((34_200_000_000_000, false)));
        assert_eq!(ns("0"), Some((0, false)));
        assert_eq!(ns("0.000000001"), Some((1, false)));
        assert_eq!(ns("0.0000000019"), Some((1, true)));
        assert_eq!(ns("0.000000001000"), Some((1, false)));
        assert_eq!(ns("89999.999999999"), Some((89_999_999_999_999, false)));
        let finer = parse_time(b"34200.12345678949").unwrap();
        assert_eq!(
            (finer.ns, finer.seconds.to_bits()),
            (34_200_123_456_789, 34_200.123_456_789_49_f64.to_bits())
        );
        for wrong in [
            "",
            ".",
            ".5",
            "5.",
            "-1",
            "-0",
            "+1",
            "1e3",
            "1.5.5",
            " 1",
            "1 ",
            "90000",
            "nan",
            "inf",
            "1,5",
            "0x10",
            "99999999999999999999",
            "1.2-",
            "\u{661}",
        ] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
    }

    // Proves that integers are parsed exactly or rejected.
    #[test]
    fn whole_numbers_are_exact() {
        for value in
            [0, 1, -1, 9_999_999_999, -9_999_999_999, 10_i64.pow(18), i64::MAX, i64::MIN, i64::MIN + 1]
        {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
        assert_eq!(parse_integer(b"0000000000000000000000007"), Some(7));
        for wrong in [
            "",
            "-",
            "--1",
            "+1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            " 1",
            "1 ",
            "a",
            "1:",
            "/",
        ] {
            assert_eq!(parse_integer(wrong.as_bytes()), None, "{wrong}");
        }
    }

    // Proves that every column of a message is read into its field, and that an error names the
    // invalid column.
    #[test]
    fn messages_are_checked() {
        let row = parse_message(b"34200.5,4,-7,18,-9999999999,-1").unwrap();
        assert_eq!((row.time.ns, row.event_type, row.order_id), (34_200_500_000_000, 4, -7));
        assert_eq!(
            (row.size, row.price, row.direction, row.has_extra_column),
            (18, -9_999_999_999, -1, false)
        );
        assert!(parse_message(b"34200.5,4,7,18,5,-1,NITE").unwrap().has_extra_column);
        assert!(parse_message(b"34200.5,4,7,18,5,-1,").unwrap().has_extra_column);
        for (line, what, has_time) in [
            (&b""[..], "1 column(s), where a message has 6", false),
            (b"1,2,3", "3 column(s), where a message has 6", true),
            (b"1.5,2,3,4,5,1,2,3", "8 column(s), where a message has 6", true),
            (b"x,2,3,4,5,1", "time `x`: not a decimal number below 90000", false),
            (b"1.5,256,3,4,5,1", "event type `256`: not a number from 0 to 255", true),
            (b"1.5,1,3.0,4,5,1", "order ID `3.0`: not a 64-bit integer", true),
            (b"1.5,1,3,\x1b[2J,5,1", "size `\\x1b[2J`: not a 64-bit integer", true),
            (
                b"1.5,1,3,4,9999999999999999999999999999,1",
                "price `999999999999999999999999...`: not a 64-bit integer",
                true,
            ),
            (b"1.5,1,3,4,5,2", "direction `2`: not -1, 0 or 1", true),
            (b"1.5,1,3,4,5,-", "direction `-`: not -1, 0 or 1", true),
        ] {
            let (fault, time) = parse_message(line).unwrap_err();
            assert_eq!((fault.0.as_str(), time.is_some()), (what, has_time));
        }
    }

    // Proves that order books of any depth are read in the file's order, and that an error names
    // the invalid column.
    #[test]
    fn order_books_are_checked() {
        let mut room = [0; 2 * LEVEL_BYTES];
        parse_order_book(b"1,2,3,4,9999999999,0,-9999999999,0", &mut room).unwrap();
        let numbers: Vec<i64> = room.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 9_999_999_999, 0, -9_999_999_999, 0]);
        for (line, what) in [
            (&b"1,2,3,4"[..], "4 column(s), where the file's rows of 2 levels have 8"),
            (b"1,2,3,4,5,6,7,8,9", "9 column(s), where the file's rows of 2 levels have 8"),
            (b"1,2,3,4,5,6,,8", "bid price 2 ``: not a 64-bit integer"),
            (b"1,2.5,3,4,5,6,7,8", "ask size 1 `2.5`: not a 64-bit integer"),
        ] {
            assert_eq!(parse_order_book(line, &mut room).unwrap_err().0, what);
        }
        assert_eq!(count_levels(b"1,2,3,4"), Some(1));
        assert_eq!(count_levels(b"34200.5,2,3,4"), None);
        assert_eq!(count_levels(b"1,2,3,4,5,6"), None);
        assert_eq!(count_levels(b""), None);
        let deepest = vec!["1"; 4 * LEVELS_MAX].join(",");
        assert_eq!(count_levels(deepest.as_bytes()), Some(LEVELS_MAX));
        assert_eq!(count_levels((deepest + ",1,1,1,1").as_bytes()), None);
    }

    // Proves that column headers are distinguished from rows, including damaged rows.
    #[test]
    fn headers_are_distinguished_from_rows() {
        assert!(is_header(b"Time,Type,Order ID,Size,Price,Direction", 6));
        assert!(is_header(b"\"time\",\"type\",\"id\",\"size\",\"price\",\"way\",\"mpid\"", 6));
        assert!(is_header(b"AskPrice1,AskSize1,BidPrice1,BidSize1", 4));
        for no in [&b"Time,Type"[..], b"x,1,2,3,4,1", b"0,1,2,3,4,5", b",,,,,", b"a,b,c,d,e,\x1b", b""] {
            assert!(!is_header(no, 6), "{}", no.escape_ascii());
        }
    }

    proptest! {
        // Proves that times with up to nine decimals are parsed without loss. The integer is exact,
        // the float equals the result of the standard library, and the shortest text of the float
        // is parsed to the same integer.
        #[test]
        fn decimal_texts_come_back(ns in 0..SECONDS_MAX * NS_PER_S, cut in 0_usize..10) {
            let text = format!("{}.{:09}", ns / NS_PER_S, ns % NS_PER_S);
            let short = text[..text.len() - cut].trim_end_matches('.');
            let read = parse_time(short.as_bytes()).unwrap();
            prop_assert_eq!(read.seconds.to_bits(), short.parse::<f64>().unwrap().to_bits());
            if cut == 0 {
                prop_assert_eq!(read.ns, ns);
            }
            prop_assert!(!read.is_truncated);
            let again = parse_time(read.seconds.to_string().as_bytes()).unwrap();
            prop_assert_eq!(again.ns, read.ns);
        }

        // Proves that digits below a nanosecond are truncated in the integer and kept in the float.
        #[test]
        fn finer_times_are_truncated(seconds in 0..SECONDS_MAX, decimals in "[0-9]{1,25}") {
            let text = format!("{seconds}.{decimals}");
            let read = parse_time(text.as_bytes()).unwrap();
            let nine: String = decimals.chars().chain(std::iter::repeat('0')).take(9).collect();
            prop_assert_eq!(read.ns, seconds * NS_PER_S + nine.parse::<u64>().unwrap());
            prop_assert_eq!(read.seconds.to_bits(), text.parse::<f64>().unwrap().to_bits());
        }

        // Proves that hostile rows never panic, and that accepted rows match the standard library's
        // parsing.
        #[test]
        fn hostile_rows_are_refused_or_right(at in 0_usize..40, byte: u8, noise in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut line = b"34200.004241176,1,16113575,18,5853300,1".to_vec();
            if let Some(place) = line.get_mut(at) {
                *place = byte;
            }
            for line in [line, noise] {
                let text = str::from_utf8(&line).unwrap_or("");
                let parts: Vec<&str> = text.split(',').collect();
                let plain = |part: &str| part.parse::<i64>().ok().filter(|_| !part.starts_with('+'));
                match parse_message(&line) {
                    Ok(row) => {
                        prop_assert_eq!(row.time.seconds.to_bits(), parts[0].parse::<f64>().unwrap().to_bits());
                        prop_assert_eq!(Some(row.order_id), plain(parts[2]));
                        prop_assert_eq!(Some(row.price), plain(parts[4]));
                        prop_assert_eq!(Some(i64::from(row.direction)), plain(parts[5]));
                    }
                    Err((fault, _)) => prop_assert!(fault.0.is_ascii() && fault.0.len() < 200 && fault.0 != "not a message"),
                }
                let mut room = [0; LEVEL_BYTES];
                let whole = parts.len() == 4 && parts.iter().all(|part| plain(part).is_some());
                prop_assert_eq!(parse_order_book(&line, &mut room).is_ok(), whole);
            }
        }
    }
}
