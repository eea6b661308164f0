//! `load`: load averages and numbers of tasks, from /proc/loadavg.

use std::time::Duration;

use flatcap_format::frame::{FrameTemplate, TemplateField, frame_template};
use flatcap_os::host::{HostFile, RecordStructure};
use flatcap_schemas::host::{Load, LoadArgs};

use super::text;
use super::{OWN_SCHEMA, OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{FixedSampler, Incomplete, OpenedSampler, ReadError, odd_text};

const FILE: &str = "proc/loadavg";

pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "load",
    about: "Load averages and the number of runnable tasks.",
    root: "flatcap.host.Load",
    schema: include_bytes!("../../../../generated/host/load.bfbs"),
    files: &[FILE],
    // The kernel computes load averages every 5 s. The count of runnable tasks changes faster.
    period: Duration::from_secs(1),
    is_on_by_default: true,
    refresh: "averages every 5 s, tasks immediately",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let averages = ["load1", "load5", "load15"];
    let counts = ["runnable", "tasks", "last_pid"];
    let paths = [averages, counts].concat();
    let template = frame_template((SPEC.schema, SPEC.root), &paths, |builder| {
        Load::create(builder, &LoadArgs::default())
    });
    Ok(OpenedSampler::fixed(LoadSampler {
        averages: averages.map(|path| template.field(path).expect(OWN_SCHEMA)),
        counts: counts.map(|path| template.field(path).expect(OWN_SCHEMA)),
        file: host_file(context.host, FILE, "")?.with_records(RecordStructure::One),
        template,
    }))
}

#[derive(Debug)]
struct LoadSampler {
    file: HostFile,
    template: FrameTemplate,
    averages: [TemplateField<f64>; 3],
    counts: [TemplateField<u64>; 3],
}

impl FixedSampler for LoadSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn template(&self) -> &FrameTemplate {
        &self.template
    }

    fn patch(&mut self, _seq: u64, payload: &mut [u8]) -> Incomplete {
        let (values, lacks) = parse(self.file.content());
        let incomplete = odd_text::in_file(lacks, self.file.content(), format_args!("/{FILE}"));
        let mut patch = self.template.patch(payload);
        let averages = [values.load1, values.load5, values.load15];
        self.averages.iter().zip(averages).for_each(|(slot, value)| patch.set(*slot, value));
        let counts = [values.runnable, values.tasks, values.last_pid];
        self.counts.iter().zip(counts).for_each(|(slot, value)| patch.set(*slot, value));
        incomplete
    }
}

fn parse(content: &[u8]) -> (LoadArgs, Incomplete) {
    let (mut lines, mut incomplete) = text::whole_lines(content);
    let mut fields = text::fields(lines.next().unwrap_or_default());
    let [load1, fifth, fifteenth] = [(); 3].map(|()| text::fraction(fields.next(), &mut incomplete));
    let counts = fields.next().unwrap_or_default().split(|byte| *byte == b'/');
    let ([runnable, tasks], lacks) = text::numbers(counts.filter(|count| !count.is_empty()));
    incomplete |= lacks;
    let last_pid = text::value(fields.next(), &mut incomplete);
    (LoadArgs { load1, load5: fifth, load15: fifteenth, runnable, tasks, last_pid }, incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_this_host};
    use crate::sources::text::ABSENT;

    // Proves that every value ends up in its field.
    #[test]
    fn every_value_is_in_its_place() {
        let (args, incomplete) = parse(b"0.25 1.50 12.00 3/456 78901\n");
        assert!(incomplete.is_none());
        assert_eq!(
            [args.load1, args.load5, args.load15].map(f64::to_bits),
            [0.25, 1.5, 12.0].map(f64::to_bits)
        );
        assert_eq!([args.runnable, args.tasks, args.last_pid], [3, 456, 78901]);
    }

    // Proves that damaged text never causes a panic and that a truncated file is always marked.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(b"0.25 1.50 12.00 3/456 78901\n", |text| parse(text).1.is_none());
        let (args, incomplete) = parse(b"x 1.50 12.00 3 78901\n");
        assert!(args.load1.is_nan() && args.tasks == ABSENT);
        assert_eq!(incomplete, Incomplete::UNREADABLE | Incomplete::CUT);
        assert_eq!(parse(b"0.25 1.50 12.00 3/456\n").1, Incomplete::CUT);
        assert_eq!(parse(b"0.25 1.50 12.00 3/456 x\n").1, Incomplete::UNREADABLE);
    }

    // Proves that the files of this host and files captured from other hosts are read completely.
    #[test]
    fn hosts_are_read() {
        let payload = sample_this_host(&SPEC);
        assert!(flatbuffers::root::<Load<'_>>(&payload).unwrap().tasks() > 1);
        if let Some(text) = fixture(FILE) {
            assert!(parse(&text).1.is_none());
        }
    }
}
