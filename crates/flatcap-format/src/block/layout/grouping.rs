//! Groups frames. Frames that have the same source and length become the rows of a matrix. Other
//! frames are concatenated.

use std::collections::{BTreeMap, HashMap};
use std::io;

use flatcap_stream::ChecksumKind;

use super::directory::COLUMNS_MAX;
use crate::block::options::{CompressionOptions, Layout, SourceCompression};
use crate::schema::envelope;

/// Maximum number of rows of a matrix.
pub(in crate::block) const ROWS_MAX: usize = 1 << 16;
/// Maximum length of a row of a matrix, in bytes. The limit exists because every four bytes of a
/// row may become a column. Longer frames are concatenated.
const ROW_BYTES_MAX: u32 = 4 * COLUMNS_MAX;
/// Minimum number of rows of a matrix. A shape with fewer frames does not become a matrix.
const ROWS_MIN: usize = 8;
/// A source gets a separate group if it has at least this number of bytes. Only payloads of the
/// source that are not in matrices count. A query of other sources skips that group. Each group
/// takes about 100 bytes of the block.
const ONE_SOURCE_BYTES_MIN: u64 = 4 << 10;
/// Maximum number of groups of a block. Frames of further shapes are concatenated.
const GROUPS_MAX: usize = 4096;
/// The identifier in the payload of a Block.
const BLOCK: &[u8] = b"FCBK";

/// The property that all frames of a group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::block) enum GroupKey {
    /// Source and payload length.
    Rows { source: u16, row_bytes: u32 },
    /// The compression options, and the source if all frames are samples of the same source.
    Mixed { options: CompressionOptions, source: Option<u16> },
}

/// Frames that become one group of the block.
#[derive(Debug)]
pub(in crate::block) struct FrameGroup {
    pub(in crate::block) key: GroupKey,
    pub(in crate::block) options: CompressionOptions,
    /// Offsets and lengths of the payloads of these frames.
    pub(in crate::block) rows: Vec<(u32, u32)>,
    /// The group of the frame that followed the latest frame of this group.
    next: usize,
}

impl FrameGroup {
    /// Returns whether the group's frames become rows of a matrix.
    fn is_matrix(&self) -> bool {
        matches!(self.key, GroupKey::Rows { .. })
    }

    fn payload_bytes(&self) -> u64 {
        self.rows.iter().map(|(_, length)| u64::from(*length)).sum()
    }

    fn is_full(&self) -> bool {
        self.is_matrix() && self.rows.len() >= ROWS_MAX
    }
}

/// Frames of the last source that certainly belong to the last group. These frames need no lookup.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SameGroup {
    #[default]
    None,
    /// Frames with payloads of this length.
    Rows(u32),
    All,
}

/// Location and source of a frame.
#[derive(Clone, Copy)]
struct FrameInfo {
    offset: usize,
    bytes: usize,
    source: Option<u16>,
}

/// A grouper of frames. It reuses the memory of earlier blocks.
#[derive(Debug, Default)]
pub(in crate::block) struct FrameGrouper {
    by_key: HashMap<GroupKey, usize>,
    /// The groups.
    pub(in crate::block) groups: Vec<FrameGroup>,
    /// The group number of each frame.
    pub(in crate::block) order: Vec<u16>,
    /// Length of all frames with their headers, by source.
    pub(in crate::block) sources: Vec<(u16, u64)>,
    last: usize,                    // group number of the last frame
    source: Option<u16>,            // source of the last frame
    same_group: SameGroup,          // frames that go to the same group
    spare_rows: Vec<(u32, u32)>,    // the largest returned row list
    sums: BTreeMap<u16, u64>,       // length of frames outside of matrices, by source
    latest_sum: Option<(u16, u64)>, // the same for the latest source, not yet added to `sums`
}

/// Returns whether a payload has the identifier of a Block.
pub(in crate::block) fn is_block(payload: &[u8]) -> bool {
    payload.get(4..8) == Some(BLOCK)
}

/// Returns the source of a payload, or `None` if the payload is not a telemetry frame of the fixed
/// shape.
pub(in crate::block) fn source_of(payload: &[u8]) -> Option<u16> {
    envelope::split(payload).map(|(header, _)| header.source())
}

impl FrameGrouper {
    /// Assigns each frame to a group.
    ///
    /// # Errors
    /// Returns `InvalidData` if the bytes are not whole frames, a checksum is wrong, or a frame is
    /// a Block.
    pub(in crate::block) fn group(
        &mut self,
        frames: &[u8],
        checksum: ChecksumKind,
        compression: &SourceCompression,
    ) -> io::Result<()> {
        self.clear();
        let header_bytes = checksum.frame_bytes(0);
        let mut at = 0;
        while at < frames.len() {
            let (header, payload) = split(frames, at, header_bytes)?;
            let right = checksum.calculate(payload).to_le_bytes();
            // A block does not store checksums, so a wrong checksum could not be restored.
            if !header.iter().skip(4).eq(right.iter().take(header_bytes - 4)) {
                return Err(invalid(format!(
                    "the frame at offset {at} has a wrong checksum: a block consists of intact frames"
                )));
            }
            if is_block(payload) {
                return Err(nested_block(at));
            }
            let offset = at + header_bytes;
            let frame = FrameInfo { offset, bytes: payload.len(), source: source_of(payload) };
            self.add(frame, header_bytes, compression)?;
            at = offset + payload.len();
        }
        self.finish(header_bytes);
        Ok(())
    }

    fn clear(&mut self) {
        let longest = self.groups.drain(..).map(|group| group.rows).max_by_key(Vec::capacity);
        if let Some(rows) = longest.filter(|rows| rows.capacity() > self.spare_rows.capacity()) {
            self.spare_rows = rows;
        }
        self.spare_rows.clear();
        self.by_key.clear();
        self.order.clear();
        self.sources.clear();
        self.sums.clear();
        self.latest_sum = None;
        self.last = 0;
        self.same_group = SameGroup::None;
    }

    #[inline]
    fn add(
        &mut self,
        frame: FrameInfo,
        header_bytes: usize,
        compression: &SourceCompression,
    ) -> io::Result<()> {
        let row_bytes = u32::try_from(frame.bytes).map_err(io::Error::other)?;
        let offset = u32::try_from(frame.offset).map_err(io::Error::other)?;
        let is_steady = match self.same_group {
            SameGroup::None => false,
            SameGroup::Rows(bytes) => bytes == row_bytes,
            SameGroup::All => true,
        };
        if !is_steady || self.source != frame.source {
            self.last = self.group_of(frame, row_bytes, compression);
            self.source = frame.source;
            let key = self.groups.get(self.last).map(|group| group.key);
            self.same_group = match key {
                Some(GroupKey::Rows { row_bytes, .. }) => SameGroup::Rows(row_bytes),
                Some(GroupKey::Mixed { options, .. }) if options.layout == Layout::Row => SameGroup::All,
                _ => SameGroup::None,
            };
        }
        let number = self.last;
        self.order.push(u16::try_from(number).map_err(io::Error::other)?);
        let Some(group) = self.groups.get_mut(number) else { return Ok(()) };
        group.rows.push((offset, row_bytes));
        if group.is_full() {
            self.same_group = SameGroup::None;
        }
        if let (Some(source), GroupKey::Mixed { .. }) = (frame.source, group.key) {
            let frame_bytes = (header_bytes + frame.bytes) as u64;
            // Consecutive frames often have the same source, so the map is updated only when the
            // source changes.
            match &mut self.latest_sum {
                Some((running, sum)) if *running == source => *sum += frame_bytes,
                other => {
                    if let Some((source, sum)) = other.replace((source, frame_bytes)) {
                        *self.sums.entry(source).or_default() += sum;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the group of a frame. Consecutive frames often have the same shape, or the sources
    /// alternate. So the successor of the last group is tried first.
    #[inline]
    fn group_of(&mut self, frame: FrameInfo, row_bytes: u32, compression: &SourceCompression) -> usize {
        let options = compression.options_of(frame.source);
        let key = match frame.source {
            Some(source) if options.layout == Layout::Columnar && row_bytes <= ROW_BYTES_MAX => {
                GroupKey::Rows { source, row_bytes }
            }
            // In the layout `row`, the frames of all sources are in one group.
            source => {
                GroupKey::Mixed { options, source: source.filter(|_| options.layout == Layout::Columnar) }
            }
        };
        let guess = self.groups.get(self.last).map_or(0, |group| group.next);
        match self.groups.get(guess) {
            Some(group) if group.key == key && !group.is_full() => guess,
            _ => self.find_group(key, options),
        }
    }

    /// Returns the group of a shape. Creates the group if necessary.
    fn find_group(&mut self, mut key: GroupKey, options: CompressionOptions) -> usize {
        // Mixed groups and the successors of full groups may exceed this limit, because readers
        // allow 65,536 groups.
        if self.groups.len() >= GROUPS_MAX && !self.by_key.contains_key(&key) {
            key = GroupKey::Mixed { options, source: None };
        }
        let next = self.groups.len();
        let mut number = *self.by_key.entry(key).or_insert(next);
        if self.groups.get(number).is_some_and(FrameGroup::is_full) {
            self.by_key.insert(key, next);
            number = next;
        }
        if number == next {
            // A group is its own successor until another group follows.
            self.groups.push(FrameGroup { key, options, rows: std::mem::take(&mut self.spare_rows), next });
        }
        if let Some(group) = self.groups.get_mut(self.last) {
            group.next = number;
        }
        number
    }

    /// Sums up frame lengths by source, and merges small groups.
    fn finish(&mut self, header_bytes: usize) {
        if let Some((source, sum)) = self.latest_sum.take() {
            *self.sums.entry(source).or_default() += sum;
        }
        // Matrices are counted before groups are merged, because mixed groups have no source.
        // Frames of mixed groups were already counted in `add`.
        for group in &self.groups {
            if let GroupKey::Rows { source, row_bytes } = group.key {
                let sum = group.rows.len() * (header_bytes + row_bytes as usize);
                *self.sums.entry(source).or_default() += sum as u64;
            }
        }
        self.sources.extend(std::mem::take(&mut self.sums));
        self.merge_small_groups();
    }

    /// Merges the groups of each source that have too few rows for a matrix. Then merges all groups
    /// with few bytes, whatever their source is.
    fn merge_small_groups(&mut self) {
        self.merge(|group| match group.key {
            GroupKey::Rows { source, .. } if group.rows.len() < ROWS_MIN => {
                Some(GroupKey::Mixed { options: group.options, source: Some(source) })
            }
            _ => None,
        });
        self.merge(|group| match group.key {
            GroupKey::Mixed { options, source: Some(_) } if group.payload_bytes() < ONE_SOURCE_BYTES_MIN => {
                Some(GroupKey::Mixed { options, source: None })
            }
            _ => None,
        });
    }

    /// Gives groups new keys, and merges groups that are not matrices and have equal keys.
    fn merge(&mut self, new_key: impl Fn(&FrameGroup) -> Option<GroupKey>) {
        if !self.groups.iter().any(|group| new_key(group).is_some()) {
            return;
        }
        let mut numbers = Vec::with_capacity(self.groups.len());
        let mut kept: Vec<FrameGroup> = Vec::new();
        for mut group in self.groups.drain(..) {
            group.key = new_key(&group).unwrap_or(group.key);
            let same = |kept: &FrameGroup| kept.key == group.key && !group.is_matrix();
            if let Some(number) = kept.iter().position(same) {
                if let Some(kept) = kept.get_mut(number) {
                    kept.rows.append(&mut group.rows);
                }
                numbers.push(number);
            } else {
                numbers.push(kept.len());
                kept.push(group);
            }
        }
        for group in &mut kept {
            // Readers expect the payloads of such a group in the order of the frames.
            if !group.is_matrix() {
                group.rows.sort_unstable();
            }
        }
        self.groups = kept;
        for group in &mut self.order {
            let number = numbers.get(usize::from(*group)).copied().unwrap_or_default();
            *group = u16::try_from(number).unwrap_or_default();
        }
    }
}

/// Returns the header and payload of the frame at an offset.
fn split(frames: &[u8], at: usize, header_bytes: usize) -> io::Result<(&[u8], &[u8])> {
    let rest = frames.get(at..).unwrap_or_default();
    let length = rest.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    length
        .and_then(|length| rest.get(..length.checked_add(header_bytes)?)?.split_at_checked(header_bytes))
        .ok_or_else(|| invalid(format!("no whole frame at offset {at}: a block consists of whole frames")))
}

fn nested_block(at: usize) -> io::Error {
    invalid(format!("the frame at offset {at} is a block: blocks cannot be nested"))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use flatcap_stream::Framer;

    use super::*;
    use crate::block::fuzzing::round_trip;
    use crate::block::{BlockDecoder, BlockEncoder, BlockError, Codec, ColumnSelection};
    use crate::frame::{Envelope, Incomplete, Stamp};
    use crate::schema::segment as wire;

    #[test]
    fn uneven_samples_of_a_source_share_a_group() {
        // Proves that samples that fit no matrix get a group of their source if they have at least
        // 4 KiB. Proves that all other frames share one group. Proves that all frames round-trip
        // with equal sizes. Also proves that each reader refuses a group that names a source if a
        // frame of the group is not a sample of that source.
        let kind = ChecksumKind::Xxh3;
        let mut frames = Vec::new();
        for row in 0..300_u64 {
            // Sources 0 and 4 have frames of several lengths, source 4 has few samples, and all
            // frames of source 9 are equal.
            let (source, length) = match row % 3 {
                0 => (0, 100 + row),
                2 if row < 120 => (4, row / 8),
                _ => (9, 80),
            };
            let mut payload = vec![0; envelope::ENVELOPE_BYTES + usize::try_from(length).unwrap()];
            let stamp =
                Stamp { mono_ns: row, wall_ns: 7, seq: row, incomplete: Incomplete::NONE, duration_ns: 1 };
            let body = vec![(row & 0x7F) as u8; payload.len() - envelope::ENVELOPE_BYTES];
            Envelope::new(source).write(&mut payload, &stamp, &body);
            if row % 50 == 7 {
                payload[4..8].copy_from_slice(b"XXZZ");
            }
            kind.frame_and_write(&mut frames, &payload).unwrap();
        }
        let options = CompressionOptions { layout: Layout::Columnar, codec: Codec::None };
        let compression = SourceCompression { general: options, sources: vec![] };
        round_trip(&frames, kind, &compression);
        let mut encoder = BlockEncoder::new(compression);
        let payload = encoder.encode(&frames, 0, kind).unwrap().to_vec();
        let mut decoder = BlockDecoder::default();
        assert_eq!(decoder.sizes(&payload).unwrap(), encoder.sizes());
        let stated: Vec<Option<u16>> = {
            let groups = decoder.groups(&payload).unwrap();
            (0..groups.count()).map(|group| groups.source(group)).collect()
        };
        assert_eq!(stated, [Some(0), Some(9), None]);
        let block = flatbuffers::root::<wire::Block<'_>>(&payload).unwrap();
        let own = *block.groups().get(0);
        assert!(own.one_source() && own.frames() == 98, "{own:?}");
        let at = payload.windows(own.0.len()).position(|bytes| bytes == own.0).unwrap();
        let mut wrong = own;
        wrong.set_source(4);
        let mut false_statement = payload.clone();
        false_statement[at..at + own.0.len()].copy_from_slice(&wrong.0);
        let expected = BlockError::Group("has a frame that is no sample of the source that it states");
        assert_eq!(decoder.open(&false_statement, &ColumnSelection::ALL).unwrap_err(), expected);
        let mut groups = decoder.groups(&false_statement).unwrap();
        assert_eq!(groups.open(0).unwrap_err(), expected);
    }
}
