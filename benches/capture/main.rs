//! Does capture keep its promises on this machine? Budget: a table that puts each target beside what was reached; with `--quick`
//! 30 s and no judgement.
//!
//! `cargo bench --bench capture` runs everything (about a quarter of an hour) and writes the table as Markdown to target/capture.md or to
//! where `FLATCAP_CAPTURE_REPORT` says. Words after `--` choose the rows whose names contain one of them. A target that is missed
//! fails nothing, since speed belongs to a machine; a count that does not add up does: frames lost where none may be, or
//! recorded + lost that is not what was begun.
//!
//! Rivals are bare loops in the same run, in turns with what they are compared to; figures are medians over the turns.
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
    reason = "a bench sleeps, prints, counts in floating point, and ends where the machine lacks what it needs"
)]

mod bare;
mod ext4;
mod frames;
mod hosts;
mod lateness;
mod lines;
mod machine;
mod numbers;
mod producers;
mod program;
mod sample;
mod stall;
mod start;
mod stop;
mod table;
mod tmpfs;
mod tracer;

use std::error::Error;
use std::process::ExitCode;

use table::{Family, Length, Report};

/// Every question, in the order of the table.
const FAMILIES: [Family; 10] = [
    Family { rows: &["sample"], measure: sample::measure },
    Family { rows: &["tmpfs"], measure: tmpfs::measure },
    Family { rows: &["ext4"], measure: ext4::measure },
    Family { rows: &["producers"], measure: producers::measure },
    Family { rows: &["spin"], measure: lateness::spin },
    Family { rows: &["precise"], measure: lateness::precise },
    Family { rows: &["on-time", "recorder"], measure: hosts::measure },
    Family { rows: &["stall"], measure: stall::measure },
    Family { rows: &["start"], measure: start::measure },
    Family { rows: &["stop"], measure: stop::measure },
];

/// What a row's measurement comes to.
pub type Measured = Result<Vec<table::Row>, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let length = if arguments.iter().any(|word| word == "--quick") { Length::Quick } else { Length::Full };
    // cargo adds `--bench`.
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let mut report = Report::new(length, &arguments);
    for family in &FAMILIES {
        if !family.is_asked(&words) {
            continue;
        }
        eprintln!("capture: {} ...", family.rows.join(", "));
        match (family.measure)(length) {
            Ok(rows) => report.rows.extend(rows.into_iter().filter(|row| row.is_asked(&words))),
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
