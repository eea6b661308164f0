//! Payloads from any `Read`.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use super::deframer::Deframer;
use super::error::Result;
use super::message::StreamDeserialize;
use super::policy::{Installed, MemoryPolicy};

/// Reads frames from a source, one at a time and never past the one that is asked for.
///
/// Payloads stand in a buffer that is reused: each is valid until the next read. Once the buffer has met the longest
/// payload, reading takes no memory. Bytes that are in memory already are read faster, and without a copy, by
/// [`SliceReader`](super::SliceReader).
pub struct StreamReader<R: Read, D: Deframer> {
    source: R,
    deframer: D,
    buffer: Vec<u8>,
    reclaim: Option<Reclaim>,
}

struct Reclaim {
    policy: Installed,
    /// The buffer shrinks at the next read: the payload that was read last stands in it.
    is_due: bool,
}

impl<R: Read, D: Deframer> StreamReader<R, D> {
    /// A reader at the present position of `reader`.
    pub fn new(reader: R, deframer: D) -> Self {
        Self::with_capacity(reader, deframer, 0)
    }

    /// The same, with room for payloads of `capacity` bytes.
    pub fn with_capacity(reader: R, deframer: D, capacity: usize) -> Self {
        Self { source: reader, deframer, buffer: Vec::with_capacity(capacity), reclaim: None }
    }

    /// The same, giving the buffer's memory back when `policy` says so.
    #[must_use]
    pub fn with_memory_policy<P: MemoryPolicy + 'static>(mut self, policy: P) -> Self {
        self.reclaim = Some(Reclaim { policy: Installed::new(policy), is_due: false });
        self
    }

    /// The next payload; none at a clean end.
    ///
    /// # Errors
    /// `UnexpectedEof`, `InvalidFrame`, `ChecksumMismatch`, `Io`, and what adapters say. After `ChecksumMismatch` and
    /// after a validator's refusal the source stands at the next frame, so that reading may go on; after the others,
    /// a bound's refusal among them, it does not.
    #[inline]
    pub fn read_message(&mut self) -> Result<Option<&[u8]>> {
        if self.reclaim.is_some() {
            self.give_memory_back();
        }
        let Some(length) = self.deframer.read_and_deframe(&mut self.source, &mut self.buffer)? else {
            return Ok(None);
        };
        if self.reclaim.is_some() {
            self.ask_policy(length);
        }
        Ok(Some(self.buffer.get(..length).unwrap_or_default()))
    }

    /// Hands every payload to `processor`, up to a clean end or the first error, which may be the processor's.
    ///
    /// # Errors
    /// As [`read_message`](Self::read_message), and what `processor` says.
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

    /// Hands every payload to `processor` as a verified root.
    ///
    /// # Errors
    /// As [`process_all`](Self::process_all), and what `T` says of a payload.
    pub fn process_typed<T, P>(&mut self, mut processor: P) -> Result<()>
    where
        for<'p> T: StreamDeserialize<'p>,
        for<'p> P: FnMut(<T as StreamDeserialize<'p>>::Root) -> Result<()>,
    {
        self.process_all(|payload| processor(T::from_payload(payload)?))
    }

    /// Hands every payload to `processor` as a verified root, and as bytes.
    ///
    /// # Errors
    /// As [`process_typed`](Self::process_typed).
    pub fn process_typed_with_payload<T, P>(&mut self, mut processor: P) -> Result<()>
    where
        for<'p> T: StreamDeserialize<'p>,
        for<'p> P: FnMut(<T as StreamDeserialize<'p>>::Root, &'p [u8]) -> Result<()>,
    {
        self.process_all(|payload| processor(T::from_payload(payload)?, payload))
    }

    /// The payloads one by one, for loops of your own.
    pub fn messages(&mut self) -> Messages<'_, R, D> {
        Messages { reader: self }
    }

    /// The payloads one by one, as verified roots.
    pub fn typed_messages<T>(&mut self) -> TypedMessages<'_, R, D, T>
    where
        for<'p> T: StreamDeserialize<'p>,
    {
        TypedMessages { reader: self, root: PhantomData }
    }

    /// The source.
    pub fn get_ref(&self) -> &R {
        &self.source
    }

    /// The source, to be changed. Reading from it takes bytes away from this reader.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// The deframer.
    pub fn deframer(&self) -> &D {
        &self.deframer
    }

    /// Bytes that the buffer holds without taking memory.
    pub fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Makes room for payloads `additional` bytes longer than the longest so far.
    pub fn reserve(&mut self, additional: usize) {
        self.buffer.reserve(additional);
    }

    /// Gives the source back. It stands behind the last frame that was read.
    pub fn into_inner(self) -> R {
        self.source
    }

    #[inline(never)]
    fn give_memory_back(&mut self) {
        if let Some(reclaim) = &mut self.reclaim
            && std::mem::take(&mut reclaim.is_due)
        {
            self.buffer = Vec::with_capacity(reclaim.policy.baseline());
        }
    }

    #[inline(never)]
    fn ask_policy(&mut self, last_message_size: usize) {
        if let Some(reclaim) = &mut self.reclaim {
            let info = reclaim.policy.reclaims(last_message_size, self.buffer.capacity());
            reclaim.is_due = info.is_some();
            if let Some(info) = info {
                reclaim.policy.tell(&info);
            }
        }
    }
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

/// Payloads one by one; each is valid until the next is asked for, which an `Iterator` could not promise.
#[derive(Debug)]
pub struct Messages<'a, R: Read, D: Deframer> {
    reader: &'a mut StreamReader<R, D>,
}

impl<R: Read, D: Deframer> Messages<'_, R, D> {
    /// As [`StreamReader::read_message`].
    ///
    /// # Errors
    /// As there.
    #[allow(clippy::should_implement_trait, reason = "a lending iterator, under the name that users know")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        self.reader.read_message()
    }

    /// The same under a name that is not an iterator's.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<&[u8]>> {
        self.next()
    }
}

/// Verified roots one by one; each is valid until the next is asked for.
#[derive(Debug)]
pub struct TypedMessages<'a, R: Read, D: Deframer, T> {
    reader: &'a mut StreamReader<R, D>,
    root: PhantomData<T>,
}

impl<R: Read, D: Deframer, T> TypedMessages<'_, R, D, T>
where
    for<'p> T: StreamDeserialize<'p>,
{
    /// The next root; none at a clean end.
    ///
    /// # Errors
    /// As [`StreamReader::read_message`], and what `T` says of the payload.
    #[allow(clippy::should_implement_trait, reason = "a lending iterator, under the name that users know")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<<T as StreamDeserialize<'_>>::Root>> {
        self.reader.read_message()?.map(T::from_payload).transpose()
    }

    /// The same under a name that is not an iterator's.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn next_typed(&mut self) -> Result<Option<<T as StreamDeserialize<'_>>::Root>> {
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, ErrorKind};

    use super::*;
    use crate::stream::adapters::DeframerExt;
    use crate::stream::deframer::DefaultDeframer;
    use crate::stream::kind::{ChecksumKind, KindDeframer};
    use crate::stream::policy::AdaptiveWatermarkPolicy;
    use crate::stream::validation::SizeValidator;
    use crate::stream::writer::StreamWriter;

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = StreamWriter::new(Vec::new(), kind);
        writer.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
        writer.into_inner()
    }

    /// Gives one byte at a time and is interrupted before each.
    struct Reluctant<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for Reluctant<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            let length = buffer.len().min(1);
            self.bytes.read(&mut buffer[..length])
        }
    }

    // Goal: a source of single bytes and interruptions gives every payload. Method: all kinds, empty and long payloads.
    #[test]
    fn a_reluctant_source_is_read_in_full() {
        let payloads: Vec<Vec<u8>> = [0, 1, 7, 0, 300, 5000].map(|length| vec![9; length]).to_vec();
        for &kind in ChecksumKind::ALL {
            let bytes = stream(kind, &payloads);
            let source = Reluctant { bytes: &bytes, interrupted: false };
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

    // Goal: the reader takes one frame's bytes and no more. Method: foreign bytes behind two frames.
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

    // Goal: reading may go on behind a frame that was refused whole. Method: a validator, then a damaged payload.
    #[test]
    fn a_refused_frame_has_been_taken() {
        let payloads = [b"ok 1".to_vec(), b"too long".to_vec(), b"ok 2".to_vec()];
        let bytes = stream(ChecksumKind::None, &payloads);
        let deframer = DefaultDeframer::new().with_validator(SizeValidator::new(0, 4));
        let mut reader = StreamReader::new(&bytes[..], deframer);
        assert!(reader.read_message().unwrap().is_some());
        assert!(reader.read_message().unwrap_err().is_invalid_payload());
        assert_eq!(reader.read_message().unwrap().unwrap(), b"ok 2");
        assert!(reader.read_message().unwrap().is_none());
    }

    // Goal: the payload just read is valid although its memory is about to go. Method: a policy that fires at once.
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

    struct Text;

    impl<'a> StreamDeserialize<'a> for Text {
        type Root = &'a str;

        fn from_payload(payload: &'a [u8]) -> Result<&'a str> {
            Ok(flatbuffers::root::<&str>(payload)?)
        }
    }

    // Goal: typed reading gives verified roots and refuses what is none. Method: strings, then foreign bytes.
    #[test]
    fn typed_reading() {
        let mut writer = StreamWriter::new(Vec::new(), ChecksumKind::None);
        writer.write_batch(&["one", "two"]).unwrap();
        writer.write_payload(&[0xFF; 16]).unwrap();
        let bytes = writer.into_inner();
        let mut reader = StreamReader::new(&bytes[..], DefaultDeframer::new());
        let mut texts = reader.typed_messages::<Text>();
        assert_eq!(texts.next().unwrap(), Some("one"));
        assert_eq!(texts.next_typed().unwrap(), Some("two"));
        assert!(texts.next().unwrap_err().is_invalid_payload());
        assert_eq!(texts.next().unwrap(), None);
        let mut seen = Vec::new();
        let mut reader = StreamReader::new(&bytes[..], DefaultDeframer::new());
        let result = reader.process_typed_with_payload::<Text, _>(|text, payload| {
            seen.push((text.to_owned(), payload.len()));
            Ok(())
        });
        assert!(result.unwrap_err().is_invalid_payload());
        assert_eq!(seen.len(), 2);
    }
}
