//! Control frames, which a recorder writes between samples: gaps, clock pairings, markers and
//! attachments.

use super::payload_codec::{fixed_size_builder, pairing_from_wire, pairing_to_wire, verified};
use crate::host::ClockReading;
use crate::schema::segment as wire;

pub use wire::{ClockCause, MarkerOrigin};

/// Lost samples of one source, that is, samples that were begun and are not in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The source's id.
    pub source: u16,
    /// Sequence number of the first lost sample.
    pub first: u64,
    /// Number of lost samples.
    pub count: u64,
    /// Causes, as a set of bits (`GapCause` in schemas/segment.fbs).
    pub causes: u32,
    /// Start time of the last recorded sample before the gap, in monotonic nanoseconds, or 0 if
    /// there is no such sample.
    pub after_mono_ns: u64,
    /// Start time of the first recorded sample after the gap, in monotonic nanoseconds. If there is
    /// no such sample, the end of the recording.
    pub before_mono_ns: u64,
}

impl Gap {
    /// Returns whether the samples were left out on purpose, because the source is recorded less
    /// often. Samples that were left out on purpose do not count as lost. If the gap also has
    /// another cause, its samples count as lost.
    pub fn is_thinned(&self) -> bool {
        self.causes == wire::GapCause::Thinned.bits()
    }

    /// Returns the payload of the Gap frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let root = wire::Gap::create(
            &mut builder,
            &wire::GapArgs {
                source: self.source,
                first: self.first,
                count: self.count,
                causes: wire::GapCause::from_bits_retain(self.causes),
                after_mono_ns: self.after_mono_ns,
                before_mono_ns: self.before_mono_ns,
            },
        );
        builder.finish(root, Some("FCGP"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a Gap frame. Returns `None` if the payload is malformed or its sequence
    /// numbers exceed `u64::MAX`.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let gap = verified::<wire::Gap<'_>>(payload)?;
        gap.first().checked_add(gap.count())?;
        Some(Self {
            source: gap.source(),
            first: gap.first(),
            count: gap.count(),
            causes: gap.causes().bits(),
            after_mono_ns: gap.after_mono_ns(),
            before_mono_ns: gap.before_mono_ns(),
        })
    }
}

/// A new clock pairing, valid from its monotonic time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSync {
    /// The values of the clocks, which were read together.
    pub clocks: ClockReading,
    /// The reason why the clocks were read again.
    pub cause: ClockCause,
}

impl ClockSync {
    /// Returns the payload of the `ClockSync` frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let args = wire::ClockSyncArgs { clocks: Some(&pairing_to_wire(&self.clocks)), cause: self.cause };
        let root = wire::ClockSync::create(&mut builder, &args);
        builder.finish(root, Some("FCCS"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a `ClockSync` frame. Returns `None` if the payload is malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let sync = verified::<wire::ClockSync<'_>>(payload)?;
        Some(Self { clocks: pairing_from_wire(sync.clocks()), cause: sync.cause() })
    }
}

/// A note at a point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The marker's time, in monotonic nanoseconds.
    pub mono_ns: u64,
    /// The wall time of the marker, in nanoseconds since 1970, UTC.
    pub wall_ns: i64,
    /// The person or program that set the marker.
    pub origin: MarkerOrigin,
    /// The note.
    pub text: String,
}

impl Marker {
    /// Returns the name that outputs print for the origin.
    pub fn origin_name(&self) -> &'static str {
        match self.origin {
            MarkerOrigin::Person => "person",
            MarkerOrigin::Trigger => "trigger",
            MarkerOrigin::Recorder => "recorder",
            _ => "unknown",
        }
    }

    /// Returns the payload of the Marker frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let text = builder.create_string(&self.text);
        let root = wire::Marker::create(
            &mut builder,
            &wire::MarkerArgs {
                mono_ns: self.mono_ns,
                wall_ns: self.wall_ns,
                origin: self.origin,
                text: Some(text),
            },
        );
        builder.finish(root, Some("FCMK"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a Marker frame. Returns `None` if the payload is malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let marker = verified::<wire::Marker<'_>>(payload)?;
        Some(Self {
            mono_ns: marker.mono_ns(),
            wall_ns: marker.wall_ns(),
            origin: marker.origin(),
            text: marker.text().to_owned(),
        })
    }
}

/// A named file that belongs to the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The attachment's name.
    pub name: String,
    /// The MIME type of the attached file. The string is empty if the type is not known.
    pub media_type: String,
    /// Time at which the file was attached, in monotonic nanoseconds.
    pub mono_ns: u64,
    /// Time at which the file was attached, in wall nanoseconds.
    pub wall_ns: i64,
    /// The attachment's bytes.
    pub content: Vec<u8>,
}

impl Attachment {
    /// Returns the payload of the Attachment frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let name = builder.create_string(&self.name);
        let media_type = builder.create_string(&self.media_type);
        let content = builder.create_vector(&self.content);
        let root = wire::Attachment::create(
            &mut builder,
            &wire::AttachmentArgs {
                name: Some(name),
                media_type: Some(media_type),
                mono_ns: self.mono_ns,
                wall_ns: self.wall_ns,
                content: Some(content),
            },
        );
        builder.finish(root, Some("FCAT"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of an Attachment frame. Returns `None` if the payload is malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let attachment = verified::<wire::Attachment<'_>>(payload)?;
        Some(Self {
            name: attachment.name().to_owned(),
            media_type: attachment.media_type().unwrap_or_default().to_owned(),
            mono_ns: attachment.mono_ns(),
            wall_ns: attachment.wall_ns(),
            content: attachment.content().bytes().to_vec(),
        })
    }
}

/// Counts the lost samples in these gaps.
pub(in crate::segment) fn lost_samples(gaps: &[Gap]) -> u64 {
    gaps.iter().filter(|gap| !gap.is_thinned()).fold(0, |sum, gap| sum.saturating_add(gap.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that control frames are read back as written, with extreme values.
    #[test]
    fn control_frames_are_read_back() {
        for value in [0, 1, u64::MAX / 2] {
            let gap = Gap {
                source: 3,
                first: value,
                count: value,
                causes: 0b1001,
                after_mono_ns: value,
                before_mono_ns: value,
            };
            assert_eq!(Gap::decode(&gap.encode()), Some(gap));
            let wall_ns = -1 - value.cast_signed();
            let clocks = ClockReading { mono_ns: value, boot_ns: value + 1, wall_ns };
            let sync = ClockSync { clocks, cause: ClockCause::Resumed };
            assert_eq!(ClockSync::decode(&sync.encode()), Some(sync));
            let text = "x".repeat(usize::try_from(value.min(100)).unwrap());
            let marker =
                Marker { mono_ns: value, wall_ns, origin: MarkerOrigin::Trigger, text: text.clone() };
            assert_eq!(Marker::decode(&marker.encode()), Some(marker));
            let attachment = Attachment {
                name: "flatcap.toml".into(),
                media_type: "application/toml".into(),
                mono_ns: value,
                wall_ns,
                content: text.into_bytes(),
            };
            assert_eq!(Attachment::decode(&attachment.encode()), Some(attachment));
        }
        let beyond =
            Gap { source: 0, first: u64::MAX, count: 2, causes: 0, after_mono_ns: 0, before_mono_ns: 0 };
        assert_eq!(Gap::decode(&beyond.encode()), None, "numbers beyond the last one");
        assert_eq!(ClockSync::decode(&beyond.encode()[..20]), None);
    }
}
