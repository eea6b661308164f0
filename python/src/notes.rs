//! Markers and gaps of recordings.

use flatcap_format::replay::{HostIdentity, RecordedHosts};
use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::{self, ListedSegment, SegmentError, SegmentHeader, SegmentReader};
use pyo3::prelude::*;

/// A marker: a note at a point in time.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Marker {
    wall_ns: i64,
    mono_ns: u64,
    /// The writer of the note: person, trigger or recorder.
    origin: &'static str,
    text: String,
    host: String,
}

/// A gap: samples that are not in the recording.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Gap {
    source: String,
    host: String,
    /// Sequence number of the first missing sample in its run.
    first: u64,
    count: u64,
    /// Names of the causes, joined by `+`.
    causes: String,
    /// Whether the samples were left out on purpose, to record the source less often.
    is_thinned: bool,
    /// Begin of the last recorded sample before the gap, in monotonic nanoseconds; 0 if there is
    /// none.
    after_mono_ns: u64,
    /// Begin of the first recorded sample after the gap, in monotonic nanoseconds.
    before_mono_ns: u64,
    /// Wall clock time at which the last sample before the gap began; `None` if there is no such
    /// sample.
    after_wall_ns: Option<i64>,
    before_wall_ns: i64,
}

/// The items to read from each segment.
pub(crate) struct NoteReading<'r> {
    pub(crate) listings: &'r [ListedSegment],
    pub(crate) hosts: &'r RecordedHosts,
    pub(crate) host: Option<&'r HostIdentity>,
}

impl NoteReading<'_> {
    /// Returns all markers, in time order. Skips segments that cannot be read.
    pub(crate) fn markers(&self) -> Result<Vec<Marker>, SegmentError> {
        let mut found = Vec::new();
        self.each(|reader, host| {
            found.extend(segment::markers(reader)?.into_iter().map(|marker| Marker {
                wall_ns: marker.wall_ns,
                mono_ns: marker.mono_ns,
                origin: marker.origin_name(),
                text: marker.text,
                host: host.to_owned(),
            }));
            Ok(())
        })?;
        found.sort_by_key(|marker| marker.wall_ns);
        Ok(found)
    }

    /// Returns the gaps of all sources, or of one source, in time order. Skips segments that cannot
    /// be read.
    pub(crate) fn gaps(&self, source: Option<&str>) -> Result<Vec<Gap>, SegmentError> {
        let mut found = Vec::new();
        self.each(|reader, host| {
            let gaps = segment::gaps(reader)?;
            let header = last_header(reader);
            for gap in gaps {
                let name = header.sources.iter().find(|known| known.id == gap.source);
                let name = name.map(|known| known.name.as_str()).unwrap_or_default();
                if source.is_some_and(|source| source != name) {
                    continue;
                }
                let after_wall_ns = (gap.after_mono_ns > 0).then(|| header.wall_ns(gap.after_mono_ns));
                found.push(Gap {
                    source: name.to_owned(),
                    host: host.to_owned(),
                    first: gap.first,
                    count: gap.count,
                    causes: GapCauseNames(gap.causes).to_string(),
                    is_thinned: gap.is_thinned(),
                    after_mono_ns: gap.after_mono_ns,
                    before_mono_ns: gap.before_mono_ns,
                    after_wall_ns,
                    before_wall_ns: header.wall_ns(gap.before_mono_ns),
                });
            }
            Ok(())
        })?;
        found.sort_by_key(|gap| gap.before_wall_ns);
        Ok(found)
    }

    /// Calls a function with each segment of the host, and the name of the host.
    fn each(
        &self,
        mut visit: impl FnMut(&mut SegmentReader, &str) -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        for listing in self.listings {
            let Ok(Some(mut reader)) = listing.open() else { continue };
            if self.host.is_some_and(|host| !host.is_of(reader.header())) {
                continue;
            }
            let host = self.hosts.name_of(reader.header().run_id).to_owned();
            visit(&mut reader, &host)?;
        }
        Ok(())
    }
}

/// Returns the header of a segment with all sources and clock pairings: the footer's copy if there
/// is a footer.
fn last_header(reader: &SegmentReader) -> &SegmentHeader {
    reader.footer().map_or(reader.header(), |footer| &footer.header)
}

#[pymethods]
impl Marker {
    fn __repr__(&self) -> String {
        format!("<flatcap.Marker {} {}: {:?}>", self.wall_ns, self.origin, self.text)
    }
}

#[pymethods]
impl Gap {
    fn __repr__(&self) -> String {
        format!("<flatcap.Gap {} of {}: {}>", self.count, self.source, self.causes)
    }
}
