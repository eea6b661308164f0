//! Records like those of a service's log: a line of text, then binary padding to a fixed size. The
//! bytes are the same in every run.
//!
//! They are as compressible as real logs, which zstd:3 compresses five to fifteen times (the
//! collections of loghub). The tables of the benches that use them show the ratio of each bare
//! codec.

/// Consecutive records of one size.
pub struct Records {
    bytes: Vec<u8>,
    size: usize,
}

/// Pseudo-random numbers, the same in every run (SplitMix64, by Steele, Lea and Flood).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; the bias of the remainder does not matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of a normal distribution with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

impl Records {
    /// Creates `count` records of `size` bytes.
    pub fn new(count: usize, size: usize) -> Self {
        let mut random = Random(size as u64);
        let mut bytes = Vec::with_capacity(count * size);
        let mut now_us = 1_763_774_000_000_000;
        for number in 0..count {
            now_us += 100 * (2 + random.below(16));
            let end = bytes.len() + size;
            append_line(&mut bytes, now_us, number, &mut random);
            bytes.truncate(end);
            append_padding(&mut bytes, end, now_us, &mut random);
        }
        Self { bytes, size }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.size)
    }

    /// All records as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The sum of [`sum_of`] over all records.
    pub fn sum(&self) -> u64 {
        self.iter().fold(0, |sum, record| sum_of(record).wrapping_add(sum))
    }
}

/// Returns a cheap value that differs between records.
#[inline]
pub fn sum_of(record: &[u8]) -> u64 {
    let front = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let back = record.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    front.wrapping_add(back.rotate_left(17)).wrapping_add(record.len() as u64)
}

/// Appends a line of about 80 bytes: time, level, component, and one of some sentences with
/// numbers.
fn append_line(bytes: &mut Vec<u8>, now_us: u64, number: usize, random: &mut Random) {
    const LEVELS: [&str; 8] = ["INFO", "INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN"];
    const PARTS: [&str; 6] = ["http", "store", "queue", "auth", "cache", "raft"];
    let level = LEVELS[random.below(8) as usize];
    let part = PARTS[random.below(6) as usize];
    let (seconds, micros) = (now_us / 1_000_000 % 86_400, now_us % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let what = match random.below(5) {
        0 => format!("GET /v1/items/{} 200 in {} us", random.below(500), 10 * (8 + random.below(60))),
        1 => format!("connection from 10.0.{}.{} accepted", random.below(4), random.below(64)),
        2 => format!("segment {} flushed, {} entries", number / 16, 4 * (25 + random.below(40))),
        3 => format!("lease of worker-{:02} renewed until +{} ms", random.below(32), 5000),
        _ => format!("batch of {} committed at index {number}", 1 + random.below(64)),
    };
    let line = format!("2026-11-22T{hour:02}:{minute:02}:{second:02}.{micros:06}Z {level} {part}: {what}\n");
    bytes.extend_from_slice(line.as_bytes());
}

/// Appends entries of 16 bytes up to `end`: a counter, one of a few ids, flags, and a value that
/// changes now and then.
fn append_padding(bytes: &mut Vec<u8>, end: usize, now_us: u64, random: &mut Random) {
    let mut entry = [0; 16];
    let mut counter = now_us as u16;
    while bytes.len() < end {
        let draw = random.next();
        counter = counter.wrapping_add(1);
        entry[..2].copy_from_slice(&counter.to_le_bytes());
        entry[4] = (draw >> 8 & draw >> 16 & 0x03) as u8;
        if draw % 6 == 0 {
            entry[8] = (draw >> 24) as u8;
        }
        let room = end - bytes.len();
        bytes.extend_from_slice(&entry[..room.min(16)]);
    }
}
