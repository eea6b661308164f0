//! Parses sizes and counts given as arguments of the command line. The notation is the same as in
//! the configuration, and each error says what to write.

use std::ops::RangeInclusive;
use std::str::FromStr;

use flatcap_text::quantity::Quantity;

use super::expected_value::ExpectedValue;

/// Parses an argument that is a size within `range`.
///
/// # Errors
/// The text is not a size within the range. The message says what to write.
pub fn size_argument(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let error = match Quantity::Bytes.parse(text) {
        Ok(size) if range.contains(&size) => return Ok(size),
        Ok(size) if size < *range.start() => "too small".to_owned(),
        Ok(_) => "too large".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("{error}; {}", ExpectedValue::Size(range.clone())))
}

/// Parses an argument that is a count, that is, a whole number of at least one.
///
/// # Errors
/// The text is not a count within the range. The message says what to write.
pub fn count_argument<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let count = text.parse().ok().filter(|count| *count >= N::from(1));
    count.ok_or_else(|| "write a whole number, 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error of each wrong size or count says what to write.
    #[test]
    fn errors_say_what_to_write() {
        let size = |text| size_argument(text, &(1024..=4096)).unwrap_err();
        let form = "write a number with B, KiB, MiB, GiB or TiB, from 1KiB to 4KiB";
        assert_eq!(size("1"), format!("no unit, as in 1MiB; {form}"));
        assert_eq!(size("1B"), format!("too small; {form}"));
        assert_eq!(size("5KiB"), format!("too large; {form}"));
        assert_eq!(size("5MB"), format!("ambiguous unit \"MB\": 1000 or 1024; 5MiB is 1024-based; {form}"));
        assert_eq!(size_argument("2KiB", &(1024..=4096)), Ok(2048));
        for wrong in ["", "x", "0", "-1", "1.5", "18446744073709551616"] {
            assert_eq!(count_argument::<u64>(wrong).unwrap_err(), "write a whole number, 1 or more");
        }
        assert_eq!(count_argument::<u64>("18446744073709551615"), Ok(u64::MAX));
    }
}
