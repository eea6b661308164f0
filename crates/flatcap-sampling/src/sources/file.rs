//! `file`: values in any file that the configuration names, one source per file.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{File, FileArgs};

use super::text_values::TextValues;
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, OwnSettings, ReadError, Sampler, TextOrigin};

/// Name by which error messages refer to the file. The configuration contains the path itself.
const FILE: &str = "[source.file.NAME] path";

/// `include` and `exclude` match the names of values.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "file",
    about: "Values in a file that the configuration names.",
    root: "flatcap.host.File",
    schema: include_bytes!("../../../../generated/host/file.bfbs"),
    // Reading a short file takes 5 us. A shorter period can be configured for a file that changes
    // faster.
    period: Duration::from_secs(1),
    is_on_by_default: true,
    may_block: true,
    refresh: "whenever the file is written",
    selects: "names of values",
    keys: OwnKeys::File,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let invalid = || Unavailable::of(ErrorKind::InvalidInput.into());
    let OwnSettings::Text(text, instance) = context.settings.own else { return Err(invalid()) };
    let TextOrigin::File(named) = &text.origin else { return Err(invalid()) };
    let unavailable = |error: io::Error| {
        Unavailable::of(io::Error::new(error.kind(), format!("{}: {error}", named.display())))
    };
    let path = context.host.path(&named.to_string_lossy());
    let path = CString::new(path.into_os_string().into_encoded_bytes())
        .map_err(|error| unavailable(error.into()))?;
    let mut file = HostFile::open_path(&path).map_err(unavailable)?;
    file.read().map_err(unavailable)?;
    Ok(OpenedSampler::built(FileSampler {
        path,
        file,
        values: TextValues::new(SPEC.name, (&text.format, instance), context.selection()),
    }))
}

#[derive(Debug)]
struct FileSampler {
    path: CString,
    file: HostFile,
    values: TextValues,
}

impl Sampler for FileSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        // The file is opened by name each time, because programs often replace a file instead of
        // rewriting it.
        let read = self.file.reopen_path(&self.path).and_then(|()| self.file.read());
        read.map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = self.values.parse(self.file.content(), builder);
        let values = Some(self.values.rows(builder));
        let counters = self.values.counters(builder);
        let gauges = self.values.gauges(builder);
        let skipped = self.values.skipped();
        let root = File::create(builder, &FileArgs { values, counters, gauges, skipped });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own that come and go")]
mod tests {
    use std::path::Path;

    use flatcap_format::schema::{CompiledSchema, JsonWriter};
    use flatcap_schemas::host::FileValue;

    use super::*;
    use crate::sources::tests::{decoded, open_sampler, sample_under};

    fn json(payload: &[u8]) -> String {
        let mut json = Vec::new();
        CompiledSchema::compile(SPEC.schema, SPEC.root)
            .unwrap()
            .walk(payload, &mut JsonWriter::new(&mut json))
            .unwrap();
        String::from_utf8(json).unwrap()
    }

    // Proves that the file at the path is still read after it was replaced, truncated, removed and
    // restored. Values that are not numbers are absent for readers.
    #[test]
    fn a_file_is_followed_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        std::fs::write(&path, "a 1\n").unwrap();
        let mut sampler = open_sampler(&SPEC, "path = \"/values\"", folder.path()).unwrap();
        let mut sample = || {
            sampler.read().ok()?;
            let mut builder = FlatBufferBuilder::new();
            let incomplete = sampler.build(0, &mut builder);
            Some((json(builder.finished_data()), incomplete))
        };
        let one = |name: &str, number: &str, integer: &str| {
            let value = format!(r#"{{"name":"{name}","number":{number},"integer":{integer}}}"#);
            format!(r#"{{"values":[{value}],"counters":null,"gauges":null,"skipped":0}}"#)
        };
        assert_eq!(sample(), Some((one("a", "1.0", "1"), Incomplete::NONE)));
        std::fs::write(folder.path().join("next"), "b 2.5\n").unwrap();
        std::fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(sample(), Some((one("b", "2.5", "null"), Incomplete::NONE)));
        std::fs::write(&path, "c x\nd 4").unwrap();
        let expected = Incomplete::UNREADABLE | Incomplete::CUT;
        let other = one("c", "null", "null").replace(":0}", ":1}");
        assert_eq!(sample(), Some((other, expected)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sample(), None);
        std::fs::write(&path, "e 5\n").unwrap();
        assert_eq!(sample(), Some((one("e", "5.0", "5"), Incomplete::NONE)));
    }

    /// Returns the payload of a text in this format as JSON, and the reasons why the payload is
    /// incomplete.
    fn sampled(keys: &str, text: &str) -> (serde_json::Value, Incomplete) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("values"), text).unwrap();
        let keys = format!("path = \"/values\"\n{keys}");
        let (payload, incomplete) = sample_under(&SPEC, &keys, folder.path());
        flatbuffers::root::<File<'_>>(&payload).unwrap();
        (decoded(&SPEC, &payload), incomplete)
    }

    // Proves that counters and gauges of the Prometheus format are kept apart and identified by
    // name and labels, and that patterns select names. Series that do not fit are counted.
    #[test]
    fn the_prometheus_format_is_recorded() {
        let text = "# TYPE http_requests_total counter\n\
            http_requests_total{method=\"get\",code=\"200\"} 1027\n\
            http_requests_total{code=\"400\",method=\"get\"} 3\n\
            # TYPE temperature gauge\ntemperature{room=\"a \\\"b\\\"\"} -2.5\ntemperature NaN\n\
            other 1\nno line\n";
        let keys = "format = \"prometheus\"\nexclude = [\"oth*\"]";
        let counter = |labels: &str, value: f64| serde_json::json!({"name": "http_requests_total", "labels": labels, "value": value});
        let gauge = |labels: &str, value: Option<f64>| serde_json::json!({"name": "temperature", "labels": labels, "value": value});
        let expected = serde_json::json!({
            "values": [],
            "counters": [
                counter("code=\"200\",method=\"get\"", 1027.0),
                counter("code=\"400\",method=\"get\"", 3.0),
            ],
            "gauges": [gauge("room=\"a \\\"b\\\"\"", Some(-2.5)), gauge("", None)],
            "skipped": 2,
        });
        assert_eq!(sampled(keys, text), (expected, Incomplete::UNREADABLE));
    }

    // Proves that numbers and booleans of JSON are gauges named by their paths. Strings are counted
    // but do not mark the sample, and a truncated document gives the values before its end.
    #[test]
    fn json_is_recorded() {
        let gauge = |name: &str, value: f64| serde_json::json!({"name": name, "labels": "", "value": value});
        let expected = |skipped: u64| {
            serde_json::json!({
                "values": [],
                "counters": [],
                "gauges": [gauge("a.0.b", 1.5), gauge("up", 1.0)],
                "skipped": skipped,
            })
        };
        let keys = "format = \"json\"\nexclude = [\"not.*\"]";
        let text = r#"{"a": [{"b": 1.5}], "not": {"this": 9}, "up": true, "host": "x"}"#;
        assert_eq!(sampled(keys, text), (expected(1), Incomplete::NONE));
        assert_eq!(sampled(keys, &text[..text.len() - 9]), (expected(0), Incomplete::CUT));
    }

    // Proves that the length of names, the labels and the number of values have limits, and that
    // values beyond a limit are counted and marked.
    #[test]
    fn series_have_limits() {
        let size = |value: &serde_json::Value| value["gauges"].as_array().unwrap().len();
        let (sample, incomplete) = sampled("format = \"prometheus\"", &"m 1\n".repeat(4100));
        assert_eq!((size(&sample), &sample["skipped"]), (4096, &4.into()));
        assert_eq!(incomplete, Incomplete::TOO_MANY);
        let fits = "x".repeat(1024);
        let text = format!("{fits} 1\n{fits}x 1\nm{{a=\"{}\"}} 1\nm{{a=\"{fits}\"}} 1\n", "x".repeat(1020));
        let (sample, incomplete) = sampled("format = \"prometheus\"", &text);
        assert_eq!((size(&sample), &sample["skipped"], incomplete), (2, &2.into(), Incomplete::UNREADABLE));
        let (sample, _) = sampled("format = \"json\"", &format!("{{\"{fits}\": [1], \"a\": 2}}"));
        assert_eq!((size(&sample), &sample["skipped"]), (1, &1.into()));
        let (sample, _) = sampled("format = \"json\"", &format!("[{}0]", "1,".repeat(4096)));
        assert_eq!((size(&sample), &sample["skipped"]), (4096, &1.into()));
    }

    // Proves that the error names a file that is missing or is not a regular file.
    #[test]
    fn an_unreadable_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = |path: &str| {
            open_sampler(&SPEC, &format!("path = \"{path}\""), folder.path()).unwrap_err().to_string()
        };
        assert!(error("/x/y").starts_with("/x/y: No such file"), "{}", error("/x/y"));
        std::fs::create_dir(folder.path().join("d")).unwrap();
        assert!(error("/d").starts_with("/d: Is a directory"), "{}", error("/d"));
        let device = open_sampler(&SPEC, "path = \"/dev/null\"", Path::new("/")).unwrap_err().to_string();
        assert!(device.starts_with("/dev/null: only regular files are read"), "{device}");
    }

    // Proves that a pipe or device is not even opened, because opening it could unblock a writer or
    // start a watchdog. A writer that waits for a reader of the pipe still waits afterwards.
    #[test]
    fn pipes_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("p");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            return println!("skipped: no mkfifo");
        }
        let mut writer =
            std::process::Command::new("sh").args(["-c", "echo > \"$0\""]).arg(&pipe).spawn().unwrap();
        let wait = || {
            flatcap_os::wake_event::WakeEvent::new()
                .wait_until(flatcap_os::clock::monotonic_ns() + 200_000_000)
        };
        wait();
        let error = open_sampler(&SPEC, "path = \"/p\"", folder.path()).unwrap_err().to_string();
        wait();
        let is_waiting = writer.try_wait().unwrap().is_none();
        drop((writer.kill(), writer.wait()));
        assert!(is_waiting, "{error}");
        assert_eq!(error, "/p: only regular files are read, not pipes, sockets or devices");
    }

    // Proves agreement with a naive parser of this host's /proc/meminfo.
    #[test]
    fn agrees_with_a_naive_reading() {
        let keys = "path = \"/proc/meminfo\"\ninclude = [\"MemTotal\", \"SwapTotal\"]";
        let (payload, incomplete) = sample_under(&SPEC, keys, Path::new("/"));
        assert_eq!(incomplete, Incomplete::NONE);
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let naive = |name: &str| -> i64 {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let file = flatbuffers::root::<File<'_>>(&payload).unwrap();
        let integers: Vec<i64> = file.values().iter().map(FileValue::integer).collect();
        assert_eq!(integers, [naive("MemTotal:"), naive("SwapTotal:")]);
    }
}
