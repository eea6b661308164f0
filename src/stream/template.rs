//! Messages of one shape: built once, then copied and patched.
//!
//! A FlatBuffer whose fields are all present has the same bytes each time it is built, but for the values of its scalars.
//! So it need not be built each time: the first one is copied, and the values that change are written where they stand.
//! Reading works the same way: a payload that equals the template everywhere but in those values has the template's
//! shape, so it needs no verification of its own and its fields stand where the template's do.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;

use flatbuffers::FlatBufferBuilder;

use super::copy::copy_small;
use super::error::Result;
use super::fixed::Fixed;
use super::framer::{SliceFramer, no_room};
use super::message::StreamSerialize;
use super::place::{self, Place};

pub use super::place::{Scalar, TemplateError};

/// A finished FlatBuffer, some of whose scalars change from message to message.
///
/// ```
/// use flatbuffers::FlatBufferBuilder;
/// use flatcap::schema::synthetic::{Point, PointArgs};
/// use flatcap::stream::{DefaultFramer, FrameTemplate, SliceReader, DefaultDeframer};
///
/// let mut builder = FlatBufferBuilder::new();
/// builder.force_defaults(true); // a value that equals its default would be left out
/// let point = Point::create(&mut builder, &PointArgs::default());
/// builder.finish_minimal(point);
/// let schema = std::fs::read("generated/synthetic.bfbs")?;
/// let template = FrameTemplate::new(builder.finished_data(), &schema, &["counter", "wave"])?;
/// let (counter, wave) = (template.slot::<u64>("counter")?, template.slot::<f64>("wave")?);
///
/// let mut room = [0; 1024];
/// let mut end = 0;
/// for number in 0..3 {
///     end += template.frame_into(&DefaultFramer, &mut room[end..], |patch| {
///         patch.set(counter, number);
///         patch.set(wave, 0.5 * number as f64);
///     })?;
/// }
///
/// for (number, payload) in (0..).zip(SliceReader::new(&room[..end], DefaultDeframer::new())) {
///     let view = template.view(payload?).ok_or("another shape")?;
///     assert_eq!((view.get(counter), view.get(wave)), (number, 0.5 * number as f64));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameTemplate {
    payload: Box<[u8]>,
    fixed: Fixed,
    /// What may change, in the order of the paths it was made from.
    places: Box<[(Box<str>, Place)]>,
    /// Of all of the above. Templates that agree in it are the same, and so are their slots.
    fingerprint: u64,
}

/// A value that changes: where it stands in one template, and its type.
pub struct Slot<T> {
    at: usize,
    fingerprint: u64,
    value: PhantomData<fn(T) -> T>,
}

/// All elements of a vector or array whose values change, while their number does not.
#[derive(Debug, Clone)]
pub struct List {
    place: Range<usize>,
    fingerprint: u64,
}

impl FrameTemplate {
    /// A template from a finished FlatBuffer, the binary schema (.bfbs) of its root table, and the paths of the values
    /// that change: `field`, `structure.field`, `table.field`, `vector[2]`, `vector[2].field`, `vector[]` for all its elements.
    ///
    /// # Errors
    /// What is wrong with a path, or with the schema. A field must be present in the buffer: build with
    /// `force_defaults(true)`, or use [`of`](Self::of).
    pub fn new(finished: &[u8], schema: &[u8], paths: &[&str]) -> std::result::Result<Self, TemplateError> {
        Ok(Self::from_places(finished, place::resolve(finished, schema, None, paths)?, paths))
    }

    /// A template of a root table that is not the schema's own: `root` is its name with its namespace.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_root(
        finished: &[u8],
        (schema, root): (&[u8], &str),
        paths: &[&str],
    ) -> std::result::Result<Self, TemplateError> {
        Ok(Self::from_places(finished, place::resolve(finished, schema, Some(root), paths)?, paths))
    }

    fn from_places(finished: &[u8], places: Vec<Place>, paths: &[&str]) -> Self {
        let mut mask = vec![0xFF; finished.len()];
        for place in &places {
            if let Some(changing) = mask.get_mut(place.range()) {
                changing.fill(0);
            }
        }
        let mut hasher = DefaultHasher::new();
        (finished, &mask, paths).hash(&mut hasher);
        let places = paths.iter().map(|path| Box::from(*path)).zip(places).collect();
        Self {
            payload: finished.into(),
            fixed: Fixed::of(finished, mask),
            places,
            fingerprint: hasher.finish(),
        }
    }

    /// A template from a message, built with defaults forced.
    ///
    /// # Errors
    /// As [`new`](Self::new), and `TemplateError` with what the message says.
    pub fn of<T: StreamSerialize>(
        item: &T,
        schema: &[u8],
        paths: &[&str],
    ) -> std::result::Result<Self, TemplateError> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        item.serialize(&mut builder).map_err(TemplateError::message)?;
        Self::new(builder.finished_data(), schema, paths)
    }

    /// The slot of a path that the template was made with.
    ///
    /// # Errors
    /// The path is none of the template's, or its value is no `T`.
    pub fn slot<T: Scalar>(&self, path: &str) -> std::result::Result<Slot<T>, TemplateError> {
        let place = self.named(path)?;
        if !place.holds::<T>() {
            return Err(TemplateError::other_type(path, place, T::NAME));
        }
        Ok(Slot { at: place.range().start, fingerprint: self.fingerprint, value: PhantomData })
    }

    /// The elements of a vector or array that the template was made with, by the path that ends in `[]`.
    ///
    /// # Errors
    /// The path is none of the template's, or is no list.
    pub fn list(&self, path: &str) -> std::result::Result<List, TemplateError> {
        let place = self.named(path)?;
        if !place.is_list() {
            return Err(TemplateError::other_type(
                path,
                place,
                "all elements of a vector: end the path in `[]`",
            ));
        }
        Ok(List { place: place.range(), fingerprint: self.fingerprint })
    }

    fn named(&self, path: &str) -> std::result::Result<&Place, TemplateError> {
        let known = self.places.iter().find(|(known, _)| **known == *path);
        known
            .map(|(_, place)| place)
            .ok_or_else(|| TemplateError::unknown(path, self.places.iter().map(|(known, _)| &**known)))
    }

    /// The payload that was the model.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Length of each payload, in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Copies the model to `room`, to be patched there.
    ///
    /// # Panics
    /// `room` has not the payload's length: a mistake of the caller.
    #[inline]
    pub fn fill<'p>(&'p self, room: &'p mut [u8]) -> Patch<'p> {
        copy_small(room, &self.payload);
        Patch { template: self, payload: room }
    }

    /// A copy of the model that was made earlier, to be patched again where it stands.
    ///
    /// # Panics
    /// `payload` has not the model's length: a mistake of the caller.
    #[inline]
    pub fn patch<'p>(&'p self, payload: &'p mut [u8]) -> Patch<'p> {
        assert!(payload.len() == self.payload.len(), "a copy of the model has its length");
        Patch { template: self, payload }
    }

    /// Frames a patched copy into the front of `room` and says how many bytes the frame has.
    ///
    /// # Errors
    /// What the framer says; `InvalidFrame` if `room` is too short.
    #[inline]
    pub fn frame_into<F: SliceFramer>(
        &self,
        framer: &F,
        room: &mut [u8],
        patch: impl FnOnce(&mut Patch<'_>),
    ) -> Result<usize> {
        let header_bytes = framer.header_bytes();
        let needed = header_bytes + self.payload.len();
        let available = room.len();
        let Some(frame) = room.get_mut(..needed) else { return Err(no_room(needed, available)) };
        let (_, payload) = frame.split_at_mut(header_bytes);
        patch(&mut self.fill(payload));
        framer.seal(frame)?;
        Ok(needed)
    }

    /// The values of a payload of this shape; none if it has another.
    #[inline]
    pub fn view<'p>(&'p self, payload: &'p [u8]) -> Option<View<'p>> {
        self.has_shape(payload).then_some(View { template: self, payload })
    }

    /// The values of a payload that is taken to have this shape, for its writer is known to have used this template: of its own
    /// length, nothing is compared. None if it has another.
    ///
    /// A payload of the same length and another shape gives values that mean nothing, as a fixed layout read by the wrong
    /// schema does. So this is for streams of one's own, behind a checksum; of anything else ask [`view`](Self::view).
    #[inline]
    pub fn view_trusted<'p>(&'p self, payload: &'p [u8]) -> Option<View<'p>> {
        (payload.len() == self.payload.len()).then_some(View { template: self, payload })
    }

    /// Whether a payload is the model but for the values that change.
    #[inline]
    fn has_shape(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload.len() && self.fixed.are_in(payload, &self.payload)
    }

    /// Where a slot's value stands.
    #[inline]
    fn place<T>(&self, slot: Slot<T>) -> Range<usize> {
        assert!(slot.fingerprint == self.fingerprint, "a slot belongs to the template that gave it");
        slot.at..slot.at + size_of::<T>()
    }
}

/// A copy of the model, to be patched.
#[derive(Debug)]
pub struct Patch<'p> {
    template: &'p FrameTemplate,
    payload: &'p mut [u8],
}

impl Patch<'_> {
    /// Writes a value.
    ///
    /// # Panics
    /// The slot is another template's: a mistake of the caller.
    #[inline]
    pub fn set<T: Scalar>(&mut self, slot: Slot<T>, value: T) {
        let place = self.template.place(slot);
        if let Some(room) = self.payload.get_mut(place) {
            value.store(room);
        }
    }
}

impl<'p> Patch<'p> {
    /// The bytes of all elements of a list, to be filled there.
    ///
    /// # Panics
    /// The list is another template's: a mistake of the caller.
    #[inline]
    pub fn elements(self, list: &List) -> &'p mut [u8] {
        assert!(list.fingerprint == self.template.fingerprint, "a list belongs to the template that gave it");
        self.payload.get_mut(list.place.clone()).unwrap_or_default()
    }

    /// The place of a structure, to be filled there.
    ///
    /// # Panics
    /// The slot is another template's: a mistake of the caller.
    #[inline]
    pub fn place<const BYTES: usize>(self, slot: Slot<[u8; BYTES]>) -> &'p mut [u8] {
        let place = self.template.place(slot);
        self.payload.get_mut(place).unwrap_or_default()
    }
}

/// A payload of the template's shape.
#[derive(Debug, Clone, Copy)]
pub struct View<'p> {
    template: &'p FrameTemplate,
    payload: &'p [u8],
}

impl<'p> View<'p> {
    /// The bytes of all elements of a list, where they stand in the payload: little-endian, one behind the other.
    ///
    /// # Panics
    /// The list is another template's: a mistake of the caller.
    #[inline]
    pub fn elements(&self, list: &List) -> &'p [u8] {
        assert!(list.fingerprint == self.template.fingerprint, "a list belongs to the template that gave it");
        self.payload.get(list.place.clone()).unwrap_or_default()
    }

    /// Reads a value.
    ///
    /// # Panics
    /// The slot is another template's: a mistake of the caller.
    #[inline]
    pub fn get<T: Scalar>(&self, slot: Slot<T>) -> T {
        let place = self.template.place(slot);
        T::load(self.payload.get(place).unwrap_or_default())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "agent"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::synthetic::{Point, PointArgs, Wide, WideArgs};
    use crate::stream::deframer::{SliceDeframer, Step};
    use crate::stream::kind::{ChecksumKind, KindDeframer};

    fn built(counter: u64, wave: f64, noise: u64) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let point = Point::create(&mut builder, &PointArgs { counter, wave, noise });
        builder.finish_minimal(point);
        builder.finished_data().to_vec()
    }

    fn template(paths: &[&str]) -> FrameTemplate {
        let schema = include_bytes!("../../generated/synthetic.bfbs");
        FrameTemplate::new(&built(0, 0.0, 0), schema, paths).expect("paths of the schema")
    }

    proptest! {
        // Goal: copying and patching gives the bytes that building gives, framed alike, and they read back. Method: any
        // values, defaults among them, all checksums.
        #[test]
        fn patched_equals_built(counter: u64, wave: f64, noise in prop_oneof![Just(0_u64), any::<u64>()]) {
            let built = built(counter, wave, noise);
            let template = template(&["counter", "wave", "noise"]);
            let slots = ["counter", "noise"].map(|path| template.slot::<u64>(path).unwrap());
            let gauge = template.slot::<f64>("wave").unwrap();
            for &kind in ChecksumKind::ALL {
                let mut room = vec![0xAA; 200];
                let length = template.frame_into(&kind, &mut room, |patch| {
                    patch.set(slots[0], counter);
                    patch.set(slots[1], noise);
                    patch.set(gauge, wave);
                }).unwrap();
                let Step::Frame(frame) = KindDeframer::new(kind).deframe(&room).unwrap() else { panic!() };
                prop_assert_eq!(frame.bytes().len(), length);
                prop_assert_eq!(frame.payload(), &built);
                let view = template.view(frame.payload()).unwrap();
                prop_assert_eq!((view.get(slots[0]), view.get(slots[1])), (counter, noise));
                prop_assert_eq!(view.get(gauge).to_bits(), wave.to_bits());
            }
        }
    }

    // Goal: a slot is good for its own template alone. Method: the slot of a template with the paths in another order.
    #[test]
    #[should_panic(expected = "a slot belongs to the template that gave it")]
    fn a_foreign_slot_is_refused() {
        let slot = template(&["noise", "counter"]).slot::<u64>("counter").unwrap();
        let template = template(&["counter", "noise"]);
        let mut room = vec![0; template.payload_bytes()];
        template.fill(&mut room).set(slot, 1);
    }

    // Goal: a message's defaults are in its template. Method: a message that is its own default.
    #[test]
    fn defaults_are_forced() {
        struct Zero;
        impl StreamSerialize for Zero {
            fn serialize<A: flatbuffers::Allocator>(
                &self,
                builder: &mut FlatBufferBuilder<'_, A>,
            ) -> Result<()> {
                let start = builder.start_table();
                builder.push_slot(Point::VT_COUNTER, 0_u64, 0);
                let root = builder.end_table(start);
                builder.finish_minimal(root);
                Ok(())
            }
        }
        let schema = include_bytes!("../../generated/synthetic.bfbs");
        assert!(FrameTemplate::of(&Zero, schema, &["counter"]).is_ok());
        let error = FrameTemplate::of(&Zero, schema, &["counter", "wave"]).unwrap_err().to_string();
        assert!(error.contains("`wave`") && error.contains("not present"), "{error}");
    }

    // Goal: a payload has the template's shape as long as no fixed byte differs, and its lists are viewed where they stand.
    // Method: every byte of templates whose values stand side by side, scattered, between long lists, and nowhere,
    // changed in turn.
    #[test]
    fn every_fixed_byte_counts() {
        let mut builder = FlatBufferBuilder::new();
        let padding = builder.create_vector(&[9_u8; 70]);
        let values = builder.create_vector(&[5_u64; 40]);
        let wide = Wide::create(&mut builder, &WideArgs { values: Some(values), padding: Some(padding) });
        builder.finish_minimal(wide);
        let schema = include_bytes!("../../generated/synthetic.bfbs");
        let root = (&schema[..], "flatcap.synthetic.Wide");
        let wide = |paths| FrameTemplate::of_root(builder.finished_data(), root, paths).unwrap();
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

    // Goal: a trusted payload is read without its shape, but never beyond its end. Method: bytes of no shape at all, of the
    // template's length and of others.
    #[test]
    fn a_trusted_payload_has_the_length_alone() {
        let template = template(&["counter", "noise"]);
        let slot = template.slot::<u64>("counter").unwrap();
        let bytes = vec![0xA5; template.payload_bytes()];
        assert!(template.view(&bytes).is_none());
        assert_eq!(template.view_trusted(&bytes).unwrap().get(slot), 0xA5A5_A5A5_A5A5_A5A5);
        for length in [0, 1, bytes.len() - 1] {
            assert!(template.view_trusted(&bytes[..length]).is_none());
        }
        assert!(template.view_trusted(&[&bytes[..], &[0]].concat()).is_none());
    }

    // Goal: too little room is refused before anything is written. Method: one byte short.
    #[test]
    fn too_little_room_is_refused() {
        let template = template(&["counter"]);
        let mut room = vec![7; template.payload_bytes() + 3];
        let result = template.frame_into(&ChecksumKind::None, &mut room, |_| panic!("nothing to patch"));
        assert!(result.unwrap_err().is_invalid_frame());
        assert!(room.iter().all(|&byte| byte == 7));
    }
}
