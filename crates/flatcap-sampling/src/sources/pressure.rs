//! `pressure`: pressure stall information (PSI), from /proc/pressure. PSI is the time that tasks
//! waited for processors, memory and I/O, or were delayed by interrupts.

use std::io;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::{HostFile, RecordStructure};
use flatcap_schemas::host::{Pressure, PressureArgs, PressureLine};

use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

/// Paths of the files, in the order of the schema. The file `irq` exists since Linux 6.1, if the
/// kernel accounts for the time of interrupts.
const FILES: [&str; 4] =
    ["proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/pressure/irq"];
const IRQ: usize = 3;

/// `include` and `exclude` match the resources `cpu`, `memory`, `io` and `irq`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "pressure",
    about: "Pressure stall information: how long tasks waited for processor, memory and disk.",
    root: "flatcap.host.Pressure",
    schema: include_bytes!("../../../../generated/host/pressure.bfbs"),
    files: &FILES,
    // The kernel updates these totals 25 to 30 times a second.
    period: Duration::from_millis(50),
    is_on_by_default: true,
    refresh: "totals 25 to 30 times a second, averages every 2 s",
    selects: "resources: cpu, memory, io, irq",
    hint: ": this kernel has no pressure stall information (CONFIG_PSI, boot parameter psi=1)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let selection = context.selection();
    let mut files = [const { None }; 4];
    let (mut refused, mut refusal) = (Incomplete::NONE, None);
    for (index, (path, file)) in FILES.into_iter().zip(&mut files).enumerate() {
        let resource = path.rsplit('/').next().unwrap_or_default();
        if !selection.matches(resource.as_bytes()) {
            continue;
        }
        match host_file(context.host, path, SPEC.hint) {
            Ok(opened) => *file = Some((path, opened.with_records(RecordStructure::One))),
            Err(_) if index == IRQ => {}
            Err(unavailable) => {
                refused |= incomplete_reason(&unavailable.error);
                refusal.get_or_insert(unavailable);
            }
        }
    }
    if let Some(refusal) = refusal {
        if files.iter().all(Option::is_none) {
            return Err(refusal);
        }
        tracing::warn!(source = SPEC.name, error = %refusal, "only the other resources are recorded");
    }
    Ok(OpenedSampler::built(PressureSampler { files, refused, failed: refused, seen: Default::default() }))
}

/// Returns the reason why the values of a file are not in the samples.
fn incomplete_reason(error: &io::Error) -> Incomplete {
    match error.kind() {
        io::ErrorKind::NotFound => Incomplete::NONE,
        io::ErrorKind::PermissionDenied => Incomplete::DENIED,
        _ => Incomplete::UNREADABLE,
    }
}

#[derive(Debug)]
struct PressureSampler {
    files: [Option<(&'static str, HostFile)>; 4], // in the order of FILES; `None` if unwanted
    refused: Incomplete,                          // reasons why others could not be opened
    failed: Incomplete,                           // reasons from the last read
    seen: [LinesSeen; 4],
}

/// Flags for the lines that the file has contained at any time.
#[derive(Debug, Clone, Copy, Default)]
struct LinesSeen {
    some: bool,
    full: bool,
}

/// The lines of one file.
#[derive(Debug, Default, PartialEq)]
struct PressureLines {
    some: Option<PressureLine>,
    full: Option<PressureLine>,
}

impl Sampler for PressureSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.failed = self.refused;
        let (mut has_read, mut failure) = (false, None);
        for (path, file) in self.files.iter_mut().flatten() {
            match file.read() {
                Ok(()) => has_read = true,
                Err(error) => {
                    self.failed |= incomplete_reason(&error);
                    failure = Some(ReadError { file: path, error });
                }
            }
        }
        match failure {
            Some(failure) if !has_read => Err(failure),
            _ => Ok(()),
        }
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.failed;
        let mut lines = [const { PressureLines { some: None, full: None } }; 4];
        for ((file, lines), seen) in self.files.iter().zip(&mut lines).zip(&mut self.seen) {
            let Some((path, file)) = file else { continue };
            // The content is empty if the file could not be read.
            let is_failed = file.content().is_empty() && !self.failed.is_none();
            let (parsed, lacks) = if is_failed { Default::default() } else { parse(file.content()) };
            let lacks = odd_text::in_file(lacks, file.content(), format_args!("/{path}"));
            // A line that was present in an earlier read and is now absent is reported as missing.
            let all_present = (parsed.some.is_some() || !seen.some) && (parsed.full.is_some() || !seen.full);
            incomplete |= lacks | Incomplete::MISSING.unless(all_present);
            seen.some |= parsed.some.is_some();
            seen.full |= parsed.full.is_some();
            *lines = parsed;
        }
        let [cpu, memory, io, irq] = lines;
        let root = Pressure::create(
            builder,
            &PressureArgs {
                cpu_some: cpu.some.as_ref(),
                cpu_full: cpu.full.as_ref(),
                memory_some: memory.some.as_ref(),
                memory_full: memory.full.as_ref(),
                io_some: io.some.as_ref(),
                io_full: io.full.as_ref(),
                irq_full: irq.full.as_ref(),
            },
        );
        builder.finish_minimal(root);
        incomplete
    }
}

fn parse(content: &[u8]) -> (PressureLines, Incomplete) {
    let (lines, mut incomplete) = text::whole_lines(content);
    let mut parsed = PressureLines::default();
    for line in lines {
        let mut fields = text::fields(line);
        let place = match fields.next() {
            Some(b"some") => &mut parsed.some,
            Some(b"full") => &mut parsed.full,
            _ => {
                incomplete |= odd_text::unreadable(line);
                continue;
            }
        };
        // A value that follows another key is invalid.
        let mut value = |key: &[u8]| fields.next().map(|field| field.strip_prefix(key).unwrap_or_default());
        let [avg10, avg60, avg300] =
            [&b"avg10="[..], b"avg60=", b"avg300="].map(|key| text::fraction(value(key), &mut incomplete));
        let total = text::value(value(b"total="), &mut incomplete);
        *place = Some(PressureLine::new(avg10, avg60, avg300, total));
    }
    incomplete |= Incomplete::CUT.unless(parsed.some.is_some() || parsed.full.is_some());
    (parsed, incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, open_sampler};
    use crate::sources::text::ABSENT;

    const TEXT: &[u8] =
        b"some avg10=0.10 avg60=2.00 avg300=3.85 total=15\nfull avg10=0.20 avg60=3.00 avg300=4.95 total=25\n";

    // Proves that every value ends up in its field, and that a line that does not exist stays
    // absent.
    #[test]
    fn every_value_is_in_its_place() {
        let some = PressureLine::new(0.1, 2.0, 3.85, 15);
        let full = PressureLine::new(0.2, 3.0, 4.95, 25);
        assert_eq!(parse(TEXT), (PressureLines { some: Some(some), full: Some(full) }, Incomplete::NONE));
        let one_line = TEXT.split_inclusive(|byte| *byte == b'\n').next().unwrap();
        assert_eq!(parse(one_line), (PressureLines { some: Some(some), full: None }, Incomplete::NONE));
    }

    // Proves that a file that cannot be opened, or that can no longer be read, makes only its own
    // values absent.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the test's own host")]
    fn a_refused_file_costs_only_its_values() {
        for refused in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("proc/pressure")).unwrap();
            for (at, file) in FILES.iter().enumerate().take(3) {
                let path = folder.path().join(file);
                if at == refused {
                    std::os::unix::fs::symlink(path.file_name().unwrap(), &path).unwrap(); // to itself
                } else {
                    std::fs::write(path, TEXT).unwrap();
                }
            }
            let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
            sampler.read().unwrap();
            let mut builder = flatbuffers::FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::UNREADABLE);
            let pressure = flatbuffers::root::<Pressure<'_>>(builder.finished_data()).unwrap();
            let lines = [pressure.cpu_full(), pressure.memory_full(), pressure.io_full()];
            let found: Vec<bool> = lines.iter().map(Option::is_some).collect();
            let expected: Vec<bool> = (0..3).map(|at| at != refused).collect();
            assert_eq!(found, expected);
        }
    }

    // Proves that damaged text never causes a panic and that a truncated file is always marked.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (lines, incomplete) = parse(text);
            incomplete.is_none() && lines.some.is_some() && lines.full.is_some()
        });
        let (lines, incomplete) = parse(b"some avg10=x avg60=2.00 avg300=3.85 total=-1\n");
        let some = lines.some.unwrap();
        assert!(some.avg10().is_nan() && some.total() == ABSENT);
        assert_eq!(incomplete, Incomplete::UNREADABLE);
        assert_eq!(parse(b"some avg10=1.00 avg60=2.00 avg300=3.85\n").1, Incomplete::CUT);
        assert_eq!(parse(b"none avg10=1.00\n").1, Incomplete::UNREADABLE | Incomplete::CUT);
    }

    // Proves that resources are selected by name, so that a host may lack unwanted resources, and
    // that a line that disappears is marked as missing.
    #[test]
    fn resources_are_chosen_and_lines_missed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/pressure")).unwrap();
        std::fs::write(folder.path().join(FILES[1]), TEXT).unwrap();
        let mut sampler = open_sampler(&SPEC, "include = [\"mem*\"]", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            sampler.read().unwrap();
            (sampler.build(0, &mut builder), builder.finished_data().to_vec())
        };
        let (incomplete, payload) = sample();
        let pressure = flatbuffers::root::<Pressure<'_>>(&payload).unwrap();
        assert!(pressure.memory_full().is_some() && pressure.cpu_some().is_none() && incomplete.is_none());
        let one_line = TEXT.split_inclusive(|byte| *byte == b'\n').next().unwrap();
        std::fs::write(folder.path().join(FILES[1]), one_line).unwrap();
        assert_eq!(sample().0, Incomplete::MISSING);
        assert!(open_sampler(&SPEC, "exclude = [\"mem*\"]", folder.path()).is_err());
    }

    // Proves that the files captured from a host are read completely.
    #[test]
    fn captured_hosts_are_read() {
        for path in FILES {
            if let Some(text) = fixture(path) {
                assert!(parse(&text).1.is_none(), "{path}");
            }
        }
    }
}
