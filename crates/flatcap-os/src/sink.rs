//! Destinations of a replay: a byte stream, or a datagram socket that sends one frame per datagram.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

/// Maximum UDP payload over IPv4, in bytes.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_507;

/// A destination address: `stdout`, `unix:PATH` or `udp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkAddress {
    /// Standard output.
    Stdout,
    /// A listening Unix stream socket.
    Unix(PathBuf),
    /// A UDP host and port.
    Udp(String),
}

impl FromStr for SinkAddress {
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

impl std::fmt::Display for SinkAddress {
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
pub enum ReplaySink<W> {
    /// Any byte stream.
    Stream(W),
    /// A connected Unix stream socket.
    Unix(UnixStream),
    /// A UDP socket and its destination.
    Udp(UdpSocket, SocketAddr),
}

impl<W: Write> ReplaySink<W> {
    /// Connects to an address. The address `stdout` means the stream that is passed as `stdout`.
    ///
    /// # Errors
    /// `NotFound` for a host name without an address, or any error of the underlying system call.
    pub fn connect(address: &SinkAddress, stdout: W) -> io::Result<Self> {
        Ok(match address {
            SinkAddress::Stdout => Self::Stream(stdout),
            SinkAddress::Unix(path) => Self::Unix(UnixStream::connect(path)?),
            SinkAddress::Udp(address) => {
                let to = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                Self::Udp(UdpSocket::bind(any)?, to)
            }
        })
    }

    /// Sends one frame. Returns false and sends nothing if the frame is too long for a datagram.
    ///
    /// # Errors
    /// `BrokenPipe` if the reader is gone, or any error of the underlying system call.
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

    /// Flushes buffered bytes.
    ///
    /// # Errors
    /// Any error of the underlying system call.
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

    // Proves that printed addresses are parsed again as the same addresses, and that invalid ones
    // are rejected.
    #[test]
    fn addresses_are_read() {
        for text in ["stdout", "unix:/run/x.sock", "udp:127.0.0.1:9", "udp:[::1]:9"] {
            assert_eq!(text.parse::<SinkAddress>().unwrap().to_string(), text);
        }
        for text in ["", "file", "unix:", "udp:", "udp:host", "tcp:1.2.3.4:5"] {
            assert!(text.parse::<SinkAddress>().is_err(), "{text}");
        }
    }
}
