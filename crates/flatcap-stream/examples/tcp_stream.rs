//! Frames over TCP, read in two ways. `FrameDecoder` reads a non-blocking socket, whose bytes
//! arrive in pieces. `StreamReader` reads a blocking socket.
//!
//! How to run: `cargo run --example tcp_stream`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use std::io::{BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, Crc32, Error, FrameDecoder, Result, StreamReader, StreamWriter,
};

/// Number of frames that the server sends to each client.
const FRAMES: usize = 2000;
/// Maximum length of a payload that a client accepts, in bytes. A limit is needed because a peer
/// may declare any length.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Returns payloads of very different lengths, so that the boundaries of frames and packets do not
/// coincide.
fn payload(index: usize) -> Vec<u8> {
    format!("frame {index} ").into_bytes().repeat(1 + index % 97)
}

/// Sends all frames to one client, then closes the connection, which the client sees as a clean
/// end.
fn serve(connection: TcpStream) -> Result<()> {
    let mut writer = StreamWriter::new(connection, ChecksumFramer::new(Crc32));
    let payloads: Vec<Vec<u8>> = (0..FRAMES).map(payload).collect();
    // Writes up to 32 frames per call to the socket, without copying any.
    writer.write_payloads(payloads.iter().map(Vec::as_slice))?;
    writer.flush()
}

/// Reads the available bytes. A real program does other work when no bytes are available.
fn read_without_blocking(mut connection: TcpStream) -> Result<(usize, usize)> {
    connection.set_nonblocking(true)?;
    let mut decoder = FrameDecoder::new(ChecksumDeframer::new(Crc32).with_max_frame_len(PAYLOAD_BYTES_MAX));
    let mut piece = [0; 4096];
    let (mut frames, mut pieces) = (0, 0);
    loop {
        let length = match connection.read(&mut piece) {
            Ok(0) if decoder.is_between_frames() => return Ok((frames, pieces)),
            Ok(0) => return Err(Error::unexpected_eof()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // A program with an event loop returns to it here.
                std::thread::yield_now();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        pieces += 1;
        let mut rest = piece.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let (taken, message) = decoder.decode(rest)?;
            if let Some(message) = message {
                assert_eq!(message, payload(frames));
                frames += 1;
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
    }
}

/// Waits for each frame.
fn read_blocking(connection: TcpStream) -> Result<usize> {
    let deframer = ChecksumDeframer::new(Crc32).with_max_frame_len(PAYLOAD_BYTES_MAX);
    let mut reader = StreamReader::new(BufReader::new(connection), deframer);
    let mut frames = 0;
    reader.process_all(|message| {
        assert_eq!(message, payload(frames));
        frames += 1;
        Ok(())
    })?;
    Ok(frames)
}

fn main() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let (patient, hasty) = (TcpStream::connect(address)?, TcpStream::connect(address)?);
    std::thread::scope(|scope| {
        let mut servers = Vec::new();
        for _ in 0..2 {
            let (connection, _) = listener.accept()?;
            servers.push(scope.spawn(|| serve(connection)));
        }
        let (frames, pieces) = read_without_blocking(hasty)?;
        assert_eq!(frames, FRAMES);
        println!("without blocking: {frames} frames out of {pieces} pieces");
        let frames = read_blocking(patient)?;
        assert_eq!(frames, FRAMES);
        println!("blocking: {frames} frames");
        for server in servers {
            assert!(server.join().is_ok_and(|served| served.is_ok()));
        }
        Ok(())
    })
}
