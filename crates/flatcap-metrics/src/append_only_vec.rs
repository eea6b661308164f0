//! A vector of fixed capacity. One thread appends to the vector while other threads read it,
//! without a lock.

use std::sync::OnceLock;

/// An append-only vector. Readers see a prefix of initialized elements; an element is never moved
/// or removed.
#[derive(Debug)]
pub struct AppendOnlyVec<T>(Box<[OnceLock<T>]>);

impl<T> AppendOnlyVec<T> {
    /// Creates a vector with these elements. The capacity is `capacity`, or the number of the given
    /// elements if that number is larger.
    pub fn new(first: impl IntoIterator<Item = T>, capacity: usize) -> Self {
        let mut slots: Vec<_> = first.into_iter().map(OnceLock::from).collect();
        let length = capacity.max(slots.len());
        slots.resize_with(length, OnceLock::new);
        Self(slots.into_boxed_slice())
    }

    /// Appends an element. Must be called by one thread at a time.
    ///
    /// # Errors
    /// Returns the element if the vector is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        match self.0.iter().find(|slot| slot.get().is_none()) {
            Some(slot) => slot.set(value),
            None => Err(value),
        }
    }

    /// Returns the element at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.get()
    }

    /// Returns the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Elements are set in order, so a reader that sees an element also sees all elements before
        // it.
        self.0.iter().map_while(OnceLock::get)
    }

    /// Returns the number of elements.
    #[allow(clippy::len_without_is_empty, reason = "nothing asks whether it is empty")]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns the maximum number of elements.
    pub fn capacity(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that elements are appended in order, are visible, and never exceed the capacity.
    #[test]
    fn places_are_taken_in_order() {
        let slots = AppendOnlyVec::new(["a", "b"], 4);
        assert_eq!((slots.len(), slots.capacity()), (2, 4));
        assert_eq!([slots.push("c"), slots.push("d"), slots.push("e")], [Ok(()), Ok(()), Err("e")]);
        assert_eq!(slots.iter().copied().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!([slots.get(1), slots.get(4)], [Some(&"b"), None]);
        assert_eq!(AppendOnlyVec::<u8>::new([], 0).len(), 0);
    }

    // Proves that a reader that runs concurrently with the writer sees a growing prefix of complete
    // values.
    #[test]
    fn a_reader_sees_a_prefix() {
        let slots = AppendOnlyVec::new([], 1000);
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
