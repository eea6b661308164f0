//! Adapters that add limits, observers and validators to any framer or deframer, by static
//! dispatch.
//!
//! Adapters nest. For example, `DefaultFramer.with_validator(v).bounded(4096)` checks the length,
//! then validates, then frames. A payload that is rejected on writing does not reach the sink. If a
//! validator rejects a payload on reading, the payload has already been consumed from the source.

use std::fmt;
use std::io::{Read, Write};

use super::deframer::{DeframeStatus, Deframer, FrameLength, SliceDeframer};
use super::error::{Error, Result};
use super::framer::{FrameHeader, Framer, SliceFramer};
use super::validation::Validator;

/// Methods that add adapters to framers.
pub trait FramerExt: Framer + Sized {
    /// Rejects payloads that are longer than `max` bytes before anything is written.
    fn bounded(self, max: usize) -> BoundedFramer<Self> {
        BoundedFramer::new(self, max)
    }

    /// Calls `callback` with every payload before it is framed.
    fn observed<C: Fn(&[u8])>(self, callback: C) -> ObserverFramer<Self, C> {
        ObserverFramer::new(self, callback)
    }

    /// Rejects each payload that `validator` rejects, before anything is written.
    fn with_validator<V: Validator>(self, validator: V) -> ValidatingFramer<Self, V> {
        ValidatingFramer::new(self, validator)
    }
}

impl<F: Framer> FramerExt for F {}

/// Methods that add adapters to deframers.
pub trait DeframerExt: Deframer + Sized {
    /// Rejects payloads that are longer than `max` bytes before memory is allocated for them. Works
    /// only for formats whose frames begin with a 4-byte length, because the adapter itself reads
    /// this length.
    fn bounded(self, max: usize) -> BoundedDeframer<Self> {
        BoundedDeframer::new(self, max)
    }

    /// Calls `callback` with every intact payload before it is returned.
    fn observed<C: Fn(&[u8])>(self, callback: C) -> ObserverDeframer<Self, C> {
        ObserverDeframer::new(self, callback)
    }

    /// Rejects intact payloads that `validator` rejects.
    fn with_validator<V: Validator>(self, validator: V) -> ValidatingDeframer<Self, V> {
        ValidatingDeframer::new(self, validator)
    }
}

impl<D: Deframer> DeframerExt for D {}

/// Inspects each payload on its way through a framer or deframer, and may reject the payload.
pub trait PayloadCheck {
    /// Accepts or rejects a payload.
    ///
    /// # Errors
    /// `InvalidFrame`, `ValidationFailed`.
    fn check(&self, payload: &[u8]) -> Result<()>;
}

/// A framer that checks every payload before it is framed.
#[derive(Debug, Clone, Copy)]
pub struct CheckedFramer<F, P> {
    inner: F,
    payload: P,
}

/// A deframer that checks every intact payload before it is returned.
#[derive(Debug, Clone, Copy)]
pub struct CheckedDeframer<D, P> {
    inner: D,
    payload: P,
}

/// See [`FramerExt::bounded`].
pub type BoundedFramer<F> = CheckedFramer<F, LengthLimit>;
/// See [`FramerExt::observed`].
pub type ObserverFramer<F, C> = CheckedFramer<F, Observer<C>>;
/// See [`FramerExt::with_validator`].
pub type ValidatingFramer<F, V> = CheckedFramer<F, Validation<V>>;
/// See [`DeframerExt::observed`].
pub type ObserverDeframer<D, C> = CheckedDeframer<D, Observer<C>>;
/// See [`DeframerExt::with_validator`].
pub type ValidatingDeframer<D, V> = CheckedDeframer<D, Validation<V>>;

/// A check that rejects payloads that are longer than a limit.
#[derive(Debug, Clone, Copy)]
pub struct LengthLimit(usize);

impl PayloadCheck for LengthLimit {
    #[inline]
    fn check(&self, payload: &[u8]) -> Result<()> {
        if payload.len() > self.0 {
            return Err(Error::invalid_frame_with(
                "payload length exceeds configured limit",
                Some(payload.len()),
                None,
                Some(self.0),
            ));
        }
        Ok(())
    }
}

/// A check that calls a function with each payload and accepts the payload.
#[derive(Clone, Copy)]
pub struct Observer<C>(C);

impl<C: Fn(&[u8])> PayloadCheck for Observer<C> {
    #[inline]
    fn check(&self, payload: &[u8]) -> Result<()> {
        (self.0)(payload);
        Ok(())
    }
}

impl<C> fmt::Debug for Observer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// A check that rejects payloads that a validator rejects.
#[derive(Debug, Clone, Copy)]
pub struct Validation<V>(V);

impl<V: Validator> PayloadCheck for Validation<V> {
    #[inline]
    fn check(&self, payload: &[u8]) -> Result<()> {
        self.0.validate(payload)
    }
}

impl<F> BoundedFramer<F> {
    /// Limits the payloads of `inner` to `max_len` bytes.
    pub const fn new(inner: F, max_len: usize) -> Self {
        Self { inner, payload: LengthLimit(max_len) }
    }
}

impl<F, C: Fn(&[u8])> ObserverFramer<F, C> {
    /// Calls `callback` with every payload before `inner` frames it.
    pub const fn new(inner: F, callback: C) -> Self {
        Self { inner, payload: Observer(callback) }
    }
}

impl<F, V: Validator> ValidatingFramer<F, V> {
    /// Passes only the payloads that `validator` accepts to `inner`.
    pub const fn new(inner: F, validator: V) -> Self {
        Self { inner, payload: Validation(validator) }
    }
}

impl<F: Framer, P: PayloadCheck> Framer for CheckedFramer<F, P> {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        self.payload.check(payload)?;
        self.inner.frame_and_write(writer, payload)
    }
}

impl<F: SliceFramer, P: PayloadCheck> SliceFramer for CheckedFramer<F, P> {
    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        self.payload.check(payload)?;
        self.inner.header(payload)
    }

    #[inline]
    fn frame_into(&self, output: &mut [u8], payload: &[u8]) -> Result<usize> {
        self.payload.check(payload)?;
        self.inner.frame_into(output, payload)
    }
}

impl<D, C: Fn(&[u8])> ObserverDeframer<D, C> {
    /// Calls `callback` with every intact payload that `inner` returns.
    pub const fn new(inner: D, callback: C) -> Self {
        Self { inner, payload: Observer(callback) }
    }
}

impl<D, V: Validator> ValidatingDeframer<D, V> {
    /// Returns only those payloads of `inner` that `validator` accepts.
    pub const fn new(inner: D, validator: V) -> Self {
        Self { inner, payload: Validation(validator) }
    }
}

impl<D: Deframer, P: PayloadCheck> Deframer for CheckedDeframer<D, P> {
    #[inline]
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        let read = self.inner.read_and_deframe(reader, buffer)?;
        if let Some(length) = read {
            self.payload.check(front(buffer, length))?;
        }
        Ok(read)
    }

    #[inline]
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        let read = self.inner.read_after_length(reader, buffer, payload_len)?;
        if let Some(length) = read {
            self.payload.check(front(buffer, length))?;
        }
        Ok(read)
    }
}

impl<D: SliceDeframer, P: PayloadCheck> SliceDeframer for CheckedDeframer<D, P> {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        let step = self.inner.deframe(bytes)?;
        if let DeframeStatus::Frame(frame) = step {
            self.payload.check(frame.payload())?;
        }
        Ok(step)
    }

    #[inline]
    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        self.inner.frame_length(bytes)
    }

    fn checksum_matches(&self, header: &[u8], payload: &[u8]) -> bool {
        self.inner.checksum_matches(header, payload)
    }

    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn checksum_bytes(&self) -> usize {
        self.inner.checksum_bytes()
    }
}

/// See [`DeframerExt::bounded`].
#[derive(Debug, Clone, Copy)]
pub struct BoundedDeframer<D> {
    inner: D,
    max: usize,
}

impl<D> BoundedDeframer<D> {
    /// Limits the payloads of `inner` to `max_len` bytes.
    pub const fn new(inner: D, max_len: usize) -> Self {
        Self { inner, max: max_len }
    }
}

impl<D: Deframer> Deframer for BoundedDeframer<D> {
    #[inline]
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        if payload_len > self.max {
            return Err(Error::frame_too_long(payload_len, self.max));
        }
        self.inner.read_after_length(reader, buffer, payload_len)
    }
}

impl<D: SliceDeframer> SliceDeframer for BoundedDeframer<D> {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        // Checks only the header. So an oversized frame is rejected before its payload is hashed
        // and before the decoder waits for the rest of its bytes.
        self.frame_length(bytes).checked()?;
        self.inner.deframe(bytes)
    }

    #[inline]
    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        match self.inner.frame_length(bytes) {
            FrameLength::Bytes(length) if length - self.inner.header_bytes() > self.max => {
                FrameLength::TooLong { declared: length - self.inner.header_bytes(), limit: self.max }
            }
            extent => extent,
        }
    }

    fn checksum_matches(&self, header: &[u8], payload: &[u8]) -> bool {
        payload.len() <= self.max && self.inner.checksum_matches(header, payload)
    }

    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn checksum_bytes(&self) -> usize {
        self.inner.checksum_bytes()
    }
}

/// Returns the payload at the start of a deframer's buffer.
#[inline]
fn front(buffer: &[u8], length: usize) -> &[u8] {
    buffer.get(..length).unwrap_or_default()
}

#[cfg(all(test, feature = "xxhash"))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::deframer::ChecksumDeframer;
    use crate::framer::ChecksumFramer;
    use crate::validation::SizeValidator;
    use crate::{SliceReader, XxHash64};

    // Proves that adapters give the same frames in memory as in a sink. Proves that they apply each
    // rule exactly once, and reject a payload before anything is written. Proves the same for
    // payloads that are read from a slice.
    #[test]
    fn adapters_in_memory() {
        let seen = Cell::new(0);
        let watch = |_: &[u8]| seen.set(seen.get() + 1);
        let framer = || {
            ChecksumFramer::new(XxHash64)
                .with_validator(SizeValidator::new(2, 9))
                .bounded(300)
                .observed(watch)
        };
        let mut sink = Vec::new();
        framer().frame_and_write(&mut sink, b"payload").unwrap();
        let mut output = [0xAA; 400];
        assert_eq!(framer().frame_into(&mut output, b"payload").unwrap(), sink.len());
        assert_eq!(output[..sink.len()], sink);
        let mut frame = [&[0; 12][..], b"payload"].concat();
        framer().frame_in_place(&mut frame).unwrap();
        assert_eq!(frame, sink);
        assert_eq!(seen.replace(0), 3);

        assert!(framer().frame_into(&mut output, b"x").unwrap_err().is_invalid_payload());
        assert!(framer().frame_into(&mut output, &[0; 301]).unwrap_err().is_frame_too_large());
        assert_eq!(output[..sink.len()], sink);
        seen.set(0);

        let deframer = || {
            ChecksumDeframer::new(XxHash64)
                .with_validator(SizeValidator::new(2, 9))
                .bounded(300)
                .observed(watch)
        };
        assert_eq!(SliceReader::new(&sink, deframer()).next().unwrap().unwrap(), b"payload");
        assert_eq!(seen.replace(0), 1);
        ChecksumFramer::new(XxHash64).frame_and_write(&mut sink, &[1; 301]).unwrap();
        let mut reader = SliceReader::new(&sink, deframer());
        assert!(reader.next().unwrap().is_ok());
        assert!(reader.next().unwrap().unwrap_err().is_frame_too_large());
    }
}
