//! Rows of message and order-book files: text to numbers, every one checked.
//!
//! Columns as in lobsterdata.com/info/DataStructure.php.

/// Most levels of an order book; a row with more is refused. LOBSTER's own files have up to 200.
pub const LEVELS_MAX: usize = 1000;
/// Longest line in bytes: every number of the greatest book with 19 digits, a sign and a comma. Longer ones are refused unread.
pub(super) const LINE_BYTES_MAX: usize = LEVELS_MAX * LEVEL_COLUMNS * 21;
/// Longest time, in seconds: no day of the exchange has more than 25 hours. A row with a longer one is refused.
pub(super) const SECONDS_MAX: u64 = 25 * 3600;
/// Bytes of a level in a payload: four numbers of eight.
pub(super) const LEVEL_BYTES: usize = LEVEL_COLUMNS * 8;

const LEVEL_COLUMNS: usize = 4;
const LEVEL_NAMES: [&str; LEVEL_COLUMNS] = ["ask price", "ask size", "bid price", "bid size"];
const NS_PER_S: u64 = 1_000_000_000;
const DECIMALS_MAX: u32 = 9; // nanoseconds
/// So much of what is no number is shown.
const SHOWN_BYTES_MAX: usize = 24;

/// Seconds since the exchange's midnight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Time {
    /// As written, to the nanosecond; what is written beyond is cut off.
    pub(super) ns: u64,
    /// The double nearest to what is written.
    pub(super) seconds: f64,
    /// Whether anything but zeros is written beyond the nanosecond.
    pub(super) is_finer: bool,
}

/// A row of a message file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Message {
    pub(super) time: Time,
    pub(super) event_type: u8,
    pub(super) order_id: i64,
    pub(super) size: i64,
    pub(super) price: i64,
    pub(super) direction: i8, // -1 to 1
    /// Whether there is a seventh column, which the published structure has not.
    pub(super) has_more: bool,
}

/// Why a row is not imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault(pub(super) String);

/// A row of a message file: six columns, or seven.
///
/// # Errors
/// What is wrong with it, and its time if that is right.
#[inline]
pub(super) fn message(line: &[u8]) -> Result<Message, (Fault, Option<Time>)> {
    let mut columns = Columns(Some(line));
    let (text, mut rest) = (columns.next(), columns);
    let time = text.and_then(time);
    let row = time.and_then(|time| {
        let columns = &mut rest;
        let row = Message {
            time,
            event_type: u8::try_from(integer(columns.next()?)?).ok()?,
            order_id: integer(columns.next()?)?,
            size: integer(columns.next()?)?,
            price: integer(columns.next()?)?,
            direction: i8::try_from(integer(columns.next()?)?).ok().filter(|way| (-1..=1).contains(way))?,
            has_more: columns.next().is_some(),
        };
        columns.next().is_none().then_some(row)
    });
    row.ok_or_else(|| (message_fault(line), time))
}

/// A row of an order-book file, into the bytes of as many levels as `levels` has room for, as a payload has them.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub(super) fn order_book(line: &[u8], levels: &mut [u8]) -> Result<(), Fault> {
    let mut columns = Columns(Some(line));
    let (numbers, _) = levels.as_chunks_mut();
    let is_row = numbers.iter_mut().all(|number| match columns.next().and_then(integer) {
        Some(value) => {
            *number = value.to_le_bytes();
            true
        }
        None => false,
    });
    if is_row && columns.next().is_none() {
        Ok(())
    } else {
        Err(order_book_fault(line, levels.len() / LEVEL_BYTES))
    }
}

/// How many levels a row of an order-book file has; none if it is no such row.
pub(super) fn levels(line: &[u8]) -> Option<usize> {
    let mut count = 0;
    for column in Columns(Some(line)) {
        integer(column)?;
        count += 1;
    }
    (count % LEVEL_COLUMNS == 0 && count / LEVEL_COLUMNS <= LEVELS_MAX).then_some(count / LEVEL_COLUMNS)
}

/// Whether a first line names columns: as many as a row has, none of them a number.
pub(super) fn is_header(line: &[u8], column_count: usize) -> bool {
    let is_name = |name: &[u8]| {
        name.iter().any(u8::is_ascii_alphabetic)
            && name.iter().all(|byte| *byte == b'"' || !byte.is_ascii_control())
    };
    let names = || Columns(Some(line));
    // A row may have a seventh column, and so may its header.
    (names().count() == column_count || (column_count == 6 && names().count() == 7)) && names().all(is_name)
}

/// Digits with a decimal point among them or without, below [`SECONDS_MAX`] seconds.
#[inline]
pub(super) fn time(text: &[u8]) -> Option<Time> {
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (text.get(..at)?, text.get(at + 1..).filter(|fraction| !fraction.is_empty())?),
        None => (text, &[][..]),
    };
    let seconds = u64::try_from(integer(whole)?).ok().filter(|_| !whole.starts_with(b"-"))?;
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
    // Both numbers are exact, so the quotient is rounded once: it is the double nearest to the text.
    let exact = (ns as f64) / (NS_PER_S as f64);
    let seconds = if is_finer { str::from_utf8(text).ok()?.parse().ok()? } else { exact };
    Some(Time { ns, seconds, is_finer })
}

/// Digits, behind a minus sign or not, as a number of 64 bits.
#[inline]
pub(super) fn integer(text: &[u8]) -> Option<i64> {
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

/// What stands between commas.
#[derive(Debug)]
struct Columns<'l>(Option<&'l [u8]>);

impl<'l> Iterator for Columns<'l> {
    type Item = &'l [u8];

    #[inline]
    fn next(&mut self) -> Option<&'l [u8]> {
        let rest = self.0?;
        // Columns are short: a search by the widest instructions would take longer to begin than to find.
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
fn message_fault(line: &[u8]) -> Fault {
    const NAMES: [&str; 6] = ["time", "event type", "order ID", "size", "price", "direction"];
    let count = Columns(Some(line)).count();
    if !matches!(count, 6 | 7) {
        return Fault(format!("{count} column(s), where a message has 6"));
    }
    for (number, (name, text)) in NAMES.into_iter().zip(Columns(Some(line))).enumerate() {
        let value = integer(text);
        let what = match number {
            0 if time(text).is_none() => format!("no decimal number below {SECONDS_MAX}"),
            1 if value.is_none_or(|value| u8::try_from(value).is_err()) => {
                "no number from 0 to 255".to_owned()
            }
            5 if value.is_none_or(|value| !(-1..=1).contains(&value)) => "none of -1, 0 and 1".to_owned(),
            2..=4 if value.is_none() => "no whole number of 64 bits".to_owned(),
            _ => continue,
        };
        return Fault(format!("{name} {}: {what}", shown(text)));
    }
    Fault("no message".to_owned())
}

#[cold]
fn order_book_fault(line: &[u8], levels: usize) -> Fault {
    let (count, wanted) = (Columns(Some(line)).count(), levels * LEVEL_COLUMNS);
    if count != wanted {
        return Fault(format!("{count} column(s), where the file's rows of {levels} levels have {wanted}"));
    }
    for (number, text) in Columns(Some(line)).enumerate() {
        if integer(text).is_none() {
            let name = LEVEL_NAMES.get(number % LEVEL_COLUMNS).unwrap_or(&"");
            let level = number / LEVEL_COLUMNS + 1;
            return Fault(format!("{name} {level} {}: no whole number of 64 bits", shown(text)));
        }
    }
    Fault("no order book".to_owned())
}

/// The begin of a text, harmless on a terminal.
fn shown(text: &[u8]) -> String {
    let begin = text.get(..SHOWN_BYTES_MAX).unwrap_or(text);
    let dots = if begin.len() < text.len() { "..." } else { "" };
    format!("`{}{dots}`", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: a time's nanoseconds are those of the text and its double is the one nearest to it. Method: edges by hand.
    #[test]
    fn times_are_exact() {
        let ns = |text: &str| time(text.as_bytes()).map(|time| (time.ns, time.is_finer));
        assert_eq!(ns("34200.004241176"), Some((34_200_004_241_176, false)));
        assert_eq!(ns("34200.00426064"), Some((34_200_004_260_640, false)));
        assert_eq!(ns("34200"), Some((34_200_000_000_000, false)));
        assert_eq!(ns("0"), Some((0, false)));
        assert_eq!(ns("0.000000001"), Some((1, false)));
        assert_eq!(ns("0.0000000019"), Some((1, true)));
        assert_eq!(ns("0.000000001000"), Some((1, false)));
        assert_eq!(ns("89999.999999999"), Some((89_999_999_999_999, false)));
        let finer = time(b"34200.12345678949").unwrap();
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

    // Goal: whole numbers are read in full or refused. Method: the limits of the type, dummies, signs, other characters.
    #[test]
    fn whole_numbers_are_exact() {
        for value in
            [0, 1, -1, 9_999_999_999, -9_999_999_999, 10_i64.pow(18), i64::MAX, i64::MIN, i64::MIN + 1]
        {
            assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
        assert_eq!(integer(b"0000000000000000000000007"), Some(7));
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
            assert_eq!(integer(wrong.as_bytes()), None, "{wrong}");
        }
    }

    // Goal: every column is in its place, and every fault names its own. Method: a row with all values different, and each wrong in turn.
    #[test]
    fn messages_are_checked() {
        let row = message(b"34200.5,4,-7,18,-9999999999,-1").unwrap();
        assert_eq!((row.time.ns, row.event_type, row.order_id), (34_200_500_000_000, 4, -7));
        assert_eq!((row.size, row.price, row.direction, row.has_more), (18, -9_999_999_999, -1, false));
        assert!(message(b"34200.5,4,7,18,5,-1,NITE").unwrap().has_more);
        assert!(message(b"34200.5,4,7,18,5,-1,").unwrap().has_more);
        for (line, what, has_time) in [
            (&b""[..], "1 column(s), where a message has 6", false),
            (b"1,2,3", "3 column(s), where a message has 6", true),
            (b"1.5,2,3,4,5,1,2,3", "8 column(s), where a message has 6", true),
            (b"x,2,3,4,5,1", "time `x`: no decimal number below 90000", false),
            (b"1.5,256,3,4,5,1", "event type `256`: no number from 0 to 255", true),
            (b"1.5,1,3.0,4,5,1", "order ID `3.0`: no whole number of 64 bits", true),
            (b"1.5,1,3,\x1b[2J,5,1", "size `\\x1b[2J`: no whole number of 64 bits", true),
            (
                b"1.5,1,3,4,9999999999999999999999999999,1",
                "price `999999999999999999999999...`: no whole number of 64 bits",
                true,
            ),
            (b"1.5,1,3,4,5,2", "direction `2`: none of -1, 0 and 1", true),
            (b"1.5,1,3,4,5,-", "direction `-`: none of -1, 0 and 1", true),
        ] {
            let (fault, time) = message(line).unwrap_err();
            assert_eq!((fault.0.as_str(), time.is_some()), (what, has_time));
        }
    }

    // Goal: books of every depth are read in the file's order, and every fault names its own. Method: rows by hand.
    #[test]
    fn order_books_are_checked() {
        let mut room = [0; 2 * LEVEL_BYTES];
        order_book(b"1,2,3,4,9999999999,0,-9999999999,0", &mut room).unwrap();
        let numbers: Vec<i64> = room.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 9_999_999_999, 0, -9_999_999_999, 0]);
        for (line, what) in [
            (&b"1,2,3,4"[..], "4 column(s), where the file's rows of 2 levels have 8"),
            (b"1,2,3,4,5,6,7,8,9", "9 column(s), where the file's rows of 2 levels have 8"),
            (b"1,2,3,4,5,6,,8", "bid price 2 ``: no whole number of 64 bits"),
            (b"1,2.5,3,4,5,6,7,8", "ask size 1 `2.5`: no whole number of 64 bits"),
        ] {
            assert_eq!(order_book(line, &mut room).unwrap_err().0, what);
        }
        assert_eq!(levels(b"1,2,3,4"), Some(1));
        assert_eq!(levels(b"34200.5,2,3,4"), None);
        assert_eq!(levels(b"1,2,3,4,5,6"), None);
        assert_eq!(levels(b""), None);
        let deepest = vec!["1"; 4 * LEVELS_MAX].join(",");
        assert_eq!(levels(deepest.as_bytes()), Some(LEVELS_MAX));
        assert_eq!(levels((deepest + ",1,1,1,1").as_bytes()), None);
    }

    // Goal: names of columns are told from rows, damaged ones too. Method: headers as people write them, rows with one wrong number.
    #[test]
    fn headers_are_told_from_rows() {
        assert!(is_header(b"Time,Type,Order ID,Size,Price,Direction", 6));
        assert!(is_header(b"\"time\",\"type\",\"id\",\"size\",\"price\",\"way\",\"mpid\"", 6));
        assert!(is_header(b"AskPrice1,AskSize1,BidPrice1,BidSize1", 4));
        for no in [&b"Time,Type"[..], b"x,1,2,3,4,1", b"0,1,2,3,4,5", b",,,,,", b"a,b,c,d,e,\x1b", b""] {
            assert!(!is_header(no, 6), "{}", no.escape_ascii());
        }
    }

    proptest! {
        // Goal: what is written as a decimal comes back as it was written. Method: random nanoseconds with trailing zeros or
        // without: the integer is exact, the double is what the standard library reads, and its shortest text is the same number again.
        #[test]
        fn decimal_texts_come_back(ns in 0..SECONDS_MAX * NS_PER_S, cut in 0_usize..10) {
            let text = format!("{}.{:09}", ns / NS_PER_S, ns % NS_PER_S);
            let short = text[..text.len() - cut].trim_end_matches('.');
            let read = time(short.as_bytes()).unwrap();
            prop_assert_eq!(read.seconds.to_bits(), short.parse::<f64>().unwrap().to_bits());
            if cut == 0 {
                prop_assert_eq!(read.ns, ns);
            }
            prop_assert!(!read.is_finer);
            let again = time(read.seconds.to_string().as_bytes()).unwrap();
            prop_assert_eq!(again.ns, read.ns);
        }

        // Goal: digits beyond the nanosecond are cut off the integer and stay in the double. Method: random texts of up to 25 decimals.
        #[test]
        fn finer_texts_are_cut(seconds in 0..SECONDS_MAX, decimals in "[0-9]{1,25}") {
            let text = format!("{seconds}.{decimals}");
            let read = time(text.as_bytes()).unwrap();
            let nine: String = decimals.chars().chain(std::iter::repeat('0')).take(9).collect();
            prop_assert_eq!(read.ns, seconds * NS_PER_S + nine.parse::<u64>().unwrap());
            prop_assert_eq!(read.seconds.to_bits(), text.parse::<f64>().unwrap().to_bits());
        }

        // Goal: nothing panics, and what is taken for a row is one. Method: random bytes and rows with one byte replaced, against a reading by
        // the standard library.
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
                match message(&line) {
                    Ok(row) => {
                        prop_assert_eq!(row.time.seconds.to_bits(), parts[0].parse::<f64>().unwrap().to_bits());
                        prop_assert_eq!(Some(row.order_id), plain(parts[2]));
                        prop_assert_eq!(Some(row.price), plain(parts[4]));
                        prop_assert_eq!(Some(i64::from(row.direction)), plain(parts[5]));
                    }
                    Err((fault, _)) => prop_assert!(fault.0.is_ascii() && fault.0.len() < 200 && fault.0 != "no message"),
                }
                let mut room = [0; LEVEL_BYTES];
                let whole = parts.len() == 4 && parts.iter().all(|part| plain(part).is_some());
                prop_assert_eq!(order_book(&line, &mut room).is_ok(), whole);
            }
        }
    }
}
