//! A sink that lets the stream library write to a storage file.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use crate::os::storage::StorageFile;
use crate::stream::{self, ChecksumKind, StreamWriter};

/// A storage file as a sink of the stream writer.
#[derive(Debug)]
pub(super) struct Appender(pub(super) Arc<dyn StorageFile>);

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.append(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn into_io(error: stream::Error) -> io::Error {
    match error.kind() {
        // Callers look at the kind and the OS error number, so both are kept.
        stream::ErrorKind::Io(inner) => match inner.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(inner.kind(), inner.to_string()),
        },
        _ => io::Error::other(error),
    }
}

/// Appends all of the pieces to a file.
pub(super) fn write_all(file: &Arc<dyn StorageFile>, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    StreamWriter::new(Appender(Arc::clone(file)), ChecksumKind::None).write_framed(pieces).map_err(into_io)
}
