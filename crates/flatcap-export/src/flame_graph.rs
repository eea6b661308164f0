//! The tree of functions, and the drawing of the tree.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Width of the image, in pixels.
const WIDTH: f64 = 1200.0;
/// Space at each side of the image, in pixels.
const MARGIN: f64 = 10.0;
/// Space above the graph for the title, in pixels.
const HEAD: usize = 32;
const ROW: usize = 16;
/// Minimum width of a drawn rectangle, in pixels. Narrower rectangles are invisible.
const WIDTH_MIN: f64 = 0.2;
/// Width of a character in pixels. It determines how much text fits into a rectangle. Fonts differ,
/// so this is the width of a wide font.
const CHARACTER: f64 = 7.0;
/// Minimum number of characters of a name that is drawn. Fewer characters are useless.
const CHARACTERS_MIN: usize = 3;
/// Maximum number of functions of a stack that are drawn. A deeper stack is usually a recursion.
const DEPTH_MAX: usize = 256;
/// The name of the lowest rectangle.
const ROOT: &str = "all";

/// A tree of functions, in which each function is below its caller.
#[derive(Debug, Default)]
pub(crate) struct FlameGraph {
    root: FlameNode,
}

#[derive(Debug, Default)]
struct FlameNode {
    /// Number of samples in the function and in the functions that it called.
    samples: u64,
    /// The called functions, sorted by name, so that equal stacks give equal images.
    callees: BTreeMap<String, FlameNode>,
}

/// The place at which a node is drawn.
#[derive(Debug, Clone, Copy)]
struct FlamePlace {
    x: f64,
    depth: usize,
}

impl FlameGraph {
    /// Creates the tree from lines `outer;...;inner` and the number of samples of each line.
    pub(crate) fn of<'l>(lines: impl Iterator<Item = (&'l str, u64)>) -> Self {
        let mut graph = Self::default();
        for (line, samples) in lines {
            let mut node = &mut graph.root;
            node.samples += samples;
            for name in line.split(';').take(DEPTH_MAX) {
                // Most names already exist, so a key is copied only if the name is new.
                if !node.callees.contains_key(name) {
                    node.callees.insert(name.to_owned(), FlameNode::default());
                }
                let Some(callee) = node.callees.get_mut(name) else { break };
                node = callee;
                node.samples += samples;
            }
        }
        graph
    }

    /// Draws the image, with a title above the graph. The lowest row represents all samples.
    pub(crate) fn svg(&self, title: &str) -> String {
        let scale = match self.root.samples {
            0 => 0.0,
            samples => (WIDTH - 2.0 * MARGIN) / as_number(samples),
        };
        let rows = self.root.rows(scale);
        let height = HEAD + rows * ROW + HEAD / 2;
        let mut drawing = FlameDrawing { text: String::new(), scale, rows, all: self.root.samples };
        drawing.begin(height, title);
        drawing.node(ROOT, &self.root, FlamePlace { x: MARGIN, depth: 0 });
        drawing.text.push_str("</svg>\n");
        drawing.text
    }
}

impl FlameNode {
    /// Returns the number of rows in which the node and the functions that it called are drawn.
    fn rows(&self, scale: f64) -> usize {
        let drawn = self.callees.values().filter(|callee| as_number(callee.samples) * scale >= WIDTH_MIN);
        1 + drawn.map(|callee| callee.rows(scale)).max().unwrap_or_default()
    }
}

/// The text of an image.
struct FlameDrawing {
    text: String,
    /// Pixels per sample.
    scale: f64,
    rows: usize,
    all: u64,
}

impl FlameDrawing {
    fn begin(&mut self, height: usize, title: &str) {
        let title = escaped(title);
        self.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">"
        ));
        self.line(&format!("<title>{title}</title>"));
        self.line(&format!("<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fffdf5\"/>"));
        self.line(&format!("<text x=\"{MARGIN}\" y=\"20\" font-size=\"13\">{title}</text>"));
    }

    fn node(&mut self, name: &str, node: &FlameNode, place: FlamePlace) {
        let width = as_number(node.samples) * self.scale;
        if width < WIDTH_MIN {
            return;
        }
        let y = HEAD + (self.rows - 1 - place.depth) * ROW;
        let share = 100.0 * as_number(node.samples) / as_number(self.all.max(1));
        let samples_word = if node.samples == 1 { "sample" } else { "samples" };
        let mut element = format!(
            "<g><title>{} ({} {samples_word}, {share:.2} %)</title>\
             <rect x=\"{:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" rx=\"1\" fill=\"{}\"/>",
            escaped(name),
            node.samples,
            place.x,
            ROW - 1,
            colour(name)
        );
        if let Some(shown) = cut(name, width) {
            let (x, y) = (place.x + CHARACTER / 2.0, y + ROW - 5);
            // Writing to a string cannot fail.
            let _infallible = write!(element, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", escaped(&shown));
        }
        element.push_str("</g>");
        self.line(&element);
        let mut x = place.x;
        for (name, callee) in &node.callees {
            self.node(name, callee, FlamePlace { x, depth: place.depth + 1 });
            x += as_number(callee.samples) * self.scale;
        }
    }

    fn line(&mut self, element: &str) {
        self.text.push_str(element);
        self.text.push('\n');
    }
}

/// Returns the part of a name that fits into a width, or `None` if this part is too short to be
/// useful.
fn cut(name: &str, width: f64) -> Option<String> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1200, not negative")]
    let fits = ((width - CHARACTER).max(0.0) / CHARACTER) as usize;
    if fits < CHARACTERS_MIN {
        return None;
    }
    if name.chars().nth(fits).is_none() {
        return Some(name.to_owned());
    }
    let kept: String = name.chars().take(fits - 2).collect();
    Some(kept + "..")
}

/// Returns a warm colour. A name has the same colour in each image.
fn colour(name: &str) -> String {
    /// The hash FNV-1a of 32 bits is used, because it is published, short, and the same on each
    /// host.
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME));
    let part = |shift: u32, range: u32| (hash >> shift & 0xff) * range / 0xff;
    // The colours range from red through orange to yellow. All of them are light enough for black
    // text.
    let (red, green, blue) = (225 + part(0, 30), 105 + part(8, 95), 50 + part(16, 50));
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns a string in a form that is valid in an XML document. It contains only characters that
/// XML allows, and special characters are escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML does not allow these characters, not even as a reference.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[expect(clippy::cast_precision_loss, reason = "places in an image")]
fn as_number(samples: u64) -> f64 {
    samples as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [(&str, u64); 4] = [
        ("app;main;parse<T>", 60),
        ("app;main;write & flush", 25),
        ("app;main", 14),
        ("a \"name\" of a process;[kernel]+0x1234", 1),
    ];

    // Proves that an image shows each function with its number of samples, and equals the stored
    // image, which a person has checked. `FLATCAP_GOLDEN=write` replaces the stored image.
    #[test]
    fn the_image_is_the_known_one() {
        let svg = FlameGraph::of(LINES.into_iter()).svg("example: 1.00 s of CPU time, 100 samples");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/flame.svg");
        if std::env::var_os("FLATCAP_GOLDEN").is_some() {
            std::fs::write(path, &svg).unwrap();
        }
        assert_eq!(svg, std::fs::read_to_string(path).unwrap());
        for shown in [
            "<title>parse&lt;T&gt; (60 samples, 60.00 %)</title>",
            "<title>write &amp; flush (25 samples, 25.00 %)</title>",
            "<title>main (99 samples, 99.00 %)</title>",
            "<title>a &quot;name&quot; of a process (1 sample, 1.00 %)</title>",
        ] {
            assert!(svg.contains(shown), "{shown}");
        }
    }

    // Proves that names stay inside their rectangles, that narrow rectangles have no name, and that
    // hostile names are harmless.
    #[test]
    fn texts_are_cut() {
        assert_eq!(cut("schedule", 200.0).as_deref(), Some("schedule"));
        assert_eq!(cut("schedule", 50.0).as_deref(), Some("sche.."));
        assert_eq!((cut("schedule", 20.0), cut("schedule", 0.5)), (None, None));
        assert_eq!(escaped("<script>\u{0}\u{1b}[2J\u{ffff}\"&"), "&lt;script&gt;??[2J?&quot;&amp;");
        let deep = "f;".repeat(100_000) + "f";
        let svg = FlameGraph::of([(deep.as_str(), 1)].into_iter()).svg("deep");
        assert_eq!(svg.matches("<g>").count(), DEPTH_MAX + 1);
        assert_eq!(FlameGraph::of(std::iter::empty()).svg("none").matches("<g>").count(), 0);
    }
}
