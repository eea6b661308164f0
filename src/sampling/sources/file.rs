//! `file`: values in any file that the configuration names, one source a file.

use std::ffi::CString;
use std::io::{self, ErrorKind};

use flatbuffers::FlatBufferBuilder;

use super::values::Values;
use super::{Entry, Opening, Unavailable};
use crate::config::Origin;
use crate::os::host::HostFile;
use crate::sampling::{Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{File, FileArgs, FileValue};

/// What errors call the file: its path stands in the configuration.
const FILE: &str = "[source.file.NAME] path";

/// `include` and `exclude` match the values' names.
pub(super) const ENTRY: Entry = Entry {
    name: "file",
    root: "flatcap.host.File",
    schema: include_bytes!("../../../generated/host/file.bfbs"),
    files: &[],
    refresh: "as the file is written",
    selects: "names of values",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let readout = opening.config.readout.as_ref();
    let Some(Origin::File(named)) = readout.map(|readout| &readout.origin) else {
        return Err(Unavailable::of(io::Error::from(ErrorKind::InvalidInput)));
    };
    let unavailable = |error: io::Error| {
        Unavailable::of(io::Error::new(error.kind(), format!("{}: {error}", named.display())))
    };
    let path = opening.host.path(&named.to_string_lossy());
    let path = CString::new(path.into_os_string().into_encoded_bytes())
        .map_err(|error| unavailable(error.into()))?;
    let mut file = HostFile::open_by_name(&path).map_err(unavailable)?;
    file.read().map_err(unavailable)?;
    Ok(Opened::built(FileSampler { path, file, values: Values::new(opening.config, FileValue::new) }))
}

#[derive(Debug)]
struct FileSampler {
    path: CString,
    file: HostFile,
    values: Values<FileValue>,
}

impl Sampler for FileSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        // By its name each time: whoever writes a file anew puts another one in its place.
        let read = self.file.become_file(&self.path).and_then(|()| self.file.read());
        read.map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = self.values.parse(self.file.content());
        let values = builder.create_vector(self.values.rows());
        let root = File::create(builder, &FileArgs { values: Some(values) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own that come and go")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{opened, sampled_under};
    use crate::schema::{JsonWriter, Plan, Value};

    fn json(payload: &[u8]) -> String {
        let mut json = Vec::new();
        Plan::compile(ENTRY.schema, ENTRY.root)
            .unwrap()
            .walk(payload, &mut JsonWriter::new(&mut json))
            .unwrap();
        String::from_utf8(json).unwrap()
    }

    // Goal: a file that is replaced, cut, removed and put back is followed, and what is no number is absent for readers.
    // Method: a tree of our own that changes between samples, decoded by its schema.
    #[test]
    fn a_file_is_followed_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        std::fs::write(&path, "a 1\n").unwrap();
        let mut sampler = opened(&ENTRY, "path = \"/values\"", folder.path()).unwrap();
        let mut sample = || {
            sampler.read().ok()?;
            let mut builder = FlatBufferBuilder::new();
            let shortfall = sampler.build(0, &mut builder);
            Some((json(builder.finished_data()), shortfall))
        };
        let one = |name: &str, number: &str, integer: &str| {
            format!(r#"{{"values":[{{"name":"{name}","number":{number},"integer":{integer}}}]}}"#)
        };
        assert_eq!(sample(), Some((one("a", "1.0", "1"), Shortfall::NONE)));
        std::fs::write(folder.path().join("next"), "b 2.5\n").unwrap();
        std::fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(sample(), Some((one("b", "2.5", "null"), Shortfall::NONE)));
        let plan = Plan::compile(ENTRY.schema, ENTRY.root).unwrap();
        let projection = plan.project(&["values.0.integer"]).unwrap();
        let (payload, _) = sampled_under(&ENTRY, "path = \"/values\"", folder.path());
        let mut values = [Value::Bool(true)];
        projection.read(&payload, &mut values).unwrap();
        assert_eq!(values, [Value::Absent]);
        std::fs::write(&path, "c x\nd 4").unwrap();
        let expected = Shortfall::UNREADABLE | Shortfall::CUT;
        assert_eq!(sample(), Some((one("c", "null", "null"), expected)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sample(), None);
        std::fs::write(&path, "e 5\n").unwrap();
        assert_eq!(sample(), Some((one("e", "5.0", "5"), Shortfall::NONE)));
    }

    // Goal: whoever names a file that is not there, or none, is told which. Method: a missing one, a directory, a device.
    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = |path: &str| {
            opened(&ENTRY, &format!("path = \"{path}\""), folder.path()).unwrap_err().to_string()
        };
        assert!(error("/x/y").starts_with("/x/y: No such file"), "{}", error("/x/y"));
        std::fs::create_dir(folder.path().join("d")).unwrap();
        assert!(error("/d").starts_with("/d: Is a directory"), "{}", error("/d"));
        let device = opened(&ENTRY, "path = \"/dev/null\"", Path::new("/")).unwrap_err().to_string();
        assert!(device.starts_with("/dev/null: only regular files are read"), "{device}");
    }

    // Goal: a pipe or device is not even opened, which would let a writer go on, or start a watchdog. Method: somebody who waits for a
    // reader of a pipe, and still does.
    #[test]
    fn nobody_waits_for_us() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("p");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            return println!("passed over: no mkfifo");
        }
        let mut writer =
            std::process::Command::new("sh").args(["-c", "echo > \"$0\""]).arg(&pipe).spawn().unwrap();
        let wait =
            || crate::os::event::Event::new().wait_until(crate::os::clock::monotonic_ns() + 200_000_000);
        wait();
        let error = opened(&ENTRY, "path = \"/p\"", folder.path()).unwrap_err().to_string();
        wait();
        let is_waiting = writer.try_wait().unwrap().is_none();
        drop((writer.kill(), writer.wait()));
        assert!(is_waiting, "{error}");
        assert_eq!(error, "/p: only regular files are read, no pipes, sockets and devices");
    }

    // Goal: values agree with another way to them. Method: /proc/meminfo of this host beside a naive parser.
    #[test]
    fn agrees_with_a_naive_reading() {
        let keys = "path = \"/proc/meminfo\"\ninclude = [\"MemTotal\", \"SwapTotal\"]";
        let (payload, shortfall) = sampled_under(&ENTRY, keys, Path::new("/"));
        assert_eq!(shortfall, Shortfall::NONE);
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
