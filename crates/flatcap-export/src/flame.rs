//! A flame graph: one SVG image, which needs no script and no other file.
//!
//! It is drawn here, since `inferno`, the library for it, has a licence (CDDL-1.0) that deny.toml
//! does not allow. A library would add only scripts, which an image in a report does not need.

use std::path::Path;

use crate::error::ColumnarError;
use crate::flame_graph::FlameGraph;
use crate::request::{ColumnarEvent, ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::stack_lines::{StackLines, StackOptions, StackReading, read_stacks};

/// Writes the selected stacks as a flame graph: a file, which appears at the end, or, without a
/// path, to standard output. Equal stacks give equal bytes. The export stops if `watch` returns
/// false.
///
/// # Errors
/// Any [`ColumnarError`].
pub fn to_flame(
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
    let graph = FlameGraph::of(stacks.lines.iter().map(|(line, total)| (line.as_str(), total.samples)));
    out.put(graph.svg(&title(&stacks)).as_bytes())?;
    let files = out.complete(request.should_replace, (None, stacks.samples))?;
    Ok(ColumnarReport { files, ..report })
}

/// Returns the line above the graph.
fn title(stacks: &StackLines) -> String {
    let hosts = match stacks.hosts.len() {
        1 => stacks.hosts.first().cloned().unwrap_or_default(),
        count => format!("{count} hosts"),
    };
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let seconds = stacks.cpu_ns as f64 / 1e9;
    format!("{hosts}: {seconds:.2} s of CPU time, {} samples", stacks.samples)
}
