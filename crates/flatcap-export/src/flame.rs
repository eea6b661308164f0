//! A flame graph as one SVG image, which needs no script and no other file.
//!
//! The flame graph is drawn here, since `inferno`, the library for it, has a licence (CDDL-1.0)
//! that deny.toml does not allow. A library would only add scripts, which an image in a report does
//! not need.

use crate::error::ColumnarError;
use crate::flame_graph::FlameGraph;
use crate::single_output::SingleOutput;
use crate::stack_lines::StackLines;

/// Writes the stacks as a flame graph.
pub(crate) fn put_flame(stacks: &StackLines, out: &mut SingleOutput) -> Result<(), ColumnarError> {
    let lines = stacks.lines.iter().map(|(line, total)| (line.as_str(), total.samples));
    out.put(FlameGraph::of(lines).svg(&title(stacks)).as_bytes())
}

/// Returns the title line above the graph.
fn title(stacks: &StackLines) -> String {
    let hosts = match stacks.hosts.len() {
        1 => stacks.hosts.first().cloned().unwrap_or_default(),
        count => format!("{count} hosts"),
    };
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let seconds = stacks.cpu_ns as f64 / 1e9;
    format!("{hosts}: {seconds:.2} s of CPU time, {} samples", stacks.samples)
}
