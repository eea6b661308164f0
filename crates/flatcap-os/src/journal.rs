//! The socket of the systemd journal, and a check whether an output stream of this process goes to
//! the journal.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

/// The socket address of the journal.
const SOCKET_PATH: &str = "/run/systemd/journal/socket";

/// A connection to the journal.
#[derive(Debug)]
pub struct JournalSocket(UnixDatagram);

impl JournalSocket {
    /// Connects to the journal.
    ///
    /// # Errors
    /// There is no journal.
    pub fn connect() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // This empty record only checks that the journal receives; the journal discards it. The
        // socket stays unconnected, so that lines reach a journal that was restarted.
        socket.send_to(&[], SOCKET_PATH)?;
        Ok(Self(socket))
    }

    /// Sends a record. Waits until the journal accepts the record.
    ///
    /// # Errors
    /// The journal is gone, or the record is longer than the kernel allows.
    pub fn send(&self, record: &[u8]) -> io::Result<()> {
        self.0.send_to(record, SOCKET_PATH).map(drop)
    }
}

/// Returns whether the journal receives the output of this stream. `JOURNAL_STREAM` holds the
/// stream's device and inode (`systemd.exec(5)`). The variable alone proves nothing, because the
/// stream may have been redirected after the variable was set.
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
