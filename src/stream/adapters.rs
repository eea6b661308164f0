//! Bounds, observers and validators around any framer or deframer, by static dispatch.
//!
//! They nest: `DefaultFramer.with_validator(v).bounded(4096)` checks the length, then validates, then frames. What an
//! adapter refuses on writing has not reached the sink; what a validator refuses on reading has been taken from the source.

use std::fmt;
use std::io::{Read, Write};

use super::deframer::{Deframer, Extent, SliceDeframer, Step};
use super::error::{Error, Result};
use super::framer::{FrameHeader, Framer, SliceFramer};
use super::validation::Validator;

/// Adapters of framers, as methods.
pub trait FramerExt: Framer + Sized {
    /// Refuses payloads above `max` bytes before anything is written.
    fn bounded(self, max: usize) -> BoundedFramer<Self> {
        BoundedFramer::new(self, max)
    }

    /// Shows every payload to `callback` before it is framed.
    fn observed<C: Fn(&[u8])>(self, callback: C) -> ObserverFramer<Self, C> {
        ObserverFramer::new(self, callback)
    }

    /// Refuses payloads that `validator` refuses, before anything is written.
    fn with_validator<V: Validator>(self, validator: V) -> ValidatingFramer<Self, V> {
        ValidatingFramer::new(self, validator)
    }
}

impl<F: Framer> FramerExt for F {}

/// Adapters of deframers, as methods.
pub trait DeframerExt: Deframer + Sized {
    /// Refuses payloads above `max` bytes before memory is taken for them. For formats whose frames begin with the
    /// length in 4 bytes, which it reads itself.
    fn bounded(self, max: usize) -> BoundedDeframer<Self> {
        BoundedDeframer::new(self, max)
    }

    /// Shows every intact payload to `callback` before it is handed on.
    fn observed<C: Fn(&[u8])>(self, callback: C) -> ObserverDeframer<Self, C> {
        ObserverDeframer::new(self, callback)
    }

    /// Refuses intact payloads that `validator` refuses.
    fn with_validator<V: Validator>(self, validator: V) -> ValidatingDeframer<Self, V> {
        ValidatingDeframer::new(self, validator)
    }
}

impl<D: Deframer> DeframerExt for D {}

/// See [`FramerExt::bounded`].
#[derive(Debug, Clone, Copy)]
pub struct BoundedFramer<F> {
    inner: F,
    max: usize,
}

/// See [`DeframerExt::bounded`].
#[derive(Debug, Clone, Copy)]
pub struct BoundedDeframer<D> {
    inner: D,
    max: usize,
}

/// See [`FramerExt::observed`].
#[derive(Clone, Copy)]
pub struct ObserverFramer<F, C> {
    inner: F,
    callback: C,
}

/// See [`DeframerExt::observed`].
#[derive(Clone, Copy)]
pub struct ObserverDeframer<D, C> {
    inner: D,
    callback: C,
}

/// See [`FramerExt::with_validator`].
#[derive(Debug, Clone, Copy)]
pub struct ValidatingFramer<F, V> {
    inner: F,
    validator: V,
}

/// See [`DeframerExt::with_validator`].
#[derive(Debug, Clone, Copy)]
pub struct ValidatingDeframer<D, V> {
    inner: D,
    validator: V,
}

impl<F> BoundedFramer<F> {
    /// `inner`, for payloads of at most `max_len` bytes.
    pub const fn new(inner: F, max_len: usize) -> Self {
        Self { inner, max: max_len }
    }

    fn check(&self, payload: &[u8]) -> Result<()> {
        if payload.len() > self.max {
            return Err(Error::invalid_frame_with(
                "payload length exceeds configured limit",
                Some(payload.len()),
                None,
                Some(self.max),
            ));
        }
        Ok(())
    }
}

impl<F: Framer> Framer for BoundedFramer<F> {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        self.check(payload)?;
        self.inner.frame_and_write(writer, payload)
    }
}

impl<F: SliceFramer> SliceFramer for BoundedFramer<F> {
    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        self.check(payload)?;
        self.inner.header(payload)
    }

    #[inline]
    fn frame_into(&self, room: &mut [u8], payload: &[u8]) -> Result<usize> {
        self.check(payload)?;
        self.inner.frame_into(room, payload)
    }
}

impl<D> BoundedDeframer<D> {
    /// `inner`, for payloads of at most `max_len` bytes.
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
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        // By the header alone, so that an oversized frame is refused before it is hashed, or awaited.
        self.measure(bytes).checked()?;
        self.inner.deframe(bytes)
    }

    #[inline]
    fn measure(&self, bytes: &[u8]) -> Extent {
        match self.inner.measure(bytes) {
            Extent::Bytes(length) if length - self.inner.header_bytes() > self.max => {
                Extent::TooLong { declared: length - self.inner.header_bytes(), limit: self.max }
            }
            extent => extent,
        }
    }

    fn is_proven(&self, header: &[u8], payload: &[u8]) -> bool {
        payload.len() <= self.max && self.inner.is_proven(header, payload)
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

impl<F, C: Fn(&[u8])> ObserverFramer<F, C> {
    /// `inner`, with every payload shown to `callback` first.
    pub const fn new(inner: F, callback: C) -> Self {
        Self { inner, callback }
    }
}

impl<F: Framer, C: Fn(&[u8])> Framer for ObserverFramer<F, C> {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        (self.callback)(payload);
        self.inner.frame_and_write(writer, payload)
    }
}

impl<F: SliceFramer, C: Fn(&[u8])> SliceFramer for ObserverFramer<F, C> {
    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        (self.callback)(payload);
        self.inner.header(payload)
    }

    #[inline]
    fn frame_into(&self, room: &mut [u8], payload: &[u8]) -> Result<usize> {
        (self.callback)(payload);
        self.inner.frame_into(room, payload)
    }
}

impl<D, C: Fn(&[u8])> ObserverDeframer<D, C> {
    /// `inner`, with every intact payload shown to `callback`.
    pub const fn new(inner: D, callback: C) -> Self {
        Self { inner, callback }
    }
}

impl<D: Deframer, C: Fn(&[u8])> Deframer for ObserverDeframer<D, C> {
    #[inline]
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        let read = self.inner.read_and_deframe(reader, buffer)?;
        if let Some(length) = read {
            (self.callback)(front(buffer, length));
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
            (self.callback)(front(buffer, length));
        }
        Ok(read)
    }
}

impl<D: SliceDeframer, C: Fn(&[u8])> SliceDeframer for ObserverDeframer<D, C> {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        let step = self.inner.deframe(bytes)?;
        if let Step::Frame(frame) = step {
            (self.callback)(frame.payload());
        }
        Ok(step)
    }

    #[inline]
    fn measure(&self, bytes: &[u8]) -> Extent {
        self.inner.measure(bytes)
    }

    fn is_proven(&self, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_proven(header, payload)
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

impl<F, V: Validator> ValidatingFramer<F, V> {
    /// `inner`, for payloads that `validator` accepts.
    pub const fn new(inner: F, validator: V) -> Self {
        Self { inner, validator }
    }
}

impl<F: Framer, V: Validator> Framer for ValidatingFramer<F, V> {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        self.validator.validate(payload)?;
        self.inner.frame_and_write(writer, payload)
    }
}

impl<F: SliceFramer, V: Validator> SliceFramer for ValidatingFramer<F, V> {
    #[inline]
    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        self.validator.validate(payload)?;
        self.inner.header(payload)
    }

    #[inline]
    fn frame_into(&self, room: &mut [u8], payload: &[u8]) -> Result<usize> {
        self.validator.validate(payload)?;
        self.inner.frame_into(room, payload)
    }
}

impl<D, V: Validator> ValidatingDeframer<D, V> {
    /// `inner`, for payloads that `validator` accepts.
    pub const fn new(inner: D, validator: V) -> Self {
        Self { inner, validator }
    }
}

impl<D: Deframer, V: Validator> Deframer for ValidatingDeframer<D, V> {
    #[inline]
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        let read = self.inner.read_and_deframe(reader, buffer)?;
        if let Some(length) = read {
            self.validator.validate(front(buffer, length))?;
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
            self.validator.validate(front(buffer, length))?;
        }
        Ok(read)
    }
}

impl<D: SliceDeframer, V: Validator> SliceDeframer for ValidatingDeframer<D, V> {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        let step = self.inner.deframe(bytes)?;
        if let Step::Frame(frame) = step {
            self.validator.validate(frame.payload())?;
        }
        Ok(step)
    }

    #[inline]
    fn measure(&self, bytes: &[u8]) -> Extent {
        self.inner.measure(bytes)
    }

    fn is_proven(&self, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_proven(header, payload)
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

impl<F: fmt::Debug, C> fmt::Debug for ObserverFramer<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverFramer").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<D: fmt::Debug, C> fmt::Debug for ObserverDeframer<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverDeframer").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The payload that a deframer left in its buffer.
#[inline]
fn front(buffer: &[u8], length: usize) -> &[u8] {
    buffer.get(..length).unwrap_or_default()
}

#[cfg(all(test, feature = "xxhash"))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::stream::deframer::ChecksumDeframer;
    use crate::stream::framer::ChecksumFramer;
    use crate::stream::validation::SizeValidator;
    use crate::stream::{SliceReader, XxHash64};

    // Goal: adapters frame in memory as they do to a sink, ask each rule once, and refuse before anything is written.
    // Method: a stack of all three, by every way of framing; the same stack for reading by slice.
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
        let mut room = [0xAA; 400];
        assert_eq!(framer().frame_into(&mut room, b"payload").unwrap(), sink.len());
        assert_eq!(room[..sink.len()], sink);
        let mut frame = [&[0; 12][..], b"payload"].concat();
        framer().seal(&mut frame).unwrap();
        assert_eq!(frame, sink);
        assert_eq!(seen.replace(0), 3);

        assert!(framer().frame_into(&mut room, b"x").unwrap_err().is_invalid_payload());
        assert!(framer().frame_into(&mut room, &[0; 301]).unwrap_err().is_frame_too_large());
        assert_eq!(room[..sink.len()], sink);
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
