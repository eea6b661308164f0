//! How does a foreign recording become segments? Importers: each reads files of one kind as a stream, in constant memory, and
//! writes what is whole through one [`Recording`]; what is not whole is in its [`Report`].
//!
//! Never: guesses a time or a value that the input does not hold; passes over damage unsaid; believes a file's name about what is in
//! it.

mod batch;
pub mod capture;
mod course;
mod error;
pub mod iex;
mod input;
pub mod lobster;
mod recording;
mod report;
mod run_clock;
pub mod stream;

pub use course::{Course, Progress};
pub use error::ImportError;
pub use input::Input;
pub use recording::{Plan, Recording, Source, Written, WrittenSource};
pub use report::{FLAWS_MAX, Flaw, Report};

use crate::os::storage::Storage;

/// What every importer works with.
#[derive(Debug)]
pub struct Job<'a, 'w> {
    /// Where segments go.
    pub storage: &'a dyn Storage,
    /// What they have in common.
    pub plan: Plan,
    /// Opens files and tells how far it is.
    pub course: Course<'w>,
}
