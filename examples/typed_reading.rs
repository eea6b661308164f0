//! Types on both sides: a struct of one's own that becomes a FlatBuffer, and is read back as its verified root, from
//! any source and from a slice.
//!
//! How to run: `cargo run --example typed_reading`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use flatbuffers::{Allocator, FlatBufferBuilder};
use flatcap::stream::{
    ChecksumDeframer, ChecksumFramer, Error, Result, SliceReader, StreamDeserialize, StreamReader,
    StreamSerialize, StreamWriter, XxHash64,
};

use generated::flatcap::host::{Load, LoadArgs, root_as_load};

/// What flatc makes of schemas/host/load.fbs; in a program of yours, of its own schema.
#[path = "../generated/host/load_generated.rs"]
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::allow_attributes_without_reason,
    clippy::undocumented_unsafe_blocks,
    reason = "generated code keeps the generator's own style"
)]
#[rustfmt::skip]
mod generated;

/// The program's own type: plain values, no FlatBuffers in sight.
struct LoadSample {
    load1: f64,
    tasks: u64,
}

impl StreamSerialize for LoadSample {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        // By slots: generated `LoadBuilder` asks that the allocator outlive the builder's lifetime, which this method
        // does not promise.
        let table = builder.start_table();
        builder.push_slot(Load::VT_LOAD1, self.load1, 0.0);
        builder.push_slot(Load::VT_TASKS, self.tasks, 0);
        let root = builder.end_table(table);
        builder.finish(root, None);
        Ok(())
    }
}

impl<'a> StreamDeserialize<'a> for LoadSample {
    type Root = Load<'a>;

    fn from_payload(payload: &'a [u8]) -> Result<Load<'a>> {
        Ok(root_as_load(payload)?)
    }
}

fn main() -> Result<()> {
    let samples: Vec<LoadSample> =
        [(0.25, 310), (0.5, 312), (4.0, 390)].map(|(load1, tasks)| LoadSample { load1, tasks }).into();
    let mut writer = StreamWriter::new(Vec::new(), ChecksumFramer::new(XxHash64));
    writer.write_batch(&samples)?;
    // With a builder of one's own, the generated functions serve as they are.
    let mut builder = FlatBufferBuilder::new();
    let root = Load::create(&mut builder, &LoadArgs { load1: 0.75, tasks: 311, ..LoadArgs::default() });
    builder.finish(root, None);
    writer.write_finished(&mut builder)?;
    let bytes = writer.into_inner();
    println!("{} messages are {} bytes", samples.len() + 1, bytes.len());

    // Every message handed to a closure, from any source.
    let mut tasks_seen = Vec::new();
    let mut reader = StreamReader::new(&bytes[..], ChecksumDeframer::new(XxHash64));
    reader.process_typed::<LoadSample, _>(|load| {
        tasks_seen.push(load.tasks());
        Ok(())
    })?;
    assert_eq!(tasks_seen, [310, 312, 390, 311]);
    println!("process_typed saw the tasks {tasks_seen:?}");

    // One by one, for a loop that may stop: each root is valid until the next is asked for.
    let mut reader = StreamReader::new(&bytes[..], ChecksumDeframer::new(XxHash64));
    let mut loads = reader.typed_messages::<LoadSample>();
    let mut calm = 0;
    while let Some(load) = loads.next()? {
        if load.load1() > 1.0 {
            break;
        }
        calm += 1;
    }
    assert_eq!(calm, 2);
    println!("typed_messages stopped behind {calm} calm samples");

    // From a slice the roots borrow the bytes themselves: they may be kept, sorted and returned.
    let roots: Vec<Load<'_>> = SliceReader::new(&bytes, ChecksumDeframer::new(XxHash64))
        .map(|payload| LoadSample::from_payload(payload?))
        .collect::<Result<_>>()?;
    let highest = roots.iter().map(Load::load1).fold(0.0, f64::max);
    assert!((highest - 4.0).abs() < f64::EPSILON);
    println!("the slice gave {} roots at once, the highest load is {highest}", roots.len());

    // What is intact but no such FlatBuffer is refused, not misread.
    let refusal = LoadSample::from_payload(b"anything else, of some length");
    assert!(refusal.as_ref().is_err_and(Error::is_invalid_payload));
    println!("foreign bytes are refused");
    Ok(())
}
