//! A flame graph: one SVG image, which needs no script and no other file.
//!
//! The flame graph is drawn here, since `inferno`, the library for it, has a licence (CDDL-1.0)
//! that deny.toml does not allow. A library would add only scripts, which an image in a report does
//! not need.

use std::path::Path;

use crate::error::ColumnarError;
use crate::flame_graph::FlameGraph;
use crate::request::{ColumnarEvent, ColumnarReport, ColumnarRequest};
use crate::stack_lines::{StackLines, StackOptions, write_stacks};

/// Writes the selected stacks as a flame graph: a file, which appears at the end, or, without a
/// path, to standard output. Equal stacks give equal bytes. The export stops if `watch` returns
/// false.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_flame(
    request: &ColumnarRequest,
    path: Option<&Path>,
    options: &StackOptions,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    write_stacks(request, path, options, watch, |stacks, out| {
        let lines = stacks.lines.iter().map(|(line, total)| (line.as_str(), total.samples));
        out.put(FlameGraph::of(lines).svg(&title(stacks)).as_bytes())
    })
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
