//! Detects whether an output stream of this process goes to the systemd journal.

use std::env;
use std::os::fd::AsFd;

/// Returns whether the journal receives what is written to this stream. `JOURNAL_STREAM` holds the
/// stream's device and inode (`systemd.exec(5)`). The variable alone proves nothing: the stream may
/// have been redirected since.
pub fn is_journal_stream(stream: impl AsFd) -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok().and_then(|text| parse(&text)) else { return false };
    rustix::fs::fstat(stream).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == named)
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that only two numbers separated by a colon are accepted.
    #[test]
    fn a_stream_is_two_numbers() {
        assert_eq!(parse("8:12345"), Some((8, 12345)));
        for none in ["", "8", "8:", ":1", "8:x", "8:1:2", "-8:1"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
