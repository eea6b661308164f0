//! Views: payloads of a template's shape, read in place. Only benches and tests read so.
//!
//! A payload that equals the template everywhere except in the values that change has the
//! template's shape, so it needs no verification and its fields have the template's offsets.

use super::template::{FrameTemplate, TemplateField, TemplateList};
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
