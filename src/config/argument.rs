//! Parses counts given as arguments of the command line. Each error states what the user must
//! write.

use std::str::FromStr;

/// Parses an argument that is a count, that is, a whole number of at least one.
///
/// # Errors
/// The text is not a count within the range. The message states what the user must write.
pub fn count_argument<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let count = text.parse().ok().filter(|count| *count >= N::from(1));
    count.ok_or_else(|| "write a whole number, 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error for each invalid count states what the user must write.
    #[test]
    fn errors_say_what_to_write() {
        for wrong in ["", "x", "0", "-1", "1.5", "18446744073709551616"] {
            assert_eq!(count_argument::<u64>(wrong).unwrap_err(), "write a whole number, 1 or more");
        }
        assert_eq!(count_argument::<u64>("18446744073709551615"), Ok(u64::MAX));
    }
}
