//! Compares the capture path with its targets on this machine and prints one table. With `--quick`
//! it takes a minute and judges nothing.
//!
//! `cargo bench --bench capture` runs everything in about half an hour and writes the table
//! as Markdown to target/capture.md, or to the file named by `FLATCAP_CAPTURE_REPORT`. Words after
//! `--` select the rows whose names contain one of them. A missed target does not fail the run,
//! since speed depends on the machine. A wrong count does: frames lost where none may be, or
//! recorded + lost not equal to begun.
//!
//! Rows are compared with bare loops that take turns with them in the same run; figures are medians
//! over the turns.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    unnameable_types,
    missing_debug_implementations,
    reason = "a bench sleeps, prints, computes in floating point, and panics if the machine lacks what it needs"
)]

mod bare;
mod ext4;
mod frames;
#[path = "../../tests/support/hooked_storage.rs"]
mod hooked_storage;
mod hosts;
mod lateness;
mod machine;
mod numbers;
mod pipeline;
mod producers;
mod program;
mod push;
mod sample;
mod stall;
mod start;
mod stop;
mod storms;
mod switches;
mod table;
mod tmpfs;
mod tracer;

use std::error::Error;
use std::process::ExitCode;

use table::{BenchLength, CaptureReport, RowFamily};

/// All measurements, in the order of the table.
const FAMILIES: [RowFamily; 21] = [
    RowFamily { rows: &["sample"], measure: sample::measure },
    RowFamily { rows: &["tmpfs"], measure: tmpfs::measure },
    RowFamily { rows: &["ext4"], measure: ext4::measure },
    RowFamily { rows: &["producers"], measure: producers::measure },
    RowFamily { rows: &["spin"], measure: lateness::spin },
    RowFamily { rows: &["precise"], measure: lateness::precise },
    RowFamily { rows: &["on-time", "recorder"], measure: hosts::measure },
    RowFamily { rows: &["stall"], measure: stall::measure },
    RowFamily { rows: &["push-rate"], measure: push::rate },
    RowFamily { rows: &["push-idle"], measure: push::idle },
    RowFamily { rows: &["push-hostile"], measure: push::hostile },
    RowFamily { rows: &["storm-frames"], measure: storms::million },
    RowFamily { rows: &["storm-verify"], measure: storms::expensive },
    RowFamily { rows: &["storm-triggers"], measure: storms::triggered },
    RowFamily { rows: &["storm-registrations"], measure: storms::registered },
    RowFamily { rows: &["storm-connections"], measure: storms::refused },
    RowFamily { rows: &["storm-all"], measure: storms::together },
    RowFamily { rows: &["switch-cost"], measure: switches::cost },
    RowFamily { rows: &["switch-flood"], measure: switches::flood },
    RowFamily { rows: &["start"], measure: start::measure },
    RowFamily { rows: &["stop"], measure: stop::measure },
];

/// The rows of one measurement.
pub type MeasuredRows = Result<Vec<table::CaptureRow>, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let length =
        if arguments.iter().any(|word| word == "--quick") { BenchLength::Quick } else { BenchLength::Full };
    // cargo adds `--bench`.
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let mut report = CaptureReport::new(length, &arguments);
    for family in &FAMILIES {
        if !family.is_selected(&words) {
            continue;
        }
        eprintln!("capture: {} ...", family.rows.join(", "));
        match (family.measure)(length) {
            Ok(rows) => report.rows.extend(rows.into_iter().filter(|row| row.is_selected(&words))),
            Err(error) => {
                eprintln!("capture: {}: {error}", family.rows.join(", "));
                report.failures.push(format!("{}: {error}", family.rows.join(", ")));
            }
        }
    }
    print!("{}", report.text());
    if let Err(error) = report.write() {
        eprintln!("capture: cannot write the report: {error}");
        return ExitCode::FAILURE;
    }
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
