//! Compares a department with its books in FlatBuffers and in Protobuf. Budget: FlatBuffers faster
//! than prost at reading all fields, verified, and in the round trip.
//!
//! Both write the same 64 departments in turn, which differ in every value, into reused memory;
//! both add every field and every byte of every string to one sum. prost starts from an existing
//! message, as its users do. Several threads have separate memory; their operations are added.
//!
//! All alternatives of a group take turns of 50 ms, round by round; the table shows medians and,
//! compared with prost's best row of the group, medians of the rounds' ratios with their middle
//! half.
//!
//! `cargo bench --bench protobuf`

use std::hint::black_box;
use std::time::Duration;

use flatcap_format::schema::PayloadVerifier;
use flatcap_rivals::department::{self, Builder, Department, LayoutWriter, message, proto, sum_message};
use flatcap_rivals::rounds::{Quartiles, Runner, Work, rounds};
use prost::Message;

/// Used in turn, so that the lengths of strings cannot be predicted.
const DEPARTMENTS: u32 = 64;
const ROUNDS: usize = 40;
const TURN: Duration = Duration::from_millis(50);

/// The departments in every form that a row starts from.
struct Forms {
    values: Vec<Department>,
    messages: Vec<proto::Department>,
    flat: Vec<Vec<u8>>,
    flat_whole: Vec<Vec<u8>>,
    proto: Vec<Vec<u8>>,
}

impl Forms {
    /// Creates the departments, after checking that all formats return every field.
    fn new(books: usize) -> Self {
        let values = Department::series(DEPARTMENTS, books);
        let messages: Vec<_> = values.iter().map(message).collect();
        let mut builder = Builder::default();
        let flat = values.iter().map(|values| builder.as_generated(values).to_vec()).collect();
        let flat_whole = values.iter().map(|values| builder.tables_whole(values).to_vec()).collect();
        let mut writer = LayoutWriter::default();
        let flat_laid_out: Vec<_> = values.iter().map(|values| writer.write(values).to_vec()).collect();
        let proto = messages.iter().map(Message::encode_to_vec).collect();
        let forms = Self { values, messages, flat, flat_whole, proto };
        let mut verifier = department::verifier();
        for (index, values) in forms.values.iter().enumerate() {
            for flat in [&forms.flat[index], &forms.flat_whole[index], &flat_laid_out[index]] {
                assert_eq!(department::read_verified(flat).expect("it verifies"), values.sum());
                assert_eq!(department::read_checked(&mut verifier, flat).expect("it verifies"), values.sum());
            }
            let message = proto::Department::decode(&forms.proto[index][..]).expect("it decodes");
            assert_eq!(sum_message(&message), values.sum());
        }
        hold_verifiers_together(&forms.flat[0]);
        hold_verifiers_together(&forms.flat_whole[0]);
        hold_verifiers_together(&flat_laid_out[0]);
        forms
    }
}

/// Checks that both verifiers agree on every change of one byte.
fn hold_verifiers_together(bytes: &[u8]) {
    let mut verifier = department::verifier();
    for at in 0..bytes.len() {
        for change in [1, 2, 4, 8, 0x10, 0x40, 0x80, 0xFF] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= change;
            let (ours, theirs) = (verifier.accepts(&damaged), department::read_verified(&damaged).is_ok());
            assert_eq!(ours, theirs, "byte {at} changed by {change:#x} in {bytes:02x?}");
        }
    }
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        let (ours, theirs) = (verifier.accepts(cut), department::read_verified(cut).is_ok());
        assert_eq!(ours, theirs, "{length} bytes of {bytes:02x?}");
    }
}

/// One alternative: its group, its name, and its initialization.
struct Way {
    group: &'static str,
    name: &'static str,
    make: for<'a> fn(&'a Forms) -> Work<'a>,
}

/// Calls `work` with the items in turn, as often as requested.
fn each<'a, T: Sync>(things: &'a [T], mut work: impl FnMut(&T) -> u64 + Send + 'a) -> Work<'a> {
    let mut next = things.iter().cycle();
    Box::new(move |calls| {
        let things = next.by_ref().take(calls as usize);
        things.fold(0, |sum, thing| work(black_box(thing)).wrapping_add(sum))
    })
}

/// Returns the length as the result of a writer; black_box makes the bytes observable.
fn written(bytes: &[u8]) -> u64 {
    black_box(bytes).len() as u64
}

fn encode<'a>(message: &proto::Department, bytes: &'a mut Vec<u8>) -> &'a [u8] {
    bytes.clear();
    message.encode(bytes).expect("a vector takes everything");
    bytes
}

fn decode(bytes: &[u8]) -> u64 {
    sum_message(&proto::Department::decode(bytes).expect("it decodes"))
}

fn merge(bytes: &[u8], message: &mut proto::Department) -> u64 {
    message.clear();
    message.merge(bytes).expect("it decodes");
    sum_message(message)
}

fn verified(bytes: &[u8]) -> u64 {
    department::read_verified(bytes).expect("it verifies")
}

fn checked(verifier: &mut PayloadVerifier, bytes: &[u8]) -> u64 {
    department::read_checked(verifier, bytes).expect("it verifies")
}

fn serializing() -> [Way; 5] {
    let group = "serialize";
    [
        Way {
            group,
            name: "FlatBuffers, as flatc generates it",
            make: |forms| {
                let mut builder = Builder::default();
                each(&forms.values, move |values| written(builder.as_generated(values)))
            },
        },
        Way {
            group,
            name: "FlatBuffers, tables in one piece",
            make: |forms| {
                let mut builder = Builder::default();
                each(&forms.values, move |values| written(builder.tables_whole(values)))
            },
        },
        Way {
            group,
            name: "FlatBuffers, tables in one piece, by layouts",
            make: |forms| {
                let mut writer = LayoutWriter::default();
                each(&forms.values, move |values| written(writer.write(values)))
            },
        },
        Way {
            group,
            name: "prost, existing message",
            make: |forms| {
                let mut bytes = Vec::new();
                each(&forms.messages, move |message| written(encode(message, &mut bytes)))
            },
        },
        Way {
            group,
            name: "prost, message built from the values",
            make: |forms| {
                let mut bytes = Vec::new();
                each(&forms.values, move |values| written(encode(&message(values), &mut bytes)))
            },
        },
    ]
}

fn deserializing() -> [Way; 5] {
    let group = "deserialize";
    [
        Way {
            group,
            name: "FlatBuffers, verified",
            make: |forms| each(&forms.flat, |bytes| verified(bytes)),
        },
        Way {
            group,
            name: "FlatBuffers, verified, each vtable once",
            make: |forms| {
                let mut verifier = department::verifier();
                each(&forms.flat, move |bytes| checked(&mut verifier, bytes))
            },
        },
        Way {
            group,
            name: "FlatBuffers, not verified (`unsafe`)",
            // SAFETY: the same bytes were verified when they were created.
            make: |forms| each(&forms.flat, |bytes| unsafe { department::read_unverified(bytes) }),
        },
        Way { group, name: "prost, decode", make: |forms| each(&forms.proto, |bytes| decode(bytes)) },
        Way {
            group,
            name: "prost, merge into a cleared message",
            make: |forms| {
                let mut message = proto::Department::default();
                each(&forms.proto, move |bytes| merge(bytes, &mut message))
            },
        },
    ]
}

fn round_trips() -> [Way; 5] {
    let group = "round trip";
    [
        Way {
            group,
            name: "FlatBuffers, as flatc generates it, verified",
            make: |forms| {
                let mut builder = Builder::default();
                each(&forms.values, move |values| verified(black_box(builder.as_generated(values))))
            },
        },
        Way {
            group,
            name: "FlatBuffers, as flatc generates it, verified, each vtable once",
            make: |forms| {
                let mut builder = Builder::default();
                let mut verifier = department::verifier();
                each(&forms.values, move |values| {
                    checked(&mut verifier, black_box(builder.as_generated(values)))
                })
            },
        },
        Way {
            group,
            name: "FlatBuffers, tables in one piece, verified, each vtable once",
            make: |forms| {
                let mut builder = Builder::default();
                let mut verifier = department::verifier();
                each(&forms.values, move |values| {
                    checked(&mut verifier, black_box(builder.tables_whole(values)))
                })
            },
        },
        Way {
            group,
            name: "prost, existing message, decode",
            make: |forms| {
                let mut bytes = Vec::new();
                each(&forms.messages, move |message| decode(black_box(encode(message, &mut bytes))))
            },
        },
        Way {
            group,
            name: "prost, existing message, merge",
            make: |forms| {
                let (mut bytes, mut read) = (Vec::new(), proto::Department::default());
                each(&forms.messages, move |message| merge(black_box(encode(message, &mut bytes)), &mut read))
            },
        },
    ]
}

/// Measures the alternatives of one group and prints a row for each.
fn measure(ways: &[Way], forms: &Forms, (books, threads): (usize, usize)) {
    let runner = |way: &Way| Runner::new(threads, TURN, || (way.make)(forms));
    let mut runners: Vec<_> = ways.iter().map(runner).collect();
    let seconds = rounds(&mut runners, ROUNDS);
    let median = |at: &usize| Quartiles::of(seconds[*at].iter().copied()).median;
    let rivals = (0..ways.len()).filter(|&at| ways[at].name.starts_with("prost"));
    let best = rivals.min_by(|a, b| median(a).total_cmp(&median(b))).expect("prost has a row in each group");
    for (at, way) in ways.iter().enumerate() {
        let beside = Quartiles::of_ratios(&seconds[best], &seconds[at]);
        println!(
            "| {books} | {threads} | {} | {} | {:.0} | {:.2} ({:.2} to {:.2}) |",
            way.group,
            way.name,
            threads as f64 / median(&at) / 1e3,
            beside.median,
            beside.low,
            beside.high
        );
    }
}

fn main() {
    println!(
        "| books | threads | group | method | 1,000 operations/s | speed / prost's best (middle half) |"
    );
    println!("|---|---|---|---|---|---|");
    for books in [1, 10] {
        let forms = Forms::new(books);
        let mean = |all: &[Vec<u8>]| all.iter().map(Vec::len).sum::<usize>() as f64 / all.len() as f64;
        let proto = mean(&forms.proto);
        let sizes = [
            ("FlatBuffers, as flatc generates it", &forms.flat),
            ("FlatBuffers, tables in one piece", &forms.flat_whole),
        ];
        for (name, all) in sizes {
            println!(
                "| {books} | - | size | {name} | {:.0} B | {:.2} x the bytes |",
                mean(all),
                mean(all) / proto
            );
        }
        println!("| {books} | - | size | prost | {proto:.0} B | 1.00 x the bytes |");
        for threads in [1, 4] {
            measure(&serializing(), &forms, (books, threads));
            measure(&deserializing(), &forms, (books, threads));
            measure(&round_trips(), &forms, (books, threads));
        }
    }
}
