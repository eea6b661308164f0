//! An input in which the length of one record, or of one element of a document, is limited.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use super::input::Input;

/// Maximum length of a record or element, in bytes. Without a limit, a quote that is never closed
/// would cause the rest of a file to be read into memory.
const ELEMENT_BYTES_MAX: u64 = 16 << 20;

/// Length of the byte order mark of UTF-8.
const BYTE_ORDER_MARK_BYTES: usize = 3;

/// The number of bytes that may still be read before the current element must end.
#[derive(Debug, Clone)]
pub(super) struct ElementBudget(Rc<Cell<u64>>);

/// An input that returns an error if an element is too long.
#[derive(Debug)]
pub(super) struct LimitedInput {
    pub(super) input: Input,
    budget: ElementBudget,
    read: u64,
}

impl ElementBudget {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(ELEMENT_BYTES_MAX)))
    }

    /// Begins the next element. Bytes of the next element that were already read do not count
    /// toward its limit.
    pub(super) fn renew(&self) {
        self.0.set(ELEMENT_BYTES_MAX);
    }
}

impl LimitedInput {
    pub(super) fn new(input: Input, budget: ElementBudget) -> Self {
        Self { input, budget, read: 0 }
    }

    /// Returns the number of decompressed bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.read
    }

    /// Returns whether an error says that an element is too long.
    pub(super) fn is_too_long(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::FileTooLarge
    }
}

impl Read for LimitedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = self.input.read(buffer)?;
        // If the first read returned only the byte order mark, readers of text would treat this as
        // the end of the input.
        if self.read == 0 && read == BYTE_ORDER_MARK_BYTES {
            read += self.input.read(buffer.get_mut(read..).unwrap_or_default())?;
        }
        self.read += read as u64;
        let left = self.budget.0.get().checked_sub(read as u64).ok_or_else(|| {
            let what = format!("an element is longer than {ELEMENT_BYTES_MAX} bytes; is a quote not closed?");
            io::Error::new(io::ErrorKind::FileTooLarge, what)
        })?;
        self.budget.0.set(left);
        Ok(read)
    }
}
