//! Whether a stream of this process is the journal's.

use std::env;
use std::os::fd::AsFd;

/// Whether the journal takes what is written to this stream: `JOURNAL_STREAM` names its device and inode (`systemd.exec(5)`). The
/// variable alone says nothing: a stream may have been sent elsewhere since.
pub fn takes(stream: impl AsFd) -> bool {
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

    // Goal: two numbers are a stream, anything else is none. Method: what systemd writes, and what it does not.
    #[test]
    fn a_stream_is_two_numbers() {
        assert_eq!(parse("8:12345"), Some((8, 12345)));
        for none in ["", "8", "8:", ":1", "8:x", "8:1:2", "-8:1"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
