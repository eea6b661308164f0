//! Where a replay goes: a stream takes bytes as they come, a datagram socket one frame a datagram.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest UDP payload over IPv4, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// An address as it is written: `stdout`, `unix:PATH`, `udp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Standard output.
    Stdout,
    /// A listening Unix stream socket.
    Unix(PathBuf),
    /// A UDP port.
    Udp(String),
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            Some(("udp", address)) if address.contains(':') => Ok(Self::Udp(address.to_owned())),
            _ => Err("write stdout, unix:PATH or udp:HOST:PORT"),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

/// A connected destination.
#[derive(Debug)]
pub enum Sink<W> {
    /// Any stream of bytes.
    Stream(W),
    /// A connected Unix stream socket.
    Unix(UnixStream),
    /// A UDP socket and where it sends.
    Udp(UdpSocket, SocketAddr),
}

impl<W: Write> Sink<W> {
    /// Connects to an address; `stdout` is the stream to use for standard output.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` for a host name without an address.
    pub fn connect(address: &Address, stdout: W) -> io::Result<Self> {
        Ok(match address {
            Address::Stdout => Self::Stream(stdout),
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
            Address::Udp(address) => {
                let to = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                Self::Udp(UdpSocket::bind(any)?, to)
            }
        })
    }

    /// Sends one frame. Says whether it was sent: one that is too long for a datagram is not.
    ///
    /// # Errors
    /// What the kernel says; `BrokenPipe` when nobody reads any more.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self {
            Self::Stream(stream) => stream.write_all(frame)?,
            Self::Unix(stream) => stream.write_all(frame)?,
            Self::Udp(..) if frame.len() > DATAGRAM_BYTES_MAX => return Ok(false),
            Self::Udp(socket, to) => {
                socket.send_to(frame, *to)?;
            }
        }
        Ok(true)
    }

    /// Sends what is buffered.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Unix(_) | Self::Udp(..) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: addresses are read as they are printed, and nothing else is guessed at. Method: one of each kind.
    #[test]
    fn addresses_are_read() {
        for text in ["stdout", "unix:/run/x.sock", "udp:127.0.0.1:9", "udp:[::1]:9"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "file", "unix:", "udp:", "udp:host", "tcp:1.2.3.4:5"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
