//! Writes payloads as frames to any `Write`.

use std::fmt;
use std::io::{IoSlice, Write};

use flatbuffers::{Allocator, DefaultAllocator, FlatBufferBuilder};

use super::error::Result;
use super::framer::{FrameHeader, Framer, SliceFramer, write_all_slices};
use super::message::StreamSerialize;
use super::policy::{InstalledPolicy, MemoryPolicy};

/// Maximum number of frames that one call passes to the sink.
const BATCH_FRAMES_MAX: usize = 32;

/// Writes frames to a sink.
///
/// In simple mode, [`write`](Self::write) builds each message in a builder that the writer owns and
/// reuses. In expert mode, [`write_finished`](Self::write_finished) accepts the caller's own
/// builder, with any allocator, and [`write_payload`](Self::write_payload) accepts any bytes. The
/// writer itself never copies a payload.
///
/// An error of the sink may leave a partial frame in the stream. Nothing that is written after a
/// partial frame can be read.
pub struct StreamWriter<'a, W: Write, F: Framer, A: Allocator = DefaultAllocator> {
    sink: W,
    framer: F,
    builder: FlatBufferBuilder<'a, A>,
    reclaim: Option<BuilderReclaim<'a, A>>,
}

/// The policy that decides when the builder shrinks, and the factory that creates the smaller
/// builder.
struct BuilderReclaim<'a, A: Allocator> {
    policy: InstalledPolicy,
    make_builder: Box<dyn FnMut(usize) -> FlatBufferBuilder<'a, A> + Send + 'a>,
}

impl<'a, W: Write, F: Framer> StreamWriter<'a, W, F> {
    /// Creates a writer that appends to `writer`.
    pub fn new(writer: W, framer: F) -> Self {
        Self::with_builder_alloc(writer, framer, FlatBufferBuilder::new())
    }

    /// Like [`new`](Self::new), but with the caller's builder for simple mode.
    pub fn with_builder(writer: W, framer: F, builder: FlatBufferBuilder<'a>) -> Self {
        Self::with_builder_alloc(writer, framer, builder)
    }

    /// Like [`new`](Self::new), but with capacity for messages of `capacity` bytes in simple mode.
    pub fn with_capacity(writer: W, framer: F, capacity: usize) -> Self {
        Self::with_builder_alloc(writer, framer, FlatBufferBuilder::with_capacity(capacity))
    }

    /// Sets the policy that decides when the writer's own builder shrinks. Builders that the caller
    /// passes in expert mode are not affected.
    #[must_use]
    pub fn with_memory_policy<P: MemoryPolicy + 'static>(self, policy: P) -> Self {
        self.with_memory_policy_and_factory(policy, FlatBufferBuilder::with_capacity)
    }
}

impl<'a, W: Write, F: Framer, A: Allocator> StreamWriter<'a, W, F, A> {
    /// Like `new`, but with the caller's builder, which may have a custom allocator.
    pub fn with_builder_alloc(writer: W, framer: F, builder: FlatBufferBuilder<'a, A>) -> Self {
        Self { sink: writer, framer, builder, reclaim: None }
    }

    /// Sets the policy that decides when the builder shrinks. `make_builder` creates the next
    /// builder with the policy's baseline as its capacity.
    #[must_use]
    pub fn with_memory_policy_and_factory<P, M>(mut self, policy: P, make_builder: M) -> Self
    where
        P: MemoryPolicy + 'static,
        M: FnMut(usize) -> FlatBufferBuilder<'a, A> + Send + 'a,
    {
        self.reclaim = Some(BuilderReclaim {
            policy: InstalledPolicy::new(policy),
            make_builder: Box::new(make_builder),
        });
        self
    }

    /// Builds a message in the writer's own builder and writes it.
    ///
    /// # Errors
    /// Returns the errors of the message's `serialize` method. `InvalidFrame` or
    /// `ValidationFailed`, in which case nothing is written. `Io` if the sink fails.
    #[inline]
    pub fn write<T: StreamSerialize>(&mut self, item: &T) -> Result<()> {
        self.builder.reset();
        item.serialize(&mut self.builder)?;
        let payload = self.builder.finished_data();
        let bytes = payload.len();
        self.framer.frame_and_write(&mut self.sink, payload)?;
        if self.reclaim.is_some() {
            self.reclaim_memory(bytes);
        }
        Ok(())
    }

    /// Builds and writes messages one after the other.
    ///
    /// # Errors
    /// Returns the same errors as [`write`](Self::write). The messages before the failed message
    /// are written.
    pub fn write_batch<'t, T: StreamSerialize + 't>(
        &mut self,
        items: impl IntoIterator<Item = &'t T>,
    ) -> Result<()> {
        items.into_iter().try_for_each(|item| self.write(item))
    }

    /// Writes the finished message of the caller's builder.
    ///
    /// # Errors
    /// `InvalidFrame` or `ValidationFailed`, in which case nothing is written. `Io` if the sink
    /// fails.
    ///
    /// # Panics
    /// Panics if the builder is not finished.
    #[inline]
    pub fn write_finished<A2: Allocator>(&mut self, builder: &mut FlatBufferBuilder<'_, A2>) -> Result<()> {
        self.framer.frame_and_write(&mut self.sink, builder.finished_data())
    }

    /// Writes a payload.
    ///
    /// # Errors
    /// `InvalidFrame` or `ValidationFailed`, in which case nothing is written. `Io` if the sink
    /// fails.
    #[inline]
    pub fn write_payload(&mut self, payload: &[u8]) -> Result<()> {
        self.framer.frame_and_write(&mut self.sink, payload)
    }

    /// Writes whole frames in as few calls as the sink allows. Consumes the slices.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_framed(&mut self, slices: &mut [IoSlice<'_>]) -> Result<()> {
        write_all_slices(&mut self.sink, slices)
    }

    /// Flushes the sink. Does not sync a file.
    ///
    /// # Errors
    /// `Io`.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.sink.flush()?)
    }

    /// Returns the sink.
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    /// Returns a mutable reference to the sink. Writing directly to the sink breaks the framing of
    /// the stream.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Returns the framer.
    pub fn framer(&self) -> &F {
        &self.framer
    }

    /// Returns the sink.
    pub fn into_inner(self) -> W {
        self.sink
    }

    #[inline(never)]
    fn reclaim_memory(&mut self, last_message_size: usize) {
        let Some(reclaim) = &mut self.reclaim else { return };
        let (buffer, _) = self.builder.mut_finished_buffer();
        if let Some(info) = reclaim.policy.should_reclaim(last_message_size, buffer.len()) {
            self.builder = (reclaim.make_builder)(reclaim.policy.baseline());
            reclaim.policy.notify(&info);
        }
    }
}

impl<W: Write, F: SliceFramer, A: Allocator> StreamWriter<'_, W, F, A> {
    /// Writes payloads without copying them, up to 32 frames in one call if the sink supports
    /// vectored writes.
    ///
    /// # Errors
    /// Returns the same errors as [`write_payload`](Self::write_payload). All payloads before the
    /// rejected payload are written.
    pub fn write_payloads<'p>(&mut self, payloads: impl IntoIterator<Item = &'p [u8]>) -> Result<()> {
        let mut payloads = payloads.into_iter();
        loop {
            let mut frames: [Option<(FrameHeader, &[u8])>; BATCH_FRAMES_MAX] = [None; BATCH_FRAMES_MAX];
            let mut rejected = None;
            for (slot, payload) in frames.iter_mut().zip(payloads.by_ref()) {
                match self.framer.header(payload) {
                    Ok(header) => *slot = Some((header, payload)),
                    Err(error) => {
                        rejected = Some(error);
                        break;
                    }
                }
            }
            let mut slices = [IoSlice::new(&[]); 2 * BATCH_FRAMES_MAX];
            let mut count = 0;
            for (pair, (header, payload)) in slices.chunks_exact_mut(2).zip(frames.iter().flatten()) {
                pair.copy_from_slice(&[IoSlice::new(header.as_bytes()), IoSlice::new(payload)]);
                count += 1;
            }
            let (filled, _) = slices.split_at_mut(2 * count);
            write_all_slices(&mut self.sink, filled)?;
            if let Some(error) = rejected {
                return Err(error);
            }
            if count < BATCH_FRAMES_MAX {
                return Ok(());
            }
        }
    }
}

impl<W: Write + fmt::Debug, F: Framer + fmt::Debug, A: Allocator> fmt::Debug for StreamWriter<'_, W, F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter")
            .field("sink", &self.sink)
            .field("framer", &self.framer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::adapters::FramerExt;
    use crate::checksum_kind::ChecksumKind;
    use crate::framer::DefaultFramer;
    use crate::policy::{AdaptiveWatermarkPolicy, ReclamationInfo, ReclamationReason};

    /// A sink that accepts one byte per call and is interrupted before each byte.
    #[derive(Default)]
    struct OneByteWriter {
        bytes: Vec<u8>,
        interrupted: bool,
    }

    impl Write for OneByteWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            self.bytes.extend_from_slice(&bytes[..1]);
            Ok(1)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // Proves that short writes and interruptions neither lose nor repeat a byte. Method: all write
    // methods, and payloads on both sides of every limit.
    #[test]
    fn short_writes_are_continued() {
        for &kind in ChecksumKind::ALL {
            let mut reluctant = StreamWriter::new(OneByteWriter::default(), kind);
            let mut plain = Vec::new();
            let payloads: Vec<Vec<u8>> = (0..70_usize).map(|index| vec![7; index * index]).collect();
            for payload in &payloads {
                reluctant.write_payload(payload).unwrap();
                kind.frame_and_write(&mut plain, payload).unwrap();
            }
            reluctant.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
            plain.extend_from_within(..);
            reluctant
                .write_framed(&mut [IoSlice::new(&[]), IoSlice::new(b"abc"), IoSlice::new(b"d")])
                .unwrap();
            plain.extend_from_slice(b"abcd");
            assert_eq!(reluctant.into_inner().bytes, plain);
        }
    }

    // Proves that a batch writes the payloads before a rejected payload and nothing else.
    #[test]
    fn a_batch_writes_all_payloads_before_a_rejected_one() {
        for refused in [0, 1, BATCH_FRAMES_MAX - 1, BATCH_FRAMES_MAX, BATCH_FRAMES_MAX + 5] {
            let payloads: Vec<Vec<u8>> =
                (0..50).map(|index| vec![1; if index == refused { 9 } else { 8 }]).collect();
            let mut writer = StreamWriter::new(Vec::new(), DefaultFramer.bounded(8));
            let error = writer.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap_err();
            assert!(error.is_frame_too_large());
            assert_eq!(writer.get_ref().len(), refused * 12);
        }
    }

    struct ObservedPolicy(std::sync::mpsc::Sender<ReclamationInfo>, AdaptiveWatermarkPolicy);

    impl MemoryPolicy for ObservedPolicy {
        fn should_reset(&mut self, size: usize, capacity: usize) -> Option<ReclamationReason> {
            self.1.should_reset(size, capacity)
        }

        fn on_reclaim(&mut self, info: &ReclamationInfo) {
            self.0.send(*info).unwrap();
        }

        fn baseline_capacity(&self) -> usize {
            self.1.baseline_capacity()
        }
    }

    // Proves that the memory of a large message is released exactly once and that the stream is
    // unaffected.
    #[test]
    fn a_policy_releases_the_memory_of_a_burst() {
        let (sender, info) = std::sync::mpsc::channel();
        let policy = ObservedPolicy(sender, AdaptiveWatermarkPolicy::new(4, 3).with_baseline(256));
        let mut writer = StreamWriter::new(Vec::new(), DefaultFramer).with_memory_policy(policy);
        writer.write(&"x".repeat(100_000)).unwrap();
        writer.write_batch(&["small"; 20]).unwrap();
        let info: Vec<ReclamationInfo> = info.try_iter().collect();
        assert_eq!(info.len(), 1, "{info:?}");
        assert_eq!(info[0].capacity_after, 256);
        assert!(info[0].capacity_before >= 100_000);
        let mut plain = StreamWriter::new(Vec::new(), DefaultFramer);
        plain.write(&"x".repeat(100_000)).unwrap();
        plain.write_batch(&["small"; 20]).unwrap();
        assert_eq!(writer.into_inner(), plain.into_inner());
    }
}
