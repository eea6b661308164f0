//! Compares designs of a stream's writer and reader, to check the chosen one. Budget: only the
//! template is faster than the generics.
//!
//! Five designs over the same wire format write the same bytes and read them back to the same sum:
//!
//! 1. one enum of all messages and framings, with a match per frame;
//! 2. trait objects for message, framer and sink, deframer and source;
//! 3. generics (`StreamWriter::write`, `StreamReader`), which own builder and buffer;
//! 4. generics over memory of the caller: its builder (`write_finished`), its bytes
//!    (`SliceReader`);
//! 5. the template (`FrameTemplate`): copied and patched, viewed in place.
//!
//! Three workloads: 100 messages of telemetry, 1,000 small ones, 50 of 64 KiB, written into reused
//! memory. Reading is measured twice: payloads only, and all their fields. For fields, 1 to 4
//! verify each payload and 5 compares it with the template. All alternatives of a workload take
//! turns, round by round; the table shows medians, and the median of the rounds' ratios to design
//! 4.
//!
//! `cargo bench --bench evolution`

use std::hint::black_box;
use std::time::Duration;

use flatcap_rivals::evolution::{
    AnyFraming, AnyMessage, Block, EnumReader, EnumWriter, Message, ObjectMessage, ObjectReader,
    ObjectWriter, Telemetry, Tick, builder, frame_by_template,
};
use flatcap_rivals::rounds::{Quartiles, Runner, Work, rounds};
use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, DefaultDeframer, DefaultFramer, Deframer, Error, Framer, Result,
    SliceDeframer, SliceFramer, SliceReader, StreamReader, StreamWriter, XxHash64,
};

const ROUNDS: usize = 41;
const TURN: Duration = Duration::from_millis(10);
const DESIGNS: [&str; 5] =
    ["1 enum", "2 trait objects", "3 generics", "4 generics, external builder", "5 template"];
/// The chosen design, with which the others are compared.
const CHOSEN: usize = 3;

/// A framing in the form of the generic designs and in that of the first one.
struct Framing<F, D> {
    name: &'static str,
    framer: F,
    deframer: D,
    any: AnyFraming,
}

/// Requirements of the parts of a generic design.
trait Part: Copy + Send + Sync + 'static {}

impl<T: Copy + Send + Sync + 'static> Part for T {}

/// Wraps a function that processes all messages in one call, to be called repeatedly.
fn repeated<'a>(mut work: impl FnMut() -> Result<u64> + Send + 'a) -> Work<'a> {
    Box::new(move |calls| {
        (0..calls).fold(0, |sum, _| work().expect("memory does not fail").wrapping_add(sum))
    })
}

/// Writes all messages, then passes the stream to a function.
type Writer<'a> = Box<dyn FnMut(&mut dyn FnMut(&[u8])) -> Result<()> + Send + 'a>;

/// The five writers.
fn writers<'a, M: Message, F: SliceFramer + Part, D>(
    messages: &'a [M],
    framing: &Framing<F, D>,
) -> [Writer<'a>; DESIGNS.len()] {
    let numbers = 0..messages.len() as u64;
    let any: Vec<AnyMessage> = numbers.clone().map(|number| M::numbered(number).into_any()).collect();
    let object = |number| -> Box<dyn ObjectMessage> { Box::new(M::numbered(number)) };
    let objects: Vec<_> = numbers.map(object).collect();
    let framer = framing.framer;

    let mut one = EnumWriter { sink: Vec::new(), framing: framing.any, builder: builder() };
    let mut two = ObjectWriter { framer: Box::new(framer), builder: builder() };
    let mut three = StreamWriter::with_builder(Vec::new(), framer, builder());
    let (mut four, mut external) = (StreamWriter::new(Vec::new(), framer), builder());
    let template = M::template();
    let (mut sink, mut room) = (Vec::new(), Vec::new());
    [
        Box::new(move |show| {
            one.sink.clear();
            black_box(&any).iter().try_for_each(|message| one.write(message))?;
            show(&one.sink);
            Ok(())
        }),
        Box::new(move |show| {
            sink.clear();
            black_box(&objects).iter().try_for_each(|message| two.write(&mut sink, &**message))?;
            show(&sink);
            Ok(())
        }),
        Box::new(move |show| {
            three.get_mut().clear();
            black_box(messages).iter().try_for_each(|message| three.write(message))?;
            show(three.get_ref());
            Ok(())
        }),
        Box::new(move |show| {
            four.get_mut().clear();
            for message in black_box(messages) {
                external.reset();
                message.serialize(&mut external)?;
                four.write_finished(&mut external)?;
            }
            show(four.get_ref());
            Ok(())
        }),
        Box::new(move |show| {
            room.resize(messages.len() * (framer.header_bytes() + template.0.payload_bytes()), 0);
            let mut end = 0;
            for message in black_box(messages) {
                end += frame_by_template(message, &template, &framer, &mut room[end..])?;
            }
            show(&room[..end]);
            Ok(())
        }),
    ]
}

/// The five readers of a stream, with or without its fields. Each returns the sum of its reads.
fn readers<'a, const FIELDS: bool, M: Message, F, D: Deframer + SliceDeframer + Part>(
    stream: &'a [u8],
    framing: &Framing<F, D>,
) -> [Work<'a>; DESIGNS.len()] {
    let (deframer, kind) = (framing.deframer, M::numbered(0).into_any().kind());
    let handed = |payload: &[u8]| payload.len() as u64 + u64::from(payload[0]);
    let visit = move |payload: &[u8]| if FIELDS { M::sum_of(payload) } else { Ok(handed(payload)) };
    let mut one = EnumReader { source: stream, framing: framing.any, buffer: Vec::new() };
    let mut two = ObjectReader { deframer: Box::new(deframer), visitor: Box::new(visit), buffer: Vec::new() };
    let mut three = StreamReader::new(stream, deframer);
    let (template, places) = M::template();
    [
        repeated(move || {
            one.source = black_box(stream);
            let mut sum = 0_u64;
            while let Some(payload) = one.read()? {
                sum = sum.wrapping_add(if FIELDS { kind.sum_of(payload)? } else { handed(payload) });
            }
            Ok(sum)
        }),
        repeated(move || {
            let mut source = black_box(stream);
            let mut sum = 0_u64;
            while let Some(value) = two.read(&mut source)? {
                sum = sum.wrapping_add(value);
            }
            Ok(sum)
        }),
        repeated(move || {
            *three.get_mut() = black_box(stream);
            let mut sum = 0_u64;
            three.process_all(|payload| {
                sum = sum.wrapping_add(visit(payload)?);
                Ok(())
            })?;
            Ok(sum)
        }),
        repeated(move || {
            SliceReader::new(black_box(stream), deframer)
                .try_fold(0_u64, |sum, payload| Ok(sum.wrapping_add(visit(payload?)?)))
        }),
        repeated(move || {
            SliceReader::new(black_box(stream), deframer).try_fold(0_u64, |sum, payload| {
                let payload = payload?;
                let value = if FIELDS {
                    let view = template.view(payload);
                    let other = || Error::validation_failed("template", "another shape");
                    M::sum_of_view(view.ok_or_else(other)?, &places)
                } else {
                    handed(payload)
                };
                Ok(sum.wrapping_add(value))
            })
        }),
    ]
}

/// Returns the median nanoseconds per message of each design, and its ratio to the chosen one.
fn measure<'a>(works: impl IntoIterator<Item = Work<'a>>, count: usize) -> Vec<(f64, Quartiles)> {
    let works = works.into_iter().map(|work| {
        let mut work = Some(work);
        Runner::new(1, TURN, || work.take().expect("one thread asks once"))
    });
    let mut works: Vec<_> = works.collect();
    let seconds = rounds(&mut works, ROUNDS);
    let chosen = &seconds[CHOSEN];
    let row = |seconds: &Vec<f64>| {
        let median = Quartiles::of(seconds.iter().copied()).median;
        (median / count as f64 * 1e9, Quartiles::of_ratios(seconds, chosen))
    };
    seconds.iter().map(row).collect()
}

/// Wraps a writer; its result is the length of the stream.
fn write(mut writer: Writer<'_>) -> Work<'_> {
    repeated(move || {
        let mut length = 0;
        writer(&mut |bytes| length = black_box(bytes).len() as u64)?;
        Ok(length)
    })
}

/// Measures one workload with one framing, after checking that all designs write the same bytes and
/// read them back. Returns other designs for messages of any shape that are faster than the chosen
/// one with their whole middle half.
fn compare<M, F, D>(count: u64, framing: &Framing<F, D>) -> Vec<String>
where
    M: Message,
    F: Framer + SliceFramer + Part,
    D: Deframer + SliceDeframer + Part,
{
    let messages: Vec<M> = (0..count).map(M::numbered).collect();
    let sum = messages.iter().fold(0_u64, |sum, message| sum.wrapping_add(message.sum()));
    let mut stream = Vec::new();
    writers(&messages, framing)[CHOSEN](&mut |bytes| stream = bytes.to_vec()).expect("memory does not fail");
    for (design, mut writer) in DESIGNS.iter().zip(writers(&messages, framing)) {
        for _ in 0..2 {
            let mut same = false;
            writer(&mut |bytes| same = bytes == stream).expect("memory does not fail");
            assert!(same, "{design} writes other bytes");
        }
    }
    for (design, mut reader) in DESIGNS.iter().zip(readers::<true, M, F, D>(&stream, framing)) {
        assert_eq!(reader(1), sum, "{design} reads other values");
        assert_eq!(reader(1), sum, "{design} reads other values the second time");
    }

    let written = measure(writers(&messages, framing).map(write), messages.len());
    let handed = measure(readers::<false, M, F, D>(&stream, framing), messages.len());
    let read = measure(readers::<true, M, F, D>(&stream, framing), messages.len());
    let workload = format!("{count} {}, {} B, {}", M::NAME, stream.len() / messages.len(), framing.name);
    let mut faster = Vec::new();
    for (at, design) in DESIGNS.iter().enumerate() {
        print!("| {workload} | {design} |");
        for (what, (ns, beside)) in
            ["write", "payloads", "fields"].iter().zip([written[at], handed[at], read[at]])
        {
            let digits = if beside.median < 100.0 { 2 } else { 0 };
            print!(
                " {ns:.1} | {:.digits$} ({:.digits$} to {:.digits$}) |",
                beside.median, beside.low, beside.high
            );
            if at < CHOSEN && beside.high < 1.0 {
                faster.push(format!("{design}: {what} of {workload} ({:.2})", beside.median));
            }
        }
        println!();
    }
    faster
}

fn under<F, D>(framing: &Framing<F, D>) -> Vec<String>
where
    F: Framer + SliceFramer + Part,
    D: Deframer + SliceDeframer + Part,
{
    let mut faster = compare::<Telemetry, F, D>(100, framing);
    faster.extend(compare::<Tick, F, D>(1000, framing));
    faster.extend(compare::<Block, F, D>(50, framing));
    faster
}

fn main() {
    println!("ns per message; ratio to design 4 (middle half)");
    println!(
        "| workload, bytes per frame, checksum | design | write | ratio | payloads | ratio | fields | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut faster = under(&Framing {
        name: "none",
        framer: DefaultFramer,
        deframer: DefaultDeframer::new(),
        any: AnyFraming::Plain,
    });
    faster.extend(under(&Framing {
        name: "XXH3",
        framer: ChecksumFramer::new(XxHash64),
        deframer: ChecksumDeframer::new(XxHash64),
        any: AnyFraming::Protected,
    }));
    let faster = if faster.is_empty() { "nowhere".to_owned() } else { faster.join("; ") };
    println!();
    println!(
        "Chosen: {}, and 5 if all messages have one shape. Of 1 to 3, faster: {faster}.",
        DESIGNS[CHOSEN]
    );
}
