//! Folded stacks, which tools for flame graphs read: a line for each stack with its functions and
//! its number of samples.

use std::path::Path;

use crate::error::ColumnarError;
use crate::request::{ColumnarEvent, ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::stack_lines::{StackOptions, StackReading, read_stacks};

/// Writes lines `process;outer;...;inner count`, in the order of their text: to a file, which
/// appears at the end, or, without a path, to standard output. The export stops if `watch` returns
/// false.
///
/// # Errors
/// Any [`ColumnarError`].
pub fn to_folded(
    request: &ColumnarRequest,
    path: Option<&Path>,
    options: &StackOptions,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    let (stacks, report) = match read_stacks(request, options, watch)? {
        StackReading::Lines(stacks, report) => (stacks, report),
        StackReading::Nothing(report) => return Ok(report),
    };
    let mut out = SingleOutput::create(path, request.should_replace)?;
    for (line, total) in &stacks.lines {
        out.put(format!("{line} {}\n", total.samples).as_bytes())?;
    }
    let files = out.complete(request.should_replace, (None, stacks.samples))?;
    Ok(ColumnarReport { files, ..report })
}
