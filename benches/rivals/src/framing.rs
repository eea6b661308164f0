//! Streams and loops shared by the benches of framing.

use flatcap_stream::SliceFramer;

/// Bytes of payloads per stream: with its headers it fits the second-level cache.
pub const STREAM_BYTES: usize = 512 << 10;

/// Frames one payload repeatedly until the buffer is full.
#[inline]
pub fn frame_all<F: SliceFramer>(framer: &F, payload: &[u8], room: &mut [u8]) -> usize {
    let frame_bytes = framer.header_bytes() + payload.len();
    let mut at = 0;
    while at + frame_bytes <= room.len() {
        at += framer.frame_into(&mut room[at..], std::hint::black_box(payload)).expect("enough space");
    }
    at
}

/// Creates a stream of one payload, repeated.
pub fn stream<F: SliceFramer>(framer: &F, payload: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * (framer.header_bytes() + payload.len())];
    frame_all(framer, payload, &mut bytes);
    bytes
}

/// Does the minimum work of a framer: copies payloads to their places, each after four bytes of
/// length.
#[inline]
pub fn copy_in_place(payload: &[u8], room: &mut [u8]) {
    for frame in room.chunks_exact_mut(4 + payload.len()) {
        frame[4..].copy_from_slice(std::hint::black_box(payload));
    }
}
