//! Compares market data messages in FlatBuffers, by builder and by template, with Cap'n Proto and
//! SBE. Budget: by template at most 1.3 x SBE's median and total for serializing, 1.2 x for
//! deserializing.
//!
//! The trades and price level updates of an IEX DEEP capture, each as a unit of a stream with the
//! framing of its format: SBE's message header, Cap'n Proto's segment table, flatcap's frame
//! length. Every format has the same fields of the same types. Each stream is written from the same
//! structs in memory, read back and compared field by field, then written and read in turns.
//! Deserializing sums the trades and finds the best bid and ask of each symbol; the map for this is
//! the same in all rows and takes most of the time. So another column measures reading alone: the
//! sum of every field.
//!
//! Only rows that say so verify: SBE has no verification. By template a payload's length identifies
//! its kind, as SBE's header does; rows marked so compare its whole shape, which is equivalent to
//! verifying.
//!
//! `cargo bench --bench shootout`; `-- --quick` for three rounds; `-- --only NAME` for rows whose
//! name begins with NAME.

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
/// The generated crate, included as a module: as a separate crate its functions, which have no
/// inline attribute, would not be inlined, and serializing would take three times as long.
#[allow(warnings, clippy::all, clippy::pedantic, reason = "generated")]
#[path = "../generated/shootout_sbe/src/lib.rs"]
mod shootout_sbe;
/// The generated code refers to its items by the crate root.
#[allow(unused_imports, reason = "generated code needs them")]
pub use shootout_sbe::*;

use built::{Unverified, Verified};
use by_template::{Compared, Trusted};
use measure::{ROUNDS, Row, Times, measure};
use messages::Message;
use sink::{Sink, Tally, of_messages};

/// A format: a stream of units, one per message.
pub trait Format {
    /// Writes the messages to the start of `room` and returns their length in bytes.
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize;

    /// Passes the first `count` messages of a stream to `sink` and returns their length in bytes.
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
        ("a generated capture, seed 1", Some(messages::made_up_capture())),
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

/// Prints nanoseconds per message: median, p99 and p99.9 of groups, and of all together; in
/// parentheses the ratio to the first row.
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
