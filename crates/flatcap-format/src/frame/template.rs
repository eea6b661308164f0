//! Patches copies of a template, for messages that all have the same shape. Only the first message
//! is built. Later messages are patched copies.
//!
//! If all fields of a FlatBuffer are present, each build gives the same bytes except for the scalar
//! values. So each later message is a copy of the first message, with new values at the same
//! offsets.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;

use flatcap_stream::short_bytes::copy_small;

#[cfg(any(test, feature = "testing"))]
use super::fixed_bytes::FixedBytes;
use super::template_path::{self, FieldLocation};

pub use super::template_path::{Scalar, TemplateError};

/// A finished FlatBuffer in which some scalars change from message to message.
///
/// ```
/// use flatbuffers::FlatBufferBuilder;
/// use flatcap_format::frame::FrameTemplate;
/// use flatcap_format::schema::segment::{Trailer, TrailerArgs};
/// use flatcap_stream::{DefaultDeframer, DefaultFramer, SliceFramer, SliceReader};
///
/// let mut builder = FlatBufferBuilder::new();
/// builder.force_defaults(true); // otherwise a value that equals its default is omitted
/// let trailer = Trailer::create(&mut builder, &TrailerArgs::default());
/// builder.finish_minimal(trailer);
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let root = (&schema[..], "flatcap.segment.Trailer");
/// let paths = ["segment", "footer_length"];
/// let template = FrameTemplate::with_root(builder.finished_data(), root, &paths)?;
/// let segment = template.field::<u64>("segment")?;
/// let length = template.field::<u32>("footer_length")?;
///
/// let mut payload = vec![0; template.payload_bytes()];
/// let mut output = [0; 1024];
/// let mut end = 0;
/// for number in 0..3 {
///     let mut patch = template.fill(&mut payload);
///     patch.set(segment, number);
///     patch.set(length, 1000 + number as u32);
///     end += DefaultFramer.frame_into(&mut output[end..], &payload)?;
/// }
///
/// let payloads = SliceReader::new(&output[..end], DefaultDeframer::new());
/// for (number, payload) in (0..).zip(payloads) {
///     let trailer = flatbuffers::root::<Trailer>(payload?)?;
///     assert_eq!((trailer.segment(), trailer.footer_length()), (number, 1000 + number as u32));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameTemplate {
    pub(super) payload: Box<[u8]>,
    #[cfg(any(test, feature = "testing"))]
    pub(super) fixed: FixedBytes,
    /// The values that may change, in the order of their paths.
    locations: Box<[(Box<str>, FieldLocation)]>,
    /// A hash of all preceding fields of this struct. Templates with the same fingerprint are
    /// equal, and their handles are interchangeable.
    pub(super) fingerprint: u64,
}

/// A handle to a value that may change. It contains the type of the value and its offset in one
/// template.
pub struct TemplateField<T> {
    at: usize,
    fingerprint: u64,
    value: PhantomData<fn(T) -> T>,
}

/// A handle to all elements of a vector or array, or to all values of a struct. The values may
/// change from message to message, but not the number of values.
#[derive(Debug, Clone)]
pub struct TemplateList {
    pub(super) range: Range<usize>,
    pub(super) fingerprint: u64,
}

impl FrameTemplate {
    /// Creates a template from a finished FlatBuffer. `root` is the binary schema (.bfbs) of the
    /// root table and the full name of this table. `paths` are the paths of the values that change.
    /// A path has the form `field`, `structure.field`, `table.field`, `vector[2]`,
    /// `vector[2].field`, or `vector[]` for all elements.
    ///
    /// # Errors
    /// Returns `Path` for a wrong path, `Schema` for a wrong schema, and `Root` if the schema has
    /// no such table. Each field must be present in the buffer, so build the buffer with
    /// `force_defaults(true)`.
    pub fn with_root(
        finished: &[u8],
        (schema, root): (&[u8], &str),
        paths: &[&str],
    ) -> Result<Self, TemplateError> {
        let locations = template_path::resolve(finished, (schema, root), paths)?;
        let mut hasher = DefaultHasher::new();
        (finished, paths).hash(&mut hasher);
        for location in &locations {
            location.range().hash(&mut hasher);
        }
        Ok(Self {
            #[cfg(any(test, feature = "testing"))]
            fixed: FixedBytes::of(finished, super::template_view::mask(finished, &locations)),
            payload: finished.into(),
            locations: paths.iter().map(|path| Box::from(*path)).zip(locations).collect(),
            fingerprint: hasher.finish(),
        })
    }

    /// Returns the handle of a path. The template must have been created with this path.
    ///
    /// # Errors
    /// Returns `Path` if the template was created without this path, or if the value is not a `T`.
    pub fn field<T: Scalar>(&self, path: &str) -> Result<TemplateField<T>, TemplateError> {
        let location = self.location(path)?;
        if !location.holds::<T>() {
            return Err(TemplateError::type_mismatch(path, location, T::NAME));
        }
        Ok(TemplateField { at: location.range().start, fingerprint: self.fingerprint, value: PhantomData })
    }

    /// Returns the handle of a struct, or of a vector or array whose path ends in `[]`.
    ///
    /// # Errors
    /// Returns `Path` if the template does not have the path, or if the path leads to a single
    /// scalar.
    pub fn list(&self, path: &str) -> Result<TemplateList, TemplateError> {
        let location = self.location(path)?;
        if !location.is_list() {
            return Err(TemplateError::type_mismatch(
                path,
                location,
                "a struct or all elements of a vector; end the path of a vector in `[]`",
            ));
        }
        Ok(TemplateList { range: location.range(), fingerprint: self.fingerprint })
    }

    fn location(&self, path: &str) -> Result<&FieldLocation, TemplateError> {
        let known = self.locations.iter().find(|(known, _)| **known == *path);
        known.map(|(_, place)| place).ok_or_else(|| {
            TemplateError::unknown_path(path, self.locations.iter().map(|(known, _)| &**known))
        })
    }

    /// Returns the payload that is copied, also called the model.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the length of each payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Copies the model to `output`. The caller then patches the copy.
    ///
    /// # Panics
    /// Panics if `output` does not have the length of the model.
    #[inline]
    pub fn fill<'p>(&'p self, output: &'p mut [u8]) -> TemplatePatch<'p> {
        copy_small(output, &self.payload);
        TemplatePatch { template: self, payload: output }
    }

    /// Patches an earlier copy of the model in place.
    ///
    /// # Panics
    /// Panics if `payload` does not have the length of the model.
    #[inline]
    pub fn patch<'p>(&'p self, payload: &'p mut [u8]) -> TemplatePatch<'p> {
        assert!(payload.len() == self.payload.len(), "a copy of the template's payload must have its length");
        TemplatePatch { template: self, payload }
    }

    /// Returns the byte range of a field's value in the payload.
    #[inline]
    pub(super) fn value_range<T>(&self, field: TemplateField<T>) -> Range<usize> {
        assert!(field.fingerprint == self.fingerprint, "the field belongs to another template");
        field.at..field.at + size_of::<T>()
    }
}

/// A copy of the model that is being patched.
#[derive(Debug)]
pub struct TemplatePatch<'p> {
    template: &'p FrameTemplate,
    payload: &'p mut [u8],
}

impl TemplatePatch<'_> {
    /// Writes a value.
    ///
    /// # Panics
    /// Panics if the field belongs to another template.
    #[inline]
    pub fn set<T: Scalar>(&mut self, field: TemplateField<T>, value: T) {
        let range = self.template.value_range(field);
        if let Some(output) = self.payload.get_mut(range) {
            value.store(output);
        }
    }
}

impl<'p> TemplatePatch<'p> {
    /// Returns the bytes of all elements of a list or struct. The caller may overwrite these bytes.
    ///
    /// # Panics
    /// Panics if the list belongs to another template.
    #[inline]
    pub fn elements(self, list: &TemplateList) -> &'p mut [u8] {
        assert!(list.fingerprint == self.template.fingerprint, "the list belongs to another template");
        self.payload.get_mut(list.range.clone()).unwrap_or_default()
    }
}

impl<T> Clone for TemplateField<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TemplateField<T> {}

impl<T> fmt::Debug for TemplateField<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;
    use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer};
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::synthetic::{Point, PointArgs, Wide, WideArgs};

    fn built(counter: u64, wave: f64, noise: u64) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let point = Point::create(&mut builder, &PointArgs { counter, wave, noise });
        builder.finish_minimal(point);
        builder.finished_data().to_vec()
    }

    fn template(paths: &[&str]) -> FrameTemplate {
        let schema = include_bytes!("../../../../generated/synthetic.bfbs");
        FrameTemplate::new(&built(0, 0.0, 0), schema, paths).expect("the schema has the paths")
    }

    proptest! {
        // Proves that copying and patching gives the same bytes as building, with all checksums,
        // and that the values can be read back.
        #[test]
        fn patched_equals_built(counter: u64, wave: f64, noise in prop_oneof![Just(0_u64), any::<u64>()]) {
            let built = built(counter, wave, noise);
            let template = template(&["counter", "wave", "noise"]);
            let slots = ["counter", "noise"].map(|path| template.field::<u64>(path).unwrap());
            let gauge = template.field::<f64>("wave").unwrap();
            for &kind in ChecksumKind::ALL {
                let mut output = vec![0xAA; 200];
                let length = template.frame_into(&kind, &mut output, |patch| {
                    patch.set(slots[0], counter);
                    patch.set(slots[1], noise);
                    patch.set(gauge, wave);
                }).unwrap();
                let DeframeStatus::Frame(frame) = KindDeframer::new(kind).deframe(&output).unwrap() else { panic!() };
                prop_assert_eq!(frame.bytes().len(), length);
                prop_assert_eq!(frame.payload(), &built);
                let view = template.view(frame.payload()).unwrap();
                prop_assert_eq!((view.get(slots[0]), view.get(slots[1])), (counter, noise));
                prop_assert_eq!(view.get(gauge).to_bits(), wave.to_bits());
            }
        }
    }

    // Proves that a field of another template is rejected. The other template has the paths in
    // another order.
    #[test]
    #[should_panic(expected = "the field belongs to another template")]
    fn a_foreign_field_is_rejected() {
        let slot = template(&["noise", "counter"]).field::<u64>("counter").unwrap();
        let template = template(&["counter", "noise"]);
        let mut output = vec![0; template.payload_bytes()];
        template.fill(&mut output).set(slot, 1);
    }

    // Proves that every fixed byte and no other byte decides the shape. The values are adjacent,
    // scattered, between long lists, or absent. Also proves that lists are viewed in place.
    #[test]
    fn every_fixed_byte_counts() {
        let mut builder = FlatBufferBuilder::new();
        let padding = builder.create_vector(&[9_u8; 70]);
        let values = builder.create_vector(&[5_u64; 40]);
        let wide = Wide::create(&mut builder, &WideArgs { values: Some(values), padding: Some(padding) });
        builder.finish_minimal(wide);
        let schema = include_bytes!("../../../../generated/synthetic.bfbs");
        let root = (&schema[..], "flatcap.synthetic.Wide");
        let wide = |paths| FrameTemplate::with_root(builder.finished_data(), root, paths).unwrap();
        let templates = [
            (template(&["counter", "wave", "noise"]), 24),
            (template(&["noise", "counter"]), 16),
            (template(&[]), 0),
            (wide(&["values[]"]), 320),
            (wide(&["values[]", "padding[]"]), 390),
            (wide(&["values[1]", "values[3]", "values[5]", "values[7]"]), 32),
        ];
        for (template, changing) in &templates {
            let differs = |at: &usize| {
                let mut payload = template.payload().to_vec();
                payload[*at] ^= 0x40;
                template.view(&payload).is_none()
            };
            assert_eq!(
                (0..template.payload_bytes()).filter(differs).count(),
                template.payload_bytes() - changing
            );
        }

        let (template, _) = &templates[4];
        let (values, padding) = (template.list("values[]").unwrap(), template.list("padding[]").unwrap());
        let mut payload = template.payload().to_vec();
        template.patch(&mut payload).elements(&padding).fill(3);
        let view = template.view(&payload).unwrap();
        assert_eq!(view.elements(&padding), [3; 70]);
        assert_eq!(view.elements(&values), 5_u64.to_le_bytes().repeat(40));
    }

    // Proves that only the length of a trusted payload is checked.
    #[test]
    fn a_trusted_payload_has_the_length_alone() {
        let template = template(&["counter", "noise"]);
        let slot = template.field::<u64>("counter").unwrap();
        let bytes = vec![0xA5; template.payload_bytes()];
        assert!(template.view(&bytes).is_none());
        assert_eq!(template.view_trusted(&bytes).unwrap().get(slot), 0xA5A5_A5A5_A5A5_A5A5);
        for length in [0, 1, bytes.len() - 1] {
            assert!(template.view_trusted(&bytes[..length]).is_none());
        }
        assert!(template.view_trusted(&[&bytes[..], &[0]].concat()).is_none());
    }

    // Proves that a buffer that is one byte too short is rejected before anything is written.
    #[test]
    fn a_short_buffer_is_rejected() {
        let template = template(&["counter"]);
        let mut output = vec![7; template.payload_bytes() + 3];
        let result = template.frame_into(&ChecksumKind::None, &mut output, |_| panic!("nothing to patch"));
        assert!(result.unwrap_err().is_invalid_frame());
        assert!(output.iter().all(|&byte| byte == 7));
    }
}
