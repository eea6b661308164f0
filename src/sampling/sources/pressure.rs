//! `pressure`: how long tasks were held up for want of processors, memory, I/O and by interrupts, from /proc/pressure.

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{Pressure, PressureArgs, PressureLine};

/// In the order of the schema. Interrupts are there since Linux 6.1, where the kernel accounts for them.
const FILES: [&str; 4] =
    ["proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/pressure/irq"];
const IRQ: usize = 3;
const HINT: &str = ": this kernel has no pressure stall information (CONFIG_PSI, boot parameter psi=1)";

pub(super) const ENTRY: Entry = Entry {
    name: "pressure",
    root: "flatcap.host.Pressure",
    schema: include_bytes!("../../../generated/host/pressure.bfbs"),
    files: &FILES,
    refresh: "totals 25 to 30 times a second, averages each 2 s",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Sampler>, Unavailable> {
    let mut files = Vec::new();
    for (index, path) in FILES.into_iter().enumerate() {
        match host_file(opening.host, path, HINT) {
            Ok(file) => files.push((path, file)),
            Err(_) if index == IRQ => {}
            Err(unavailable) => return Err(unavailable),
        }
    }
    Ok(Box::new(PressureSampler { files }))
}

#[derive(Debug)]
struct PressureSampler {
    files: Vec<(&'static str, HostFile)>, // in the order of FILES; the last may be missing
}

/// The lines of one file.
#[derive(Debug, Default, PartialEq)]
struct Lines {
    some: Option<PressureLine>,
    full: Option<PressureLine>,
}

impl Sampler for PressureSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        for (path, file) in &mut self.files {
            file.read().map_err(|error| ReadError { file: path, error })?;
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut files = self.files.iter();
        let mut is_whole = true;
        let [cpu, memory, io, irq] = [(); 4].map(|()| match files.next() {
            Some((_, file)) => {
                let (lines, all) = parse(file.content());
                is_whole &= all;
                lines
            }
            None => Lines::default(),
        });
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
        Shortfall::UNREADABLE.unless(is_whole)
    }
}

fn parse(content: &[u8]) -> (Lines, bool) {
    let (lines, cut) = text::whole_lines(content);
    let mut is_whole = cut.is_none();
    let mut parsed = Lines::default();
    for line in lines {
        let mut fields = text::fields(line);
        let place = match fields.next() {
            Some(b"some") => &mut parsed.some,
            Some(b"full") => &mut parsed.full,
            _ => {
                is_whole = false;
                continue;
            }
        };
        let mut value = |key: &[u8]| fields.next()?.strip_prefix(key);
        let averages = [&b"avg10="[..], b"avg60=", b"avg300="].map(|key| value(key).and_then(text::decimal));
        let total = value(b"total=").and_then(text::number);
        is_whole &= averages.iter().all(Option::is_some) && total.is_some();
        let [avg10, avg60, avg300] = averages.map(|average| average.unwrap_or(f64::NAN));
        *place = Some(PressureLine::new(avg10, avg60, avg300, total.unwrap_or(ABSENT)));
    }
    is_whole &= parsed.some.is_some() || parsed.full.is_some();
    (parsed, is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture};

    const TEXT: &[u8] =
        b"some avg10=0.10 avg60=2.00 avg300=3.85 total=15\nfull avg10=0.20 avg60=3.00 avg300=4.95 total=25\n";

    // Goal: every value is in its place, and a line that is not there stays absent. Method: files with one and two lines.
    #[test]
    fn every_value_is_in_its_place() {
        let some = PressureLine::new(0.1, 2.0, 3.85, 15);
        let full = PressureLine::new(0.2, 3.0, 4.95, 25);
        assert_eq!(parse(TEXT), (Lines { some: Some(some), full: Some(full) }, true));
        let one_line = TEXT.split_inclusive(|byte| *byte == b'\n').next().unwrap();
        assert_eq!(parse(one_line), (Lines { some: Some(some), full: None }, true));
    }

    // Goal: damaged text never panics and a cut file is never called whole. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let (lines, is_whole) = parse(text);
            is_whole && lines.some.is_some() && lines.full.is_some()
        });
        let (lines, is_whole) = parse(b"some avg10=x avg60=2.00 avg300=3.85 total=-1\n");
        let some = lines.some.unwrap();
        assert!(some.avg10().is_nan() && some.total() == ABSENT && !is_whole);
    }

    // Goal: a captured host is read whole. Method: each of its files.
    #[test]
    fn captured_hosts_are_read() {
        for path in FILES {
            if let Some(text) = fixture(path) {
                assert!(parse(&text).1, "{path}");
            }
        }
    }
}
