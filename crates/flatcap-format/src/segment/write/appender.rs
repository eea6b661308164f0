//! A sink that lets the stream library write to a storage file.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use flatcap_stream::{ChecksumKind, StreamWriter};

use crate::storage::StorageFile;

/// A storage file as a sink of the stream writer.
#[derive(Debug)]
pub(in crate::segment) struct Appender(pub(in crate::segment) Arc<dyn StorageFile>);

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

pub(in crate::segment) fn into_io(error: flatcap_stream::Error) -> io::Error {
    match error.kind() {
        // Callers look at the kind and the OS error number, so both are kept.
        flatcap_stream::ErrorKind::Io(inner) => match inner.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(inner.kind(), inner.to_string()),
        },
        _ => io::Error::other(error),
    }
}

/// Appends all of the pieces to a file.
pub(in crate::segment) fn write_all(
    file: &Arc<dyn StorageFile>,
    pieces: &mut [IoSlice<'_>],
) -> io::Result<()> {
    StreamWriter::new(Appender(Arc::clone(file)), ChecksumKind::None).write_framed(pieces).map_err(into_io)
}
