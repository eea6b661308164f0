//! Parses the notation of durations that settings, arguments and points in time use.

use std::time::Duration;

pub use humantime::DurationError;

/// Maximum length of a string that contains a duration, in bytes. The library `humantime` panics if
/// the carry from nanoseconds to seconds overflows a [`Duration`]. A string that causes this has at
/// least 26 bytes.
const TEXT_BYTES_MAX: usize = 24;

/// Parses a duration such as `250us`, `1.5s`, `90sec` or `1h 30m`.
///
/// # Errors
/// Fails if the string is not a duration. A string of more than 24 bytes causes the error
/// [`DurationError::NumberOverflow`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(DurationError::NumberOverflow);
    }
    humantime::parse_duration(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a sum that the library cannot carry is an error, and that durations are parsed as
    // people write them.
    #[test]
    fn long_durations_are_refused() {
        assert!(parse_duration("5124095576030431h15s1000ms").is_err());
        assert!(parse_duration(&"9".repeat(25)).is_err());
        assert_eq!(parse_duration("1h 30min"), Ok(Duration::from_secs(5400)));
    }
}
