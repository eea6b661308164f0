//! Views: payloads of a template's shape, read in place. Also frames of templates. Only benches and
//! tests use these.
//!
//! A payload that equals the template everywhere except in the values that change has the
//! template's shape, so it needs no verification and its fields have the template's offsets.

use flatbuffers_reflection::reflection::root_as_schema;
use flatcap_stream::{Error, SliceFramer};

use super::template::{FrameTemplate, TemplateError, TemplateField, TemplateList, TemplatePatch};
use super::template_path::{FieldLocation, Scalar};

/// Returns a mask of a template's payload: 0xFF for each fixed byte, and 0 for each byte of a value
/// that changes.
pub(super) fn mask(finished: &[u8], locations: &[FieldLocation]) -> Vec<u8> {
    let mut mask = vec![0xFF; finished.len()];
    for location in locations {
        if let Some(changing) = mask.get_mut(location.range()) {
            changing.fill(0);
        }
    }
    mask
}

impl FrameTemplate {
    /// As [`with_root`](Self::with_root), for the schema's `root_type`.
    ///
    /// # Errors
    /// The same errors as [`with_root`](Self::with_root); `Schema` if the schema has no root type.
    pub fn new(finished: &[u8], schema: &[u8], paths: &[&str]) -> Result<Self, TemplateError> {
        let parsed = root_as_schema(schema).map_err(|error| TemplateError::Schema(Some(error)))?;
        let root = parsed.root_table().ok_or(TemplateError::Schema(None))?;
        Self::with_root(finished, (schema, root.name()), paths)
    }

    /// Writes a frame with a patched copy to the start of `output` and returns its length.
    ///
    /// # Errors
    /// The errors of the framer; `InvalidFrame` if `output` is too short.
    #[inline]
    pub fn frame_into<F: SliceFramer>(
        &self,
        framer: &F,
        output: &mut [u8],
        patch: impl FnOnce(&mut TemplatePatch<'_>),
    ) -> flatcap_stream::Result<usize> {
        let header_bytes = framer.header_bytes();
        let needed = header_bytes + self.payload.len();
        let available = output.len();
        let Some(frame) = output.get_mut(..needed) else { return Err(buffer_too_small(needed, available)) };
        let (_, payload) = frame.split_at_mut(header_bytes);
        patch(&mut self.fill(payload));
        framer.frame_in_place(frame)?;
        Ok(needed)
    }

    /// Returns the values of a payload of this shape, or `None` if it has another shape.
    #[inline]
    pub fn view<'p>(&'p self, payload: &'p [u8]) -> Option<TemplateView<'p>> {
        self.has_shape(payload).then_some(TemplateView { template: self, payload })
    }

    /// Returns the values of a payload that is trusted to have this shape because its writer used
    /// this template. Only the length is checked; `None` if it differs.
    ///
    /// A payload of the same length and another shape gives meaningless values, as a fixed layout
    /// read with the wrong schema does. Use this only for streams of your own that have a checksum,
    /// and [`view`](Self::view) for all others.
    #[inline]
    pub fn view_trusted<'p>(&'p self, payload: &'p [u8]) -> Option<TemplateView<'p>> {
        (payload.len() == self.payload.len()).then_some(TemplateView { template: self, payload })
    }

    /// Returns whether a payload equals the model except for the values that change.
    #[inline]
    fn has_shape(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload.len() && self.fixed.matches(payload, &self.payload)
    }
}

/// A payload of the template's shape.
#[derive(Debug, Clone, Copy)]
pub struct TemplateView<'p> {
    template: &'p FrameTemplate,
    payload: &'p [u8],
}

impl<'p> TemplateView<'p> {
    /// Returns the bytes of all elements of a list, little-endian and without gaps, or of a struct.
    ///
    /// # Panics
    /// If the list belongs to another template.
    #[inline]
    pub fn elements(&self, list: &TemplateList) -> &'p [u8] {
        assert!(list.fingerprint == self.template.fingerprint, "the list belongs to another template");
        self.payload.get(list.range.clone()).unwrap_or_default()
    }

    /// Reads a value.
    ///
    /// # Panics
    /// If the field belongs to another template.
    #[inline]
    pub fn get<T: Scalar>(&self, field: TemplateField<T>) -> T {
        let range = self.template.value_range(field);
        T::load(self.payload.get(range).unwrap_or_default())
    }
}

#[cold]
#[inline(never)]
fn buffer_too_small(needed: usize, available: usize) -> Error {
    Error::invalid_frame_with("buffer too small for the frame", Some(needed), Some(available), None)
}
