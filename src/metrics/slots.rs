//! A list that grows while others read it: places taken once, never given back.

use std::sync::OnceLock;

/// Places of which the first ones are in use. Whoever looks sees those and no others; one may be added at any time, without a lock.
#[derive(Debug)]
pub struct Slots<T>(Box<[OnceLock<T>]>);

impl<T> Slots<T> {
    /// These, and places up to `capacity`, or none beyond them if that is less.
    pub fn new(first: impl IntoIterator<Item = T>, capacity: usize) -> Self {
        let mut slots: Vec<_> = first.into_iter().map(OnceLock::from).collect();
        let places = capacity.max(slots.len());
        slots.resize_with(places, OnceLock::new);
        Self(slots.into_boxed_slice())
    }

    /// Adds one behind the others. Only for one thread at a time.
    ///
    /// # Errors
    /// It comes back: no place is free.
    pub fn push(&self, value: T) -> Result<(), T> {
        match self.0.iter().find(|slot| slot.get().is_none()) {
            Some(slot) => slot.set(value),
            None => Err(value),
        }
    }

    /// The one in this place, if that is in use.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.0.get(place)?.get()
    }

    /// Those in use, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Taken in order: who sees one sees those before it.
        self.0.iter().map_while(OnceLock::get)
    }

    /// How many are in use.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.get(0).is_none()
    }

    /// How many there can be.
    pub fn capacity(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: places are taken in order, seen by whoever looks, and never more than there are. Method: two at the start, two more, one
    // too many.
    #[test]
    fn places_are_taken_in_order() {
        let slots = Slots::new(["a", "b"], 4);
        assert_eq!((slots.len(), slots.capacity(), slots.is_empty()), (2, 4, false));
        assert_eq!([slots.push("c"), slots.push("d"), slots.push("e")], [Ok(()), Ok(()), Err("e")]);
        assert_eq!(slots.iter().copied().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!([slots.get(1), slots.get(4)], [Some(&"b"), None]);
        assert!(Slots::<u8>::new([], 0).is_empty());
    }

    // Goal: a reader beside the writer sees a prefix that only grows, of whole values. Method: a thread that adds, one that counts.
    #[test]
    fn a_reader_sees_a_prefix() {
        let slots = Slots::new([], 1000);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1000_usize).for_each(|value| slots.push(Box::new(value)).unwrap()));
            let mut seen = 0;
            while seen < 1000 {
                let values: Vec<usize> = slots.iter().map(|value| **value).collect();
                assert!(values.len() >= seen && values.iter().copied().eq(0..values.len()));
                seen = values.len();
            }
        });
    }
}
