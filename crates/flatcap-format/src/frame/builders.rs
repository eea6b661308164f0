//! FlatBuffer builders, one for each size class. All payloads of a group reuse these builders.

use std::fmt;

use flatbuffers::FlatBufferBuilder;

/// Initial capacity of each class, in bytes. A builder that outgrows its class keeps the larger
/// buffer, so it grows only once. Because of the classes, small payloads stay in a few cache lines
/// even if other payloads are large.
const CLASS_BYTES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

/// One builder for each size class. The builders are allocated once and reused.
pub struct Builders {
    classes: [FlatBufferBuilder<'static>; CLASS_BYTES.len()],
}

impl fmt::Debug for Builders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builders").field("class_bytes", &CLASS_BYTES).finish_non_exhaustive()
    }
}

impl Default for Builders {
    fn default() -> Self {
        Self {
            classes: CLASS_BYTES.map(|bytes| {
                let mut builder = FlatBufferBuilder::with_capacity(bytes);
                // Every scalar is written, so that all frames of a source have one shape.
                builder.force_defaults(true);
                builder
            }),
        }
    }
}

impl Builders {
    /// Number of builders of one group.
    pub const COUNT: usize = CLASS_BYTES.len();
    /// Initial memory of the builders of one group, in bytes.
    pub const BYTES: usize = CLASS_BYTES[0] + CLASS_BYTES[1] + CLASS_BYTES[2];

    /// Returns an empty builder for a payload whose length is about `bytes`. The caller passes the
    /// length of the source's last payload.
    #[inline]
    pub fn for_size(&mut self, bytes: usize) -> &mut FlatBufferBuilder<'static> {
        let [small, medium, large] = &mut self.classes;
        let builder = if bytes <= CLASS_BYTES[0] {
            small
        } else if bytes <= CLASS_BYTES[1] {
            medium
        } else {
            large
        };
        // A source that patches its own payload does not use the builder, so the builder is still
        // empty.
        if !builder.unfinished_data().is_empty() {
            builder.reset();
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a reused builder is empty and still writes default values.
    #[test]
    fn builders_come_back_empty_and_force_defaults() {
        let mut builders = Builders::default();
        let mut lengths = Vec::new();
        for value in [7_u64, 0] {
            let builder = builders.for_size(100);
            let start = builder.start_table();
            builder.push_slot(4, value, 0);
            let root = builder.end_table(start);
            builder.finish_minimal(root);
            lengths.push(builder.finished_data().len());
        }
        assert_eq!(lengths[0], lengths[1]);
    }
}
