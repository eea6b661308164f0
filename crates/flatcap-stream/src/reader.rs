//! Reads payloads from any `Read`.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use super::deframer::Deframer;
use super::error::{Error, Result};
use super::message::StreamDeserialize;
use super::policy::{InstalledPolicy, MemoryPolicy};

/// Reads frames from a source, one at a time, and never reads past the current frame.
///
/// The buffer for payloads is reused, so each payload is valid until the next read. Reading
/// allocates nothing after the buffer has grown to the length of the longest payload. For bytes in
/// memory, [`SliceReader`](super::SliceReader) is faster and does not copy.
pub struct StreamReader<R: Read, D: Deframer> {
    source: R,
    deframer: D,
    buffer: Vec<u8>,
    reclaim: Option<BufferReclaim>,
}

struct BufferReclaim {
    policy: InstalledPolicy,
    /// Whether the buffer shrinks at the next read. The reader cannot shrink the buffer earlier,
    /// because the buffer contains the last payload.
    is_due: bool,
}

impl<R: Read, D: Deframer> StreamReader<R, D> {
    /// Creates a reader at the current position of `reader`.
    pub fn new(reader: R, deframer: D) -> Self {
        Self::with_capacity(reader, deframer, 0)
    }

    /// Like [`new`](Self::new), but with capacity for payloads of `capacity` bytes.
    pub fn with_capacity(reader: R, deframer: D, capacity: usize) -> Self {
        Self { source: reader, deframer, buffer: Vec::with_capacity(capacity), reclaim: None }
    }

    /// Sets the policy that decides when the buffer shrinks.
    #[must_use]
    pub fn with_memory_policy<P: MemoryPolicy + 'static>(mut self, policy: P) -> Self {
        self.reclaim = Some(BufferReclaim { policy: InstalledPolicy::new(policy), is_due: false });
        self
    }

    /// Returns the next payload, or `None` if the source ends between two frames.
    ///
    /// # Errors
    /// `UnexpectedEof`, `InvalidFrame`, `ChecksumMismatch`, `Io`, and the errors of adapters. After
    /// `ChecksumMismatch` and after a validator's error the source is at the next frame, and
    /// reading may continue. After any other error, such as a length above the limit, reading must
    /// not continue.
    #[allow(clippy::inline_always, reason = "the call alone costs a third of a small frame")]
    #[inline(always)]
    pub fn read_message(&mut self) -> Result<Option<&[u8]>> {
        if self.reclaim.is_some() {
            self.reclaim_memory();
        }
        let Some(length) = self.deframer.read_and_deframe(&mut self.source, &mut self.buffer)? else {
            return Ok(None);
        };
        if self.reclaim.is_some() {
            self.ask_policy(length);
        }
        self.buffer.get(..length).map(Some).ok_or_else(length_beyond_buffer)
    }

    /// Passes every payload to `processor` until the stream ends or an error occurs.
    ///
    /// # Errors
    /// Returns the errors of [`read_message`](Self::read_message) and of `processor`.
    #[inline]
    pub fn process_all<P>(&mut self, mut processor: P) -> Result<()>
    where
        P: FnMut(&[u8]) -> Result<()>,
    {
        while let Some(payload) = self.read_message()? {
            processor(payload)?;
        }
        Ok(())
    }

    /// Passes every payload to `processor` as a verified root.
    ///
    /// # Errors
    /// Returns the errors of [`process_all`](Self::process_all) and of the conversion to `T`.
    pub fn process_typed<T, P>(&mut self, mut processor: P) -> Result<()>
    where
        for<'p> T: StreamDeserialize<'p>,
        for<'p> P: FnMut(<T as StreamDeserialize<'p>>::Root) -> Result<()>,
    {
        self.process_all(|payload| processor(T::from_payload(payload)?))
    }

    /// Passes every payload to `processor` as a verified root and as bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`process_typed`](Self::process_typed).
    pub fn process_typed_with_payload<T, P>(&mut self, mut processor: P) -> Result<()>
    where
        for<'p> T: StreamDeserialize<'p>,
        for<'p> P: FnMut(<T as StreamDeserialize<'p>>::Root, &'p [u8]) -> Result<()>,
    {
        self.process_all(|payload| processor(T::from_payload(payload)?, payload))
    }

    /// Returns a lending iterator over the payloads.
    pub fn messages(&mut self) -> Messages<'_, R, D> {
        Messages { reader: self }
    }

    /// Returns a lending iterator over the payloads as verified roots.
    pub fn typed_messages<T>(&mut self) -> TypedMessages<'_, R, D, T>
    where
        for<'p> T: StreamDeserialize<'p>,
    {
        TypedMessages { reader: self, root: PhantomData }
    }

    /// Returns the source.
    pub fn get_ref(&self) -> &R {
        &self.source
    }

    /// Returns a mutable reference to the source. If the caller reads bytes directly from the
    /// source, this reader does not receive these bytes.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Returns the deframer.
    pub fn deframer(&self) -> &D {
        &self.deframer
    }

    /// Returns the capacity of the buffer in bytes.
    pub fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reserves capacity for payloads that are `additional` bytes longer than the longest payload
    /// so far.
    pub fn reserve(&mut self, additional: usize) {
        self.buffer.reserve(additional);
    }

    /// Returns the source, which is positioned after the last frame that was read.
    pub fn into_inner(self) -> R {
        self.source
    }

    #[inline(never)]
    fn reclaim_memory(&mut self) {
        if let Some(reclaim) = &mut self.reclaim
            && std::mem::take(&mut reclaim.is_due)
        {
            self.buffer = Vec::with_capacity(reclaim.policy.baseline());
        }
    }

    #[inline(never)]
    fn ask_policy(&mut self, last_message_size: usize) {
        if let Some(reclaim) = &mut self.reclaim {
            let info = reclaim.policy.should_reclaim(last_message_size, self.buffer.capacity());
            reclaim.is_due = info.is_some();
            if let Some(info) = info {
                reclaim.policy.notify(&info);
            }
        }
    }
}

/// Returns the error for a deframer that returns a length greater than the length of its buffer.
#[cold]
#[inline(never)]
fn length_beyond_buffer() -> Error {
    Error::invalid_frame("the deframer returned a length above the length of its buffer")
}

impl<R: Read + fmt::Debug, D: Deframer + fmt::Debug> fmt::Debug for StreamReader<R, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader")
            .field("source", &self.source)
            .field("deframer", &self.deframer)
            .field("buffer_capacity", &self.buffer.capacity())
            .finish_non_exhaustive()
    }
}

/// A lending iterator over payloads. Each payload is valid only until the next call. An `Iterator`
/// cannot express this rule.
#[derive(Debug)]
pub struct Messages<'a, R: Read, D: Deframer> {
    reader: &'a mut StreamReader<R, D>,
}

impl<R: Read, D: Deframer> Messages<'_, R, D> {
    /// See [`StreamReader::read_message`].
    ///
    /// # Errors
    /// Returns the same errors as [`StreamReader::read_message`].
    #[allow(clippy::should_implement_trait, reason = "a lending iterator, under the name that users know")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        self.reader.read_message()
    }

    /// Same as [`next`](Self::next), under a name that does not suggest an `Iterator`.
    ///
    /// # Errors
    /// Returns the same errors as [`StreamReader::read_message`].
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<&[u8]>> {
        self.next()
    }
}

/// A lending iterator over verified roots. Each root is valid until the next call.
#[derive(Debug)]
pub struct TypedMessages<'a, R: Read, D: Deframer, T> {
    reader: &'a mut StreamReader<R, D>,
    root: PhantomData<T>,
}

impl<R: Read, D: Deframer, T> TypedMessages<'_, R, D, T>
where
    for<'p> T: StreamDeserialize<'p>,
{
    /// Returns the next root, or `None` if the source ends between two frames.
    ///
    /// # Errors
    /// Returns the errors of [`StreamReader::read_message`] and of the conversion to `T`.
    #[allow(clippy::should_implement_trait, reason = "a lending iterator, under the name that users know")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<<T as StreamDeserialize<'_>>::Root>> {
        self.reader.read_message()?.map(T::from_payload).transpose()
    }

    /// Same as [`next`](Self::next), under a name that does not suggest an `Iterator`.
    ///
    /// # Errors
    /// Returns the same errors as [`next`](Self::next).
    #[inline]
    pub fn next_typed(&mut self) -> Result<Option<<T as StreamDeserialize<'_>>::Root>> {
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, ErrorKind};

    use super::*;
    use crate::adapters::DeframerExt;
    use crate::checksum_kind::{ChecksumKind, KindDeframer};
    use crate::deframer::DefaultDeframer;
    use crate::policy::AdaptiveWatermarkPolicy;
    use crate::validation::SizeValidator;
    use crate::writer::StreamWriter;

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = StreamWriter::new(Vec::new(), kind);
        writer.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
        writer.into_inner()
    }

    /// A source that returns one byte per call and is interrupted before each byte.
    struct OneByteReader<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for OneByteReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            let length = buffer.len().min(1);
            self.bytes.read(&mut buffer[..length])
        }
    }

    // Proves that a source that returns single bytes and interruptions is read in full, under all
    // checksums.
    #[test]
    fn a_source_of_single_bytes_is_read_in_full() {
        let payloads: Vec<Vec<u8>> = [0, 1, 7, 0, 300, 5000].map(|length| vec![9; length]).to_vec();
        for &kind in ChecksumKind::ALL {
            let bytes = stream(kind, &payloads);
            let source = OneByteReader { bytes: &bytes, interrupted: false };
            let mut reader = StreamReader::new(source, KindDeframer::new(kind));
            let mut read = Vec::new();
            reader
                .process_all(|payload| {
                    read.push(payload.to_vec());
                    Ok(())
                })
                .unwrap();
            assert_eq!(read, payloads);
        }
    }

    // Proves that the reader consumes the bytes of its frames and no more.
    #[test]
    fn nothing_is_read_past_a_frame() {
        for &kind in ChecksumKind::ALL {
            let mut bytes = stream(kind, &[b"one".to_vec(), b"two".to_vec()]);
            let end = bytes.len() as u64;
            bytes.extend_from_slice(b"other");
            let mut reader = StreamReader::new(Cursor::new(bytes), KindDeframer::new(kind));
            assert_eq!(reader.messages().next().unwrap().unwrap(), b"one");
            assert_eq!(reader.get_ref().position() * 2, end);
            assert_eq!(reader.read_message().unwrap().unwrap(), b"two");
            assert_eq!(reader.into_inner().position(), end);
        }
    }

    // Proves that reading continues after a frame that a validator rejected.
    #[test]
    fn reading_continues_after_a_rejected_frame() {
        let payloads = [b"ok 1".to_vec(), b"too long".to_vec(), b"ok 2".to_vec()];
        let bytes = stream(ChecksumKind::None, &payloads);
        let deframer = DefaultDeframer::new().with_validator(SizeValidator::new(0, 4));
        let mut reader = StreamReader::new(&bytes[..], deframer);
        assert!(reader.read_message().unwrap().is_some());
        assert!(reader.read_message().unwrap_err().is_invalid_payload());
        assert_eq!(reader.read_message().unwrap().unwrap(), b"ok 2");
        assert!(reader.read_message().unwrap().is_none());
    }

    struct OverlongDeframer;

    impl Deframer for OverlongDeframer {
        fn read_after_length<R: Read>(
            &self,
            _reader: &mut R,
            buffer: &mut Vec<u8>,
            _payload_len: usize,
        ) -> Result<Option<usize>> {
            Ok(Some(buffer.len() + 1))
        }
    }

    // Proves that a deframer that returns a wrong length causes an error, not an empty payload.
    #[test]
    fn a_length_beyond_the_buffer_is_an_error() {
        let bytes = stream(ChecksumKind::None, &[b"payload".to_vec()]);
        let mut reader = StreamReader::new(&bytes[..], OverlongDeframer);
        let error = reader.read_message().unwrap_err().to_string();
        assert!(error.contains("a length above the length of its buffer"), "{error}");
    }

    // Proves that the last payload stays valid although its buffer is about to shrink.
    #[test]
    fn a_policy_shrinks_the_buffer_at_the_next_read() {
        let bytes = stream(ChecksumKind::None, &[vec![1; 100_000], vec![2; 10], vec![3; 10], vec![4; 10]]);
        let policy = AdaptiveWatermarkPolicy::new(4, 1).with_baseline(512);
        let mut reader = StreamReader::new(&bytes[..], DefaultDeframer::new()).with_memory_policy(policy);
        assert_eq!(reader.read_message().unwrap().unwrap().len(), 100_000);
        assert_eq!(reader.read_message().unwrap().unwrap(), [2; 10]);
        assert!(reader.buffer_capacity() >= 100_000);
        assert_eq!(reader.read_message().unwrap().unwrap(), [3; 10]);
        assert_eq!(reader.buffer_capacity(), 512);
        assert_eq!(reader.read_message().unwrap().unwrap(), [4; 10]);
    }

    struct TextPayload;

    impl<'a> StreamDeserialize<'a> for TextPayload {
        type Root = &'a str;

        fn from_payload(payload: &'a [u8]) -> Result<&'a str> {
            Ok(flatbuffers::root::<&str>(payload)?)
        }
    }

    // Proves that typed reading returns verified roots, and rejects payloads that are not of the
    // type.
    #[test]
    fn typed_reading() {
        let mut writer = StreamWriter::new(Vec::new(), ChecksumKind::None);
        writer.write_batch(&["one", "two"]).unwrap();
        writer.write_payload(&[0xFF; 16]).unwrap();
        let bytes = writer.into_inner();
        let mut reader = StreamReader::new(&bytes[..], DefaultDeframer::new());
        let mut texts = reader.typed_messages::<TextPayload>();
        assert_eq!(texts.next().unwrap(), Some("one"));
        assert_eq!(texts.next_typed().unwrap(), Some("two"));
        assert!(texts.next().unwrap_err().is_invalid_payload());
        assert_eq!(texts.next().unwrap(), None);
        let mut seen = Vec::new();
        let mut reader = StreamReader::new(&bytes[..], DefaultDeframer::new());
        let result = reader.process_typed_with_payload::<TextPayload, _>(|text, payload| {
            seen.push((text.to_owned(), payload.len()));
            Ok(())
        });
        assert!(result.unwrap_err().is_invalid_payload());
        assert_eq!(seen.len(), 2);
    }
}
