//! Streams and loops that the benches of framing share.

use flatcap::stream::SliceFramer;

/// Payload bytes of a stream: with its headers it stays in the second-level cache.
pub const STREAM_BYTES: usize = 512 << 10;

/// Frames one payload again and again, until the room is full.
#[inline]
pub fn frame_all<F: SliceFramer>(framer: &F, payload: &[u8], room: &mut [u8]) -> usize {
    let frame_bytes = framer.header_bytes() + payload.len();
    let mut at = 0;
    while at + frame_bytes <= room.len() {
        at += framer.frame_into(&mut room[at..], std::hint::black_box(payload)).expect("there is room");
    }
    at
}

/// A stream of one payload.
pub fn stream<F: SliceFramer>(framer: &F, payload: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * (framer.header_bytes() + payload.len())];
    frame_all(framer, payload, &mut bytes);
    bytes
}

/// The least that a framer must do: the payloads, each where its frame has it, behind four bytes of length.
#[inline]
pub fn copy_in_place(payload: &[u8], room: &mut [u8]) {
    for frame in room.chunks_exact_mut(4 + payload.len()) {
        frame[4..].copy_from_slice(std::hint::black_box(payload));
    }
}
