//! Folded stacks, which tools for flame graphs read: a line for each stack with its functions and
//! its number of samples.

use std::path::Path;

use crate::error::ColumnarError;
use crate::request::{ColumnarEvent, ColumnarReport, ColumnarRequest};
use crate::stack_lines::{StackOptions, write_stacks};

/// Writes lines `process;outer;...;inner count`, in the order of their text: to a file, which
/// appears at the end, or, without a path, to standard output. The export stops if `watch` returns
/// false.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_folded(
    request: &ColumnarRequest,
    path: Option<&Path>,
    options: &StackOptions,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    write_stacks(request, path, options, watch, |stacks, out| {
        let mut lines = stacks.lines.iter();
        lines.try_for_each(|(line, total)| out.put(format!("{line} {}\n", total.samples).as_bytes()))
    })
}
