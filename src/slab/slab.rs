//! A pooled buffer of whole frames, and what is in it.

/// Most runs that one slab can tell apart; a slab with more is handed over early. A run ends where a source's
/// numbers jump, so this bounds how many losses one slab can show, not how many frames it holds.
const RUNS_MAX: usize = 256;

/// Readings of one source with consecutive sequence numbers, all in one slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The source's id.
    pub source: u16,
    /// First sequence number.
    pub first_seq: u64,
    /// Last sequence number, at least the first.
    pub last_seq: u64,
    /// Begin of the first reading, in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// Begin of the last reading, in monotonic nanoseconds.
    pub last_mono_ns: u64,
}

impl Run {
    /// How many readings.
    pub fn count(&self) -> u64 {
        self.last_seq - self.first_seq + 1
    }
}

/// A buffer of whole frames of one group.
#[derive(Debug)]
pub struct Slab {
    buffer: Box<[u8]>,
    length: usize, // <= buffer.len()
    runs: Vec<Run>,
    /// When it was handed over, in monotonic nanoseconds.
    pub handed_over_ns: u64,
}

impl Slab {
    /// An empty slab. The kernel gives the memory when it is first written.
    pub fn new(bytes: usize) -> Self {
        Self {
            buffer: vec![0; bytes].into_boxed_slice(),
            length: 0,
            runs: Vec::with_capacity(RUNS_MAX),
            handed_over_ns: 0,
        }
    }

    /// The frames, one after the other.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }

    /// What is in it.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Size of its buffer.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it holds no frame.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Begin of the first reading in it; none when empty.
    pub fn first_mono_ns(&self) -> Option<u64> {
        self.runs.first().map(|run| run.first_mono_ns)
    }

    /// Forgets the frames, keeps the memory.
    pub fn clear(&mut self) {
        self.length = 0;
        self.runs.clear();
    }

    /// Room for one more frame of `bytes`, to be filled and then kept by [`commit`](Self::commit); none if the slab
    /// is full.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.runs.len() == RUNS_MAX {
            return None;
        }
        self.buffer.get_mut(self.length..self.length.checked_add(bytes)?)
    }

    /// Keeps the frame of `bytes` that was filled behind the last one.
    #[inline]
    pub(super) fn commit(&mut self, bytes: usize, source: u16, seq: u64, mono_ns: u64) {
        self.length += bytes;
        // Few sources share a slab and the latest runs stand last, so a short walk finds the open run.
        let open = self.runs.iter_mut().rev().find(|run| run.source == source);
        match open {
            Some(run) if run.last_seq + 1 == seq => {
                run.last_seq = seq;
                run.last_mono_ns = mono_ns;
            }
            _ => self.runs.push(Run {
                source,
                first_seq: seq,
                last_seq: seq,
                first_mono_ns: mono_ns,
                last_mono_ns: mono_ns,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(slab: &mut Slab, source: u16, seq: u64) -> bool {
        if slab.reserve(8).is_none() {
            return false;
        }
        slab.commit(8, source, seq, 1000 + seq);
        true
    }

    // Goal: runs tell exactly which numbers are in a slab. Method: two interleaved sources, one with a jump.
    #[test]
    fn runs_break_at_jumps_only() {
        let mut slab = Slab::new(1024);
        for (source, seq) in [(1, 5), (2, 0), (1, 6), (2, 1), (1, 9), (2, 2)] {
            assert!(append(&mut slab, source, seq));
        }
        let seen: Vec<_> = slab.runs().iter().map(|run| (run.source, run.first_seq, run.last_seq)).collect();
        assert_eq!(seen, [(1, 5, 6), (2, 0, 2), (1, 9, 9)]);
        assert_eq!(slab.bytes().len(), 48);
        assert_eq!(slab.first_mono_ns(), Some(1005));
        slab.clear();
        assert!(slab.is_empty() && slab.runs().is_empty());
    }

    // Goal: a slab is full by bytes or by runs, and never grows. Method: fill it both ways.
    #[test]
    fn a_slab_is_full_by_bytes_or_runs() {
        let mut slab = Slab::new(20);
        assert!(append(&mut slab, 1, 0) && append(&mut slab, 1, 1) && !append(&mut slab, 1, 2));
        let mut slab = Slab::new(1 << 20);
        let jumps = (0..1000).take_while(|k| append(&mut slab, 1, k * 2)).count();
        assert_eq!(jumps, RUNS_MAX);
        assert!(slab.runs.capacity() == RUNS_MAX, "the list of runs never grows");
    }
}
