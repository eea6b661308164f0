//! What does a message of market data cost in FlatBuffers, by builder and by template, beside Cap'n Proto and SBE? Budget: by
//! template at most 1.3 x SBE's median and total in serializing, 1.2 x in deserializing.
//!
//! The trades and price level updates of an IEX DEEP capture, each a unit of its own in a stream of such units, with the
//! framing that its format needs: SBE's message header, Cap'n Proto's segment table, flatcap's frame length. Every
//! format has the same fields of the same types. Each stream is written from the same structures in memory, read back
//! and compared field by field, then written and read in turns. Deserializing adds up the trades and finds the best bid and
//! ask of each symbol; the map behind that is the same for all, and takes most of the time: so another column has the sum of
//! every field, which is reading alone.
//!
//! Nothing is verified but in the rows that say so: SBE has nothing to verify with. By template a payload's length tells its
//! kind, as SBE's header does; in the rows that say so its whole shape is compared, which is as good as verified.
//!
//! `cargo bench --bench shootout`; `-- --quick` for three rounds; `-- --only NAME` for rows whose name begins so.

#[path = "shootout/built.rs"]
mod built;
#[path = "shootout/by_template.rs"]
mod by_template;
#[path = "shootout/capnproto.rs"]
mod capnproto;
#[path = "shootout/frames.rs"]
mod frames;
#[path = "../../../tests/generators/iex.rs"]
mod iex;
#[path = "shootout/measure.rs"]
mod measure;
#[path = "shootout/messages.rs"]
mod messages;
#[path = "shootout/sbe.rs"]
mod sbe;
#[path = "shootout/sink.rs"]
mod sink;

#[allow(warnings, clippy::all, clippy::pedantic, reason = "generated")]
#[path = "../generated/shootout_capnp.rs"]
mod shootout_capnp;
#[allow(warnings, clippy::all, clippy::pedantic, reason = "generated")]
#[path = "../generated/shootout_generated.rs"]
mod shootout_generated;
/// The crate that the tool makes, taken in as a module: as a crate its functions, which do not ask to be inlined, would be
/// called, and serializing would take three times as long.
#[allow(warnings, clippy::all, clippy::pedantic, reason = "generated")]
#[path = "../generated/shootout_sbe/src/lib.rs"]
mod shootout_sbe;
/// It names what it has by the root of its crate.
#[allow(unused_imports, reason = "generated code needs them")]
pub use shootout_sbe::*;

use built::{Unverified, Verified};
use by_template::{Compared, Trusted};
use measure::{ROUNDS, Row, Times, measure};
use messages::Message;
use sink::{Sink, Tally, of_messages};

/// A format: a stream of units, one a message.
pub trait Format {
    /// Writes the messages to the front of `room` and says how many bytes they took.
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize;

    /// Hands the first `count` messages of a stream to `sink` and says how many bytes they had.
    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize;
}

fn rows() -> Vec<Row> {
    vec![
        Row::new("SBE", sbe::Sbe),
        Row::new("FlatBuffers by template", by_template::Structures::<Trusted>::new()),
        Row::new("FlatBuffers by template, shape compared", by_template::Structures::<Compared>::new()),
        Row::new("FlatBuffers built", built::Structures::<Unverified>::new()),
        Row::new("FlatBuffers built, verified", built::Structures::<Verified>::new()),
        Row::new("flat table, by template", by_template::Flat::<Trusted>::new()),
        Row::new("flat table, by template, shape compared", by_template::Flat::<Compared>::new()),
        Row::new("flat table, built", built::Flat::<Unverified>::new()),
        Row::new("flat table, built, verified", built::Flat::<Verified>::new()),
        Row::new("Cap'n Proto unpacked", capnproto::Unpacked::new()),
        Row::new("Cap'n Proto packed", capnproto::Packed::new()),
    ]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds = if arguments.iter().any(|argument| argument == "--quick") { 3 } else { ROUNDS };
    let only: Vec<&str> =
        arguments.windows(2).filter(|pair| pair[0] == "--only").map(|pair| pair[1].as_str()).collect();
    let courses = [
        ("the real capture", messages::real_capture()),
        ("a capture made up, seed 1", Some(messages::made_up_capture())),
    ];
    for (name, capture) in courses {
        if let Some(capture) = capture {
            run(name, &messages::of_capture(&capture), rounds, &only);
        }
    }
}

fn run(name: &str, messages: &[Message], rounds: usize, only: &[&str]) {
    let symbols = of_messages(messages, Tally::default()).symbols();
    println!("\n{name}: {} messages of {symbols} symbols, {rounds} rounds", messages.len());
    let mut rows = rows();
    rows.retain(|row| only.is_empty() || only.iter().any(|only| row.name.starts_with(only)));
    measure(messages, &mut rows, rounds);
    print(&rows);
}

/// Nanoseconds a message: median, p99 and p99.9 of groups, and all together; in brackets beside the first row.
fn print(rows: &[Row]) {
    println!(
        "| | MB | serialize: median | p99 | p99.9 | total | deserialize: median | p99 | p99.9 | total | every field: median | total |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let Some(first) = rows.first() else { return };
    let beside = |of: fn(&Row) -> f64, row: &Row| format!("{:.2} ({:.2})", of(row), of(row) / of(first));
    for row in rows {
        let tails = |times: &Times| format!("{:.1} | {:.1}", times.at(0.99), times.at(0.999));
        println!(
            "| {} | {:.2} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.name,
            row.length as f64 / 1e6,
            beside(|row| row.write.at(0.5), row),
            tails(&row.write),
            beside(|row| row.write.total(), row),
            beside(|row| row.read.at(0.5), row),
            tails(&row.read),
            beside(|row| row.read.total(), row),
            beside(|row| row.sum.at(0.5), row),
            beside(|row| row.sum.total(), row),
        );
    }
}
