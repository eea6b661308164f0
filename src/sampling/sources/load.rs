//! `load`: load averages and tasks, from /proc/loadavg.

use super::text;
use super::{Entry, OWN, host_file};
use crate::frame::{FrameTemplate, Slot, model};
use crate::os::host::{HostFile, Records};
use crate::sampling::{FixedSampler, Opened, ReadError, Shortfall};
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
        let averages = ["load1", "load5", "load15"];
        let counts = ["runnable", "tasks", "last_pid"];
        let paths = [averages, counts].concat();
        let model =
            model((ENTRY.schema, ENTRY.root), &paths, |builder| Load::create(builder, &LoadArgs::default()));
        Ok(Opened::fixed(LoadSampler {
            averages: averages.map(|path| model.slot(path).expect(OWN)),
            counts: counts.map(|path| model.slot(path).expect(OWN)),
            file: host_file(opening.host, FILE, "")?.of_records(Records::One),
            model,
        }))
    },
};

#[derive(Debug)]
struct LoadSampler {
    file: HostFile,
    model: FrameTemplate,
    averages: [Slot<f64>; 3],
    counts: [Slot<u64>; 3],
}

impl FixedSampler for LoadSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn model(&self) -> &FrameTemplate {
        &self.model
    }

    fn patch(&mut self, _seq: u64, payload: &mut [u8]) -> Shortfall {
        let (values, shortfall) = parse(self.file.content());
        let mut patch = self.model.patch(payload);
        let averages = [values.load1, values.load5, values.load15];
        self.averages.iter().zip(averages).for_each(|(slot, value)| patch.set(*slot, value));
        let counts = [values.runnable, values.tasks, values.last_pid];
        self.counts.iter().zip(counts).for_each(|(slot, value)| patch.set(*slot, value));
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
