//! Looks up the names of functions in stacks. The program `flatcap-convert` looks up the names,
//! because it contains the necessary libraries.
//!
//! Names are optional. If the program is missing, is of another version or takes too long, file and
//! offset are shown instead.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use flatcap_os::program::{KillHandle, ProgramEnd, run, run_with_input};
use flatcap_tasks::schema::CodeKind;
use flatcap_tasks::{CodeObjectInfo, StackTotals};
use serde::{Deserialize, Serialize};

use crate::convert_program::{self, Failure};

/// Maximum time to wait for names. Reading the debug information of a large program takes seconds.
const WAIT_NS_MAX: u64 = 20_000_000_000;
/// Maximum number of code locations that are sent to the program. Further code locations have no
/// names.
const PLACES_MAX: usize = 4096;

/// The names of the functions in stacks.
#[derive(Debug, Default)]
pub struct StackNames {
    /// The names of the functions by object and offset.
    names: HashMap<(CodeObjectInfo, u64), String>,
    /// The reason why no function has a name, and the remedy.
    remark: Option<String>,
}

impl StackNames {
    /// Requests from the program the names of the functions at all code locations in `stacks`.
    /// `boot_id` is the boot id of the host when the stacks were recorded. The program searches for
    /// debug files in `directories` first.
    pub fn of(stacks: &StackTotals, boot_id: Option<&str>, directories: &[PathBuf]) -> Self {
        if stacks.frames().is_empty() {
            return Self::default();
        }
        let program = match convert_program::path() {
            Ok(program) => program,
            Err(error) => return Self::without_names(error.to_string()),
        };
        Self::ask(&program, (stacks, boot_id), directories)
    }

    /// Returns the function at an offset of an object. If functions were inlined at this offset,
    /// returns the outermost function.
    pub fn function(&self, object: &CodeObjectInfo, offset: u64) -> Option<String> {
        self.names.get(&(object.clone(), offset)).cloned()
    }

    /// Returns the reason why no function has a name, with the remedy. Returns `None` if the
    /// program answered.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn without_names(remark: String) -> Self {
        Self { names: HashMap::new(), remark: Some(remark) }
    }

    fn ask(program: &Path, (stacks, boot_id): (&StackTotals, Option<&str>), directories: &[PathBuf]) -> Self {
        // All code locations of a stack except the innermost location are return addresses of
        // calls.
        let totals = stacks.stacks();
        let returns: HashSet<u32> =
            totals.iter().flat_map(|stack| stack.frames.iter().skip(1).copied()).collect();
        let places = stacks.frames().iter().take(PLACES_MAX).zip(0..).filter_map(|(frame, number)| {
            let object = stacks.object(*frame)?;
            Some((object, frame.offset, returns.contains(&number)))
        });
        let places: Vec<(&CodeObjectInfo, u64, bool)> = places.collect();
        let questions =
            places.iter().map(|(object, offset, is_return)| question((object, boot_id), *offset, *is_return));
        let input: String = questions.map(|line| line + "\n").collect();
        let Some(program_word) = program.to_str() else {
            return Self::without_names(convert_program::failure(program, Failure::OddPath));
        };
        let mut words = vec![program_word.to_owned()];
        words.extend([convert_program::caller_argument(), "symbolize".to_owned()]);
        // The paths must be absolute, because the program has another working directory.
        let absolute = directories.iter().filter_map(|directory| std::path::absolute(directory).ok());
        words.extend(absolute.filter_map(|directory| Some(format!("--symbols={}", directory.to_str()?))));
        let mut output = Vec::new();
        // Output that the program wrote before its end is used, whatever its exit status.
        match run_with_input(&words, input.as_bytes(), WAIT_NS_MAX, &mut output) {
            Err(error) => return Self::without_names(convert_program::cannot_run(program, &error)),
            Ok(done) if output.is_empty() && !places.is_empty() => {
                let other_version = || version_of(&words).filter(|version| !convert_program::is_own(version));
                let failure = match done.end {
                    // A program that hangs is not asked for its version, which could take as long.
                    ProgramEnd::TimedOut => Failure::TimedOut(WAIT_NS_MAX / 1_000_000_000),
                    ProgramEnd::Exited(status) => {
                        other_version().map_or(Failure::Exited(status), Failure::Version)
                    }
                    ProgramEnd::Signalled(signal) => Failure::Signalled(signal),
                    // Output that is too long is not empty.
                    ProgramEnd::OutputTooLong => Failure::Exited(0),
                };
                return Self::without_names(convert_program::failure(program, failure));
            }
            Ok(_) => {}
        }
        let answers = output.split(|byte| *byte == b'\n');
        let answers = answers.map_while(|line| serde_json::from_slice::<NamesAnswer>(line).ok());
        let names = places.into_iter().zip(answers).filter_map(|((object, offset, _), answer)| {
            let outer = answer.names.into_iter().last().filter(|_| answer.is_known)?;
            Some(((object.clone(), offset), outer))
        });
        Self { names: names.collect(), remark: None }
    }
}

/// Returns the version that the program prints; `None` if it does not print one. The first word is
/// the program.
fn version_of(words: &[String]) -> Option<String> {
    let words = [words.first()?.clone(), "--version".to_owned()];
    let mut output = Vec::new();
    run(&words, WAIT_NS_MAX, &KillHandle::default(), &mut output).ok()?;
    let text = String::from_utf8(output).ok()?;
    text.trim_end().rsplit_once(' ').map(|(_, version)| version.to_owned())
}

/// A request to the program. Each request is a line of the program's input.
#[derive(Serialize)]
struct PlaceQuestion<'p> {
    kind: &'static str,
    path: &'p str,
    build_id: Option<String>,
    /// The version of a file without a build id.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<VersionQuestion>,
    /// The process that owned the memory, if the object is memory without a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<ProcessQuestion>,
    /// The boot id, for code of the kernel or of a process. Module addresses and process ids change
    /// with each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<&'p str>,
    offset: u64,
    is_return: bool,
}

#[derive(Serialize)]
struct VersionQuestion {
    bytes: u64,
    modified_ns: i64,
}

#[derive(Serialize)]
struct ProcessQuestion {
    id: u32,
    first_ns: u64,
}

/// The program's response to a request.
#[derive(Deserialize)]
struct NamesAnswer {
    names: Vec<String>,
    is_known: bool,
}

fn question((object, boot_id): (&CodeObjectInfo, Option<&str>), offset: u64, is_return: bool) -> String {
    let kind = match object.kind {
        CodeKind::File => "file",
        CodeKind::Kernel => "kernel",
        CodeKind::KernelAddress => "kernel_address",
        _ => "unknown",
    };
    let digits = || object.build_id.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let build_id = (!object.build_id.is_empty()).then(digits);
    let is_kernel = matches!(object.kind, CodeKind::Kernel | CodeKind::KernelAddress);
    let boot_id = boot_id.filter(|_| is_kernel || object.process.is_some());
    let version = object.version;
    let version =
        version.map(|version| VersionQuestion { bytes: version.bytes, modified_ns: version.modified_ns });
    let process = object.process;
    let process = process.map(|process| ProcessQuestion { id: process.id, first_ns: process.first_ns });
    let place =
        PlaceQuestion { kind, path: &object.path, build_id, version, process, boot_id, offset, is_return };
    // Strings and numbers always serialize to JSON.
    serde_json::to_string(&place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use flatcap_tasks::testing::ProfilePayload;
    use flatcap_tasks::{FileVersion, ProfileBatch, SampledProcess, ThreadInfo};

    use super::*;

    fn stacks() -> StackTotals {
        let payload = ProfilePayload {
            end_ns: 100,
            interval_ns: 10,
            threads: vec![ThreadInfo { thread: 7, process: 7, ..ThreadInfo::default() }],
            samples: vec![(1, 0, 0, 0)],
            stacks: vec![vec![0, 1]],
            frames: vec![(0, 0x10), (1, 0x20)],
            objects: vec![
                (CodeKind::Kernel, "[kernel]".to_owned(), Vec::new()),
                (CodeKind::File, "/bin/\"a".to_owned(), vec![0xab, 0x1]),
            ],
            ..ProfilePayload::default()
        };
        let bytes = payload.bytes();
        let mut stacks = StackTotals::new(0..100);
        stacks.add(&ProfileBatch::read(&bytes).unwrap());
        stacks
    }

    // Proves that a request contains the version of a file and the process that owns memory without
    // a file.
    #[test]
    fn questions_identify_the_code() {
        let object = CodeObjectInfo {
            kind: CodeKind::File,
            path: "/a".into(),
            build_id: Box::default(),
            version: Some(FileVersion { bytes: 9, modified_ns: -2 }),
            process: None,
        };
        let file = "{\"kind\":\"file\",\"path\":\"/a\",\"build_id\":null,\
                    \"version\":{\"bytes\":9,\"modified_ns\":-2},\"offset\":16,\"is_return\":false}";
        assert_eq!(question((&object, Some("boot")), 16, false), file);
        let process = Some(SampledProcess { id: 7, first_ns: 8 });
        let memory = CodeObjectInfo { kind: CodeKind::Unknown, version: None, process, ..object };
        let asked = "{\"kind\":\"unknown\",\"path\":\"/a\",\"build_id\":null,\
                     \"process\":{\"id\":7,\"first_ns\":8},\"boot_id\":\"boot\",\"offset\":16,\"is_return\":true}";
        assert_eq!(question((&memory, Some("boot")), 16, true), asked);
    }

    // Proves that the program gets a request for each code location, and that an incomplete
    // response is read up to its end. A program that is missing, fails or prints something else
    // results in no names.
    #[test]
    fn answers_are_read_as_far_as_they_go() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let stacks = stacks();
        let ask = |text: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
            let names = StackNames::ask(&program, (&stacks, Some("b-o-o-t")), &[]);
            let name = |(object, offset): (&CodeObjectInfo, u64)| names.function(object, offset);
            let objects = stacks.objects();
            [name((&objects[0], 0x10)), name((&objects[1], 0x20))]
        };
        let (f, g) =
            ("{\"names\":[\"inlined\",\"f\"],\"is_known\":true}", "{\"names\":[\"g\"],\"is_known\":true}");
        assert_eq!(ask(&format!("echo '{f}'; echo '{g}'; exit 1")), [Some("f".into()), Some("g".into())]);
        assert_eq!(ask(&format!("echo '{f}'; echo '{{\"na'")), [Some("f".into()), None]);
        assert_eq!(ask("cat"), [None, None]);
        assert_eq!(ask("echo '{\"names\":[\"a+0x1\"],\"is_known\":false}'"), [None, None]);
        let kernel = "{\"kind\":\"kernel\",\"path\":\"[kernel]\",\"build_id\":null,\"boot_id\":\"b-o-o-t\",\"offset\":16,\"is_return\":false}";
        let file = "{\"kind\":\"file\",\"path\":\"/bin/\\\"a\",\"build_id\":\"ab01\",\"offset\":32,\"is_return\":true}";
        let expects = |line: &str| format!("grep -qxF '{line}' && echo '{f}'");
        assert_eq!(ask(&expects(kernel))[0].as_deref(), Some("f"));
        assert_eq!(ask(&expects(file))[0].as_deref(), Some("f"));
        let missing = program.with_file_name("missing");
        let names = StackNames::ask(&missing, (&stacks, None), &[]);
        assert!(names.names.is_empty() && names.remark().unwrap().contains("missing is missing; "));
    }

    // Proves that the remark about a program of another version contains both versions, and that
    // the program gets the version of its caller.
    #[test]
    fn another_version_is_remarked() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let caller = convert_program::caller_argument();
        let text = format!(
            "[ \"$1\" = --version ] && echo flatcap-convert 0.0.9; [ \"$1 $2\" = '{caller} symbolize' ] && exit 2"
        );
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let names = StackNames::ask(&program, (&stacks(), None), &[]);
        let remark = names.remark().unwrap();
        let own = format!("flatcap is version {} and ", env!("CARGO_PKG_VERSION"));
        assert!(remark.contains(&own) && remark.contains(" version 0.0.9; "), "{remark}");
    }
}
