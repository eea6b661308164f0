//! Reads payloads that have the same shape as a template. The views read the payloads in place.
//! This module also writes frames of templates. Only benches and tests use this module.
//!
//! A payload has the template's shape if it equals the template everywhere except in the values
//! that change. Such a payload needs no verification, and its fields have the template's offsets.

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
    /// Creates a template in the same way as [`with_root`](Self::with_root), with the schema's
    /// `root_type` as the root.
    ///
    /// # Errors
    /// Returns the same errors as [`with_root`](Self::with_root). Also returns `Schema` if the
    /// schema has no root type.
    pub fn new(finished: &[u8], schema: &[u8], paths: &[&str]) -> Result<Self, TemplateError> {
        let parsed = root_as_schema(schema).map_err(|error| TemplateError::Schema(Some(error)))?;
        let root = parsed.root_table().ok_or(TemplateError::Schema(None))?;
        Self::with_root(finished, (schema, root.name()), paths)
    }

    /// Writes a frame with a patched copy of the model to the start of `output`. Returns the length
    /// of the frame.
    ///
    /// # Errors
    /// Returns the errors of the framer. Also returns `InvalidFrame` if `output` is too short.
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

    /// Returns a view of a payload with the template's shape, or `None` if the payload has another
    /// shape.
    #[inline]
    pub fn view<'p>(&'p self, payload: &'p [u8]) -> Option<TemplateView<'p>> {
        self.has_shape(payload).then_some(TemplateView { template: self, payload })
    }

    /// Returns a view of a payload and does not check its shape. The caller must know that the
    /// writer used this template. This function checks only the length. Returns `None` if the
    /// length differs.
    ///
    /// A payload of the same length may have another shape. Its values are then meaningless, as if
    /// a fixed layout were read with the wrong schema. Use this function only for your own streams
    /// that have a checksum. Use [`view`](Self::view) for all other streams.
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

/// A payload that has the template's shape.
#[derive(Debug, Clone, Copy)]
pub struct TemplateView<'p> {
    template: &'p FrameTemplate,
    payload: &'p [u8],
}

impl<'p> TemplateView<'p> {
    /// Returns the bytes of a struct or of all elements of a list. The elements are little-endian
    /// and have no gaps between them.
    ///
    /// # Panics
    /// Panics if the list belongs to another template.
    #[inline]
    pub fn elements(&self, list: &TemplateList) -> &'p [u8] {
        assert!(list.fingerprint == self.template.fingerprint, "the list belongs to another template");
        self.payload.get(list.range.clone()).unwrap_or_default()
    }

    /// Reads a value.
    ///
    /// # Panics
    /// Panics if the field belongs to another template.
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
