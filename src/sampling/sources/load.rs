//! `load`: load averages and tasks, from /proc/loadavg.

use flatbuffers::FlatBufferBuilder;

use super::text;
use super::{Entry, host_file};
use crate::os::host::{HostFile, Records};
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{Load, LoadArgs};

const FILE: &str = "proc/loadavg";

pub(super) const ENTRY: Entry = Entry {
    name: "load",
    root: "flatcap.host.Load",
    schema: include_bytes!("../../../generated/host/load.bfbs"),
    files: &[FILE],
    refresh: "averages each 5 s, tasks at once",
    selects: "",
    needs: &[],
    open: |opening| {
        Ok(Box::new(LoadSampler { file: host_file(opening.host, FILE, "")?.of_records(Records::One) }))
    },
};

#[derive(Debug)]
struct LoadSampler {
    file: HostFile,
}

impl Sampler for LoadSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let (values, shortfall) = parse(self.file.content());
        let root = Load::create(builder, &values);
        builder.finish_minimal(root);
        shortfall
    }
}

fn parse(content: &[u8]) -> (LoadArgs, Shortfall) {
    let (mut lines, mut shortfall) = text::whole_lines(content);
    let mut fields = text::fields(lines.next().unwrap_or_default());
    let [load1, fifth, fifteenth] = [(); 3].map(|()| text::fraction(fields.next(), &mut shortfall));
    let counts = fields.next().unwrap_or_default().split(|byte| *byte == b'/');
    let ([runnable, tasks], lacks) = text::numbers(counts.filter(|count| !count.is_empty()));
    shortfall |= lacks;
    let last_pid = text::value(fields.next(), &mut shortfall);
    (LoadArgs { load1, load5: fifth, load15: fifteenth, runnable, tasks, last_pid }, shortfall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled};
    use crate::sampling::sources::text::ABSENT;

    // Goal: every value is in its place. Method: a file with all values different.
    #[test]
    fn every_value_is_in_its_place() {
        let (args, shortfall) = parse(b"0.25 1.50 12.00 3/456 78901\n");
        assert!(shortfall.is_none());
        assert_eq!(
            [args.load1, args.load5, args.load15].map(f64::to_bits),
            [0.25, 1.5, 12.0].map(f64::to_bits)
        );
        assert_eq!([args.runnable, args.tasks, args.last_pid], [3, 456, 78901]);
    }

    // Goal: damaged text never panics and a cut file is never called whole. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(b"0.25 1.50 12.00 3/456 78901\n", |text| parse(text).1.is_none());
        let (args, shortfall) = parse(b"x 1.50 12.00 3 78901\n");
        assert!(args.load1.is_nan() && args.tasks == ABSENT);
        assert_eq!(shortfall, Shortfall::UNREADABLE | Shortfall::CUT);
        assert_eq!(parse(b"0.25 1.50 12.00 3/456\n").1, Shortfall::CUT);
        assert_eq!(parse(b"0.25 1.50 12.00 3/456 x\n").1, Shortfall::UNREADABLE);
    }

    // Goal: live and captured hosts are read whole. Method: the verifier, and the file itself.
    #[test]
    fn hosts_are_read() {
        let payload = sampled(&ENTRY);
        assert!(flatbuffers::root::<Load<'_>>(&payload).unwrap().tasks() > 1);
        if let Some(text) = fixture(FILE) {
            assert!(parse(&text).1.is_none());
        }
    }
}
