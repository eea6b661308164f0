//! One file a source: what it reads, how it parses, how it fills its schema (schemas/host/).

use std::io;

use super::Sampler;
use crate::os::host::HostRoot;

pub mod agent;
pub mod synthetic;

/// STUB
pub struct Entry {
    /// n
    pub name: &'static str,
    /// r
    pub root: &'static str,
    /// s
    pub schema: &'static [u8],
    /// f
    pub files: &'static [&'static str],
    /// r
    pub refresh: &'static str,
    /// n
    pub needs: &'static [&'static str],
    /// o
    pub open: fn(&HostRoot) -> Result<Box<dyn Sampler>, Unavailable>,
}
/// STUB
#[derive(Debug, thiserror::Error)]
#[error("/{file}: {error}")]
pub struct Unavailable {
    /// f
    pub file: &'static str,
    /// e
    pub error: io::Error,
}
/// STUB
pub const CATALOG: &[Entry] = &[];
