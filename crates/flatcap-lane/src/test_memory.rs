//! A lane in the memory of this process, for tests. Every byte is an atomic, so that a writer and a
//! reader may use the lane at the same time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "for tests: a panic is the finding")]

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::layout::{CONTROL_BYTES, LaneHeader};
use super::reader::ReaderMemory;
use super::writer::WriterMemory;

/// A change that neither the writer nor the reader makes to a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mutation {
    /// The byte changes after this number of reads of the memory.
    pub(crate) after: usize,
    /// The byte's position.
    pub(crate) at: usize,
    /// The byte's new value.
    pub(crate) value: u8,
}

/// The memory of a lane, which the writer and the reader share.
#[derive(Debug, Clone)]
pub(crate) struct TestMemory(Arc<Content>);

#[derive(Debug)]
struct Content {
    control: Vec<AtomicU64>,
    bytes: Vec<AtomicU8>, // after the control page
    readings: AtomicU64,
    mutations: Mutex<Vec<Mutation>>,
}

impl TestMemory {
    /// Creates a new lane.
    pub(crate) fn new(header: &LaneHeader, wall_offset_ns: i64) -> Self {
        let page = header.first_page(wall_offset_ns);
        let control =
            page.as_chunks().0.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect();
        let slabs = header.slabs * header.slab_bytes;
        let bytes = (0..slabs).map(|_| AtomicU8::new(0)).collect();
        Self(Arc::new(Content { control, bytes, readings: AtomicU64::new(0), mutations: Mutex::default() }))
    }

    /// Schedules these changes of bytes. The reads that trigger a change are counted from this call
    /// on.
    pub(crate) fn mutate(&self, mutations: impl IntoIterator<Item = Mutation>) {
        self.0.readings.store(0, Ordering::Relaxed);
        *self.0.mutations.lock().unwrap() = mutations.into_iter().collect();
        self.apply_mutations();
    }

    fn apply_mutations(&self) {
        let readings = self.0.readings.fetch_add(1, Ordering::Relaxed);
        let due = |mutation: &&Mutation| mutation.after as u64 == readings;
        for mutation in self.0.mutations.lock().unwrap().iter().filter(due) {
            self.store(mutation.at % self.length(), mutation.value);
        }
    }

    /// Returns the length of the lane, in bytes.
    pub(crate) fn length(&self) -> usize {
        CONTROL_BYTES + self.0.bytes.len()
    }

    fn store(&self, at: usize, value: u8) {
        if let Some(byte) = at.checked_sub(CONTROL_BYTES) {
            return self.0.bytes[byte].store(value, Ordering::Relaxed);
        }
        let word = &self.0.control[at / 8];
        let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
        bytes[at % 8] = value;
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

impl WriterMemory for TestMemory {
    fn number(&self, at: usize) -> &AtomicU64 {
        &self.0.control[at / 8]
    }

    fn write<R>(&mut self, at: usize, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let place = &self.0.bytes[at - CONTROL_BYTES..][..length];
        let mut bytes: Vec<u8> = place.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        let result = fill(&mut bytes);
        for (byte, value) in place.iter().zip(bytes) {
            byte.store(value, Ordering::Relaxed);
        }
        result
    }
}

impl ReaderMemory for TestMemory {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if offset + bytes.len() > self.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if offset < CONTROL_BYTES {
            for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0.control[offset / 8..]) {
                *place = word.load(Ordering::Relaxed).to_le_bytes();
            }
        } else {
            for (place, byte) in bytes.iter_mut().zip(&self.0.bytes[offset - CONTROL_BYTES..]) {
                *place = byte.load(Ordering::Relaxed);
            }
        }
        self.apply_mutations();
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if offset.is_multiple_of(8) && bytes.len().is_multiple_of(8) && offset < CONTROL_BYTES {
            for (word, number) in self.0.control[offset / 8..].iter().zip(bytes.as_chunks().0) {
                word.store(u64::from_le_bytes(*number), Ordering::Relaxed);
            }
            return Ok(());
        }
        for (at, value) in (offset..).zip(bytes) {
            self.store(at, *value);
        }
        Ok(())
    }
}
