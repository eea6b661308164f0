//! Reading with custom control flow. The example skips frames, stops early, and continues after a
//! refused frame. It seeks in a slice, splits the slice among threads, and salvages the intact
//! frames of a damaged copy.
//!
//! How to run: `cargo run --example expert_processing`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, RegionContent, Result, SliceReader, StreamReader, StreamWriter,
    XxHash64, salvage,
};

/// Number of frames in the stream. Frame i has the payload "event i".
const FRAMES: usize = 1000;

/// Returns the stream and the offset of each frame in it.
fn stream() -> Result<(Vec<u8>, Vec<usize>)> {
    let mut writer = StreamWriter::new(Vec::new(), ChecksumFramer::new(XxHash64));
    let mut offsets = Vec::new();
    for index in 0..FRAMES {
        offsets.push(writer.get_ref().len());
        writer.write_payload(format!("event {index}").as_bytes())?;
    }
    Ok((writer.into_inner(), offsets))
}

/// Returns a copy with one bit of the byte at `offset` flipped.
fn damaged(bytes: &[u8], offset: usize) -> Vec<u8> {
    bytes.iter().enumerate().map(|(at, &byte)| if at == offset { byte ^ 4 } else { byte }).collect()
}

/// Skips unwanted frames, continues after rejected frames and counts them, and stops at a given
/// frame.
fn read_with_custom_control_flow(bytes: &[u8]) -> Result<()> {
    let mut reader = StreamReader::new(bytes, ChecksumDeframer::new(XxHash64));
    let mut messages = reader.messages();
    let (mut tens, mut refused) = (0, 0);
    loop {
        match messages.next() {
            Ok(None | Some(b"event 500")) => break,
            Ok(Some(payload)) if !payload.ends_with(b"0") => {}
            Ok(Some(_)) => tens += 1,
            // The refused frame has been consumed, so the source is at the next frame.
            Err(error) if error.is_checksum_mismatch() => refused += 1,
            Err(error) => return Err(error),
        }
    }
    assert_eq!((tens, refused), (49, 1), "0, 10, 20 ... 490 but the damaged one");
    println!("messages: {tens} taken, {refused} refused, stopped at event 500");
    Ok(())
}

/// Starts in the middle, then splits the whole stream between two threads.
fn read_in_any_order(bytes: &[u8], offsets: &[usize]) -> Result<()> {
    let mut reader = SliceReader::new(bytes, ChecksumDeframer::new(XxHash64));
    reader.seek(offsets.get(700).copied().unwrap_or_default());
    assert_eq!(reader.next().transpose()?, Some(&b"event 700"[..]));
    // Only the header is read, so the checksum of event 701 is not verified.
    assert_eq!(reader.skip_frame()?, offsets.get(701).copied());
    assert_eq!(reader.next().transpose()?, Some(&b"event 702"[..]));

    let parts = SliceReader::new(bytes, ChecksumDeframer::new(XxHash64)).split(2);
    let counts = std::thread::scope(|scope| {
        let workers: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| part.flatten().count())).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    assert_eq!(counts.len(), 2);
    assert_eq!(counts.iter().sum::<usize>(), FRAMES);
    println!("slice: event 700 by its offset; two threads verified {counts:?} frames");
    Ok(())
}

/// Reads past damage. The readers of this crate stop at damage, because a damaged length hides the
/// start of the next frame.
fn salvage_the_rest(bytes: &[u8], offsets: &[usize]) {
    let offset = offsets.get(300).copied().unwrap_or_default();
    let damaged = damaged(bytes, offset + 2);
    let read = SliceReader::new(&damaged, ChecksumDeframer::new(XxHash64)).flatten().count();
    assert_eq!(read, 300);

    let pieces: Vec<_> = salvage(&damaged, ChecksumDeframer::new(XxHash64)).collect();
    let intact = pieces.iter().filter(|piece| matches!(piece.content, RegionContent::Frame(_))).count();
    assert_eq!(intact, FRAMES - 1);
    // The checksum proves the payload between the damaged length and the next frame.
    let repaired = pieces.iter().find(|piece| matches!(piece.content, RegionContent::Repaired(_)));
    let repaired = repaired.and_then(|piece| piece.content.payload().map(|payload| (piece.offset, payload)));
    assert_eq!(repaired, Some((offset, &b"event 300"[..])));
    println!("salvage: a reader stopped after {read} frames, {intact} are intact and 1 was repaired");
}

fn main() -> Result<()> {
    let (bytes, offsets) = stream()?;
    let payload_of_250 = offsets.get(250).copied().unwrap_or_default() + 12;
    read_with_custom_control_flow(&damaged(&bytes, payload_of_250))?;
    read_in_any_order(&bytes, &offsets)?;
    salvage_the_rest(&bytes, &offsets);
    Ok(())
}
