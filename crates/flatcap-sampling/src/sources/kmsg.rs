//! `kmsg`: the lines of the kernel log, from /dev/kmsg.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_os::kernel_log::{KernelLog, KernelRecord, LogStart, RECORD_BYTES_MAX, RecordRead, unescape};
use flatcap_tasks::schema::{KMSG, KMSG_ROOT, Kmsg, KmsgArgs, LogLine, LogLineArgs};

use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, ReadError, Sampler};

const FILE: &str = "dev/kmsg";
/// Maximum number of lines in a sample, and maximum number of bytes of their records. Further lines
/// are in the next sample, unless the kernel overwrites them before that. A sample fits into the
/// smallest `frame_max`, and a storm of log lines takes at most about 4 ms of each second.
const LINES_MAX: usize = 256;
const BYTES_MAX: usize = 48 << 10;
/// Number of bytes that a line needs in a payload in addition to its text. These bytes are for the
/// line's table, and for the offsets, length and padding of the table and the text.
const LINE_EXTRA_BYTES: usize = 64;
const _: () = assert!(BYTES_MAX + LINES_MAX * LINE_EXTRA_BYTES <= 64 << 10);
/// Maximum length of a text. The kernel truncates a text to 2,048 bytes.
const TEXT_BYTES_MAX: usize = 4096;

pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "kmsg",
    about: "Lines of the kernel log, from the start of the recorder on.",
    root: KMSG_ROOT,
    schema: KMSG,
    files: &[FILE],
    // A short period matters, because the last lines before a crash are the most important ones,
    // and lines that the kernel overwrites are lost. A sample without lines costs one system call.
    period: Duration::from_millis(100),
    refresh: "at each line",
    needs: &["CAP_SYSLOG (if kernel.dmesg_restrict is 1)"],
    hint: ": the kernel log needs /dev/kmsg, and CAP_SYSLOG unless kernel.dmesg_restrict is 0",
    keys: OwnKeys::Batches,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let log = KernelLog::open(&context.host.path(FILE), LogStart::Next).map_err(|error| Unavailable {
        file: FILE,
        error,
        hint: SPEC.hint,
    })?;
    Ok(OpenedSampler::built(KmsgSampler::new(log)))
}

#[derive(Debug)]
struct KmsgSampler<F = File> {
    log: KernelLog<F>,
    records: Box<[u8]>,                      // records of the last read, one after another
    ends: Vec<usize>,                        // end of each of these records
    next_sequence: Option<u64>,              // `None` before the first line
    lost: u64,                               // number of lost lines
    text: Vec<u8>,                           // reused
    valid_text: String,                      // reused
    lines: Vec<WIPOffset<LogLine<'static>>>, // reused
}

impl<F: Read> KmsgSampler<F> {
    fn new(log: KernelLog<F>) -> Self {
        Self {
            log,
            records: vec![0; BYTES_MAX].into_boxed_slice(),
            ends: Vec::with_capacity(LINES_MAX),
            next_sequence: None,
            lost: 0,
            text: Vec::with_capacity(TEXT_BYTES_MAX),
            valid_text: String::with_capacity(TEXT_BYTES_MAX),
            lines: Vec::with_capacity(LINES_MAX),
        }
    }
}

impl<F: Read + std::fmt::Debug + Send> Sampler for KmsgSampler<F> {
    fn read(&mut self) -> Result<(), ReadError> {
        self.ends.clear();
        let mut begin = 0;
        for _ in 0..LINES_MAX {
            let Some(space) = self.records.get_mut(begin..begin + RECORD_BYTES_MAX) else { break };
            match self.log.read(space).map_err(|error| ReadError { file: FILE, error })? {
                RecordRead::Record(record) => {
                    begin += record.len();
                    self.ends.push(begin);
                }
                // The number of the next line shows how many lines were lost. Before the first line
                // there is no number to compare with, so one lost line, which is the minimum, is
                // counted.
                RecordRead::Overwritten if self.next_sequence.is_none() && self.ends.is_empty() => {
                    self.lost += 1;
                }
                RecordRead::Overwritten => {}
                RecordRead::End => break,
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { records, ends, next_sequence, lost, text, valid_text, lines, .. } = self;
        let mut incomplete = Incomplete::NONE;
        let mut begin = 0;
        lines.clear();
        for end in ends {
            let record = KernelRecord::parse(records.get(begin..*end).unwrap_or_default());
            begin = *end;
            let Some(record) = record else {
                incomplete |= Incomplete::UNREADABLE;
                continue;
            };
            *lost += next_sequence.map_or(0, |next| record.sequence.saturating_sub(next));
            *next_sequence = Some(record.sequence.saturating_add(1));
            text.clear();
            unescape(record.text, text);
            incomplete |= Incomplete::CUT.unless(set_valid_text(text, valid_text));
            let text = Some(builder.create_string(valid_text));
            let line = LogLineArgs {
                time: record.mono_us.saturating_mul(1000),
                sequence: record.sequence,
                priority: record.priority,
                facility: record.facility,
                text,
            };
            lines.push(LogLine::create(builder, &line));
        }
        let lines = Some(builder.create_vector(lines));
        let root = Kmsg::create(builder, &KmsgArgs { lines, lost: *lost });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Replaces the content of `valid` by a text of at most [`TEXT_BYTES_MAX`] bytes. In this text, the
/// replacement character replaces bytes that are not UTF-8. Returns false if the text was
/// truncated.
fn set_valid_text(text: &[u8], valid: &mut String) -> bool {
    valid.clear();
    for chunk in text.utf8_chunks() {
        let replaced = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
        for char in chunk.valid().chars().chain(replaced) {
            if valid.len() + char.len_utf8() > TEXT_BYTES_MAX {
                return false;
            }
            valid.push(char);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Write};

    use flatcap_os::kernel_log::Records;

    use super::*;
    use crate::sources::tests::{decoded, host_with, open_source};

    /// Returns the payload of the next sample, decoded, and whether it is complete.
    fn sample(sampler: &mut KmsgSampler<Records>) -> (serde_json::Value, Incomplete) {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        let incomplete = sampler.build(0, &mut builder);
        (decoded(&SPEC, builder.finished_data()), incomplete)
    }

    fn sampler(records: Vec<io::Result<String>>) -> KmsgSampler<Records> {
        KmsgSampler::new(KernelLog::of(Records(records)))
    }

    fn overwritten() -> io::Result<String> {
        Err(ErrorKind::BrokenPipe.into())
    }

    // Proves that lines have their time, number, priority, facility and text, without the names of
    // devices, and that bytes that are not UTF-8 are replaced.
    #[test]
    fn lines_are_decoded() {
        let records = [
            "4,70,8000001,-;EXT4-fs (vda): a \\x09tab, \\xc3\\xa4 and \\xff\n SUBSYSTEM=block\n DEVICE=b8:0\n",
            "30,71,9000000,-,caller=T1;systemd[1]: hello\n",
        ];
        let (payload, incomplete) = sample(&mut sampler(records.map(|record| Ok(record.to_owned())).into()));
        let expected = serde_json::json!({"lines": [
            {"time": 8_000_001_000_u64, "sequence": 70, "priority": 4, "facility": 0,
                "text": "EXT4-fs (vda): a \ttab, \u{E4} and \u{FFFD}"},
            {"time": 9_000_000_000_u64, "sequence": 71, "priority": 6, "facility": 3,
                "text": "systemd[1]: hello"},
        ], "lost": 0});
        assert_eq!((payload, incomplete), (expected, Incomplete::NONE));
    }

    // Proves that lost lines are counted by their numbers, whether the kernel reports them or not.
    // A malformed record is marked and affects no other record.
    #[test]
    fn lost_lines_are_counted() {
        let line = |sequence: u64| Ok(format!("6,{sequence},1,-;a line"));
        let mut sampler = sampler(vec![
            overwritten(),
            line(5),
            line(6),
            overwritten(),
            line(9),
            Ok("no record".to_owned()),
            line(12),
        ]);
        let (payload, incomplete) = sample(&mut sampler);
        assert_eq!(payload["lines"].as_array().unwrap().len(), 4);
        assert_eq!((&payload["lost"], incomplete), (&(1 + 2 + 2).into(), Incomplete::UNREADABLE));
        sampler.log = KernelLog::of(Records(vec![overwritten(), line(23)]));
        assert_eq!(sample(&mut sampler).0["lost"], 1 + 2 + 2 + 10);
        assert_eq!(sample(&mut sampler).0["lines"], serde_json::json!([]));
    }

    // Proves that a storm of lines is spread over samples that fit into the smallest frame, and
    // that none of them is lost.
    #[test]
    fn samples_are_bounded() {
        for (lines, bytes) in [(2000_usize, 1), (200, 2048), (20, 8000)] {
            let record = |number: usize| Ok(format!("6,{number},1,-;{}", "x".repeat(bytes)));
            let mut sampler = sampler((0..lines).map(record).collect());
            let mut sequences = Vec::new();
            loop {
                let mut builder = FlatBufferBuilder::new();
                builder.force_defaults(true);
                sampler.read().unwrap();
                let incomplete = sampler.build(0, &mut builder);
                let payload = builder.finished_data();
                assert!(payload.len() < 64 << 10, "{}", payload.len());
                let kmsg = flatbuffers::root::<Kmsg<'_>>(payload).unwrap();
                if kmsg.lines().is_empty() {
                    break;
                }
                sequences.extend(kmsg.lines().iter().map(|line| line.sequence()));
                let length = bytes.min(TEXT_BYTES_MAX);
                assert!(kmsg.lines().iter().all(|line| line.text().len() == length));
                assert_eq!(incomplete, Incomplete::CUT.unless(bytes <= TEXT_BYTES_MAX));
                assert_eq!(kmsg.lost(), 0);
            }
            assert!(sequences.into_iter().eq(0..lines as u64));
        }
    }

    // Proves that a sample without lines has only the count of lost lines.
    #[test]
    fn an_empty_sample_is_small() {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let mut sampler = sampler(Vec::new());
        sampler.read().unwrap();
        assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
        assert!(builder.finished_data().len() <= 40, "{}", builder.finished_data().len());
    }

    // Proves that lines from before the source was opened are not recorded, and that later lines
    // are. The test uses a file in the place of the kernel log.
    #[test]
    fn recording_begins_at_the_end() {
        let host = host_with(&[(FILE, "6,1,1,-;before\n")]);
        let mut sampler = open_source(&SPEC, "", host.path()).unwrap();
        let mut log = std::fs::OpenOptions::new().append(true).open(host.path().join(FILE)).unwrap();
        log.write_all(b"6,2,1,-;after\n").unwrap();
        let mut builder = FlatBufferBuilder::new();
        sampler.read().unwrap();
        let (payload, _) = sampler.payload(0, &mut builder);
        let kmsg = flatbuffers::root::<Kmsg<'_>>(&payload).unwrap();
        assert!(kmsg.lines().iter().map(|line| line.text()).eq(["after"]));
    }

    // Proves that a line that is written to the log of this kernel is recorded exactly once and
    // completely. The test is skipped where the log cannot be written.
    #[test]
    fn a_line_of_this_kernel_is_recorded() {
        let root = std::path::Path::new("/");
        let writer = std::fs::OpenOptions::new().write(true).open("/dev/kmsg");
        let sampler = open_source(&SPEC, "", root);
        let (mut writer, mut sampler) = match (writer, sampler) {
            (Ok(writer), Ok(sampler)) => (writer, sampler),
            (Err(error), _) => return println!("skipped: /dev/kmsg cannot be written: {error}"),
            (_, Err(missing)) => return println!("skipped: {missing}"),
        };
        let text = format!("flatcap: a test of process {} wrote this, with \u{E4}", std::process::id());
        writer.write_all(format!("<6>{text}\n").as_bytes()).unwrap();
        sampler.read().unwrap();
        let (payload, incomplete) = sampler.payload(0, &mut FlatBufferBuilder::new());
        assert_eq!(incomplete, Incomplete::NONE);
        let kmsg = flatbuffers::root::<Kmsg<'_>>(&payload).unwrap();
        let found: Vec<LogLine<'_>> = kmsg.lines().iter().filter(|line| line.text() == text).collect();
        assert_eq!(found.len(), 1, "{kmsg:?}");
        // Programs cannot write lines with the facility of the kernel, so the facility is 1, which
        // is "user".
        assert_eq!((found[0].priority(), found[0].facility()), (6, 1));
    }
}
