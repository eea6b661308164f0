//! Names of functions of the tests' own executable, and of programs that a C compiler makes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test says what it expects by failing"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use flatcap_symbols::{BuildId, CodeLocation, CodeProcess, ObjectKey, ObjectKind, ObjectVersion, Symbolizer};

#[inline(never)]
fn a_function_of_the_test(value: u64) -> u64 {
    black_box(value).rotate_left(3)
}

/// A line of /proc/self/maps that maps a file.
#[derive(Debug)]
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn mappings() -> Vec<Mapping> {
    let text = fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mapping = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (begin, end) = words[0].split_once('-').unwrap();
        let path = (*words.get(5)?).to_owned();
        Some(Mapping { begin: number(begin), end: number(end), offset: number(words[2]), path })
    };
    text.lines().filter_map(mapping).collect()
}

/// Returns the build id of a file according to the tool readelf.
fn build_id(path: &Path) -> Option<BuildId> {
    let text = output(Command::new("readelf").arg("-n").arg(path))?;
    let id = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    BuildId::from_hex(id)
}

/// Returns the output of a tool. If the tool is not installed, prints one line and returns `None`.
fn output(command: &mut Command) -> Option<String> {
    let Ok(output) = command.output() else {
        println!("skipped: {} is not installed", command.get_program().display());
        return None;
    };
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn object(path: &Path, build_id: Option<BuildId>) -> ObjectKey {
    ObjectKey { build_id, ..without_id(path, None) }
}

/// An object whose build id was not recorded.
fn without_id(path: &Path, version: Option<ObjectVersion>) -> ObjectKey {
    ObjectKey {
        kind: ObjectKind::File,
        path: path.display().to_string(),
        build_id: None,
        version,
        process: None,
        boot_id: None,
    }
}

fn at(offset: u64) -> CodeLocation {
    CodeLocation { offset, is_return: false }
}

const PRINT: &str = "FLATCAP_PRINT_PLACE";

// Proves that a function of this executable is found by its offset in the file. The test prints the
// offset for the next test.
#[test]
fn a_function_of_this_process_is_named() {
    let address = a_function_of_the_test as fn(u64) -> u64 as usize as u64;
    black_box(a_function_of_the_test(black_box(1)));
    let maps = mappings();
    let map = maps.iter().find(|map| (map.begin..map.end).contains(&address)).unwrap();
    let offset = address - map.begin + map.offset;
    if std::env::var_os(PRINT).is_some() {
        println!("\nplace {offset}");
    }
    let Some(id) = build_id(Path::new(&map.path)) else { return };
    let found = Symbolizer::new(Vec::new()).names(&object(Path::new(&map.path), Some(id)), at(offset));
    assert!(found.is_known && found.names == ["names::a_function_of_the_test"], "{found:?}");
}

// Proves that a function is named after its process has ended, and after its file was moved to a
// directory that the user names. A new file at the old path is used only if it has the same build
// id, and the error says so.
#[test]
fn names_outlive_the_process() {
    let own = std::env::current_exe().unwrap();
    let Some(id) = build_id(&own) else { return };
    let mut child = Command::new(&own);
    child.args(["a_function_of_this_process_is_named", "--exact", "--nocapture"]).env(PRINT, "1");
    let printed = output(&mut child).unwrap();
    let offset = printed.lines().find_map(|line| line.strip_prefix("place ")).unwrap().parse().unwrap();
    let name = |path: &Path, id: Option<BuildId>, directories: Vec<PathBuf>| {
        let mut symbolizer = Symbolizer::new(directories);
        let found = symbolizer.names(&object(path, id), at(offset));
        let errors: Vec<String> = symbolizer.errors().iter().map(ToString::to_string).collect();
        (found.names.concat(), found.is_known, errors.concat())
    };
    let known = ("names::a_function_of_the_test".to_owned(), true, String::new());
    assert_eq!(name(&own, Some(id.clone()), Vec::new()), known);

    let folder = tempfile::tempdir().unwrap();
    let gone = Path::new("/nowhere/bin/app");
    let by_name = folder.path().join("app");
    fs::copy(&own, &by_name).unwrap();
    let directories = || vec![folder.path().to_owned()];
    assert_eq!(name(gone, Some(id.clone()), directories()), known);
    fs::create_dir_all(folder.path().join("nowhere/bin")).unwrap();
    fs::rename(&by_name, folder.path().join("nowhere/bin/app")).unwrap();
    assert_eq!(name(gone, Some(id.clone()), directories()), known);
    let hex = id.to_string();
    let tree = folder.path().join(".build-id").join(&hex[..2]);
    fs::create_dir_all(&tree).unwrap();
    fs::rename(folder.path().join("nowhere/bin/app"), tree.join(format!("{}.debug", &hex[2..]))).unwrap();
    assert_eq!(name(gone, Some(id.clone()), directories()), known);

    let (shown, is_known, error) = name(gone, Some(id), Vec::new());
    assert_eq!((shown, is_known), (format!("app+{offset:#x}"), false));
    assert!(error.contains("cannot read /nowhere/bin/app"), "{error}");
    let other = BuildId::from_hex("0123456789abcdef0123456789abcdef01234567");
    let (_, is_known, error) = name(&own, other, Vec::new());
    assert!(!is_known && error.contains("recorded is 0123456789abcdef") && error.contains(&hex), "{error}");
    let (_, is_known, error) = name(&own, None, Vec::new());
    assert!(!is_known && error.contains("no build id in the recording"), "{error}");
}

// Proves that 95 % of the functions of this executable get the name that the tool nm prints.
// Method: the name at the middle of each function.
#[test]
fn functions_have_the_names_that_nm_prints() {
    let own = std::env::current_exe().unwrap();
    let Some(id) = build_id(&own) else { return };
    let Some(table) = output(Command::new("nm").args(["-S", "-C", "--defined-only"]).arg(&own)) else {
        return;
    };
    let maps = mappings();
    let own_maps: Vec<&Mapping> = maps.iter().filter(|map| Path::new(&map.path) == own).collect();
    let base = own_maps.iter().map(|map| map.begin - map.offset).min().unwrap();
    let first = own_maps.iter().find(|map| map.offset == 0).unwrap();
    assert_eq!(base, first.begin, "the executable is position-independent");
    let mut functions: BTreeMap<(u64, u64), BTreeSet<String>> = BTreeMap::new();
    for line in table.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some(address), Some(size), Some(kind), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if !["t", "T", "w", "W"].contains(&kind) {
            continue;
        }
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (address, size) = (number(address), number(size));
        let without_hash = match name.rsplit_once("::h") {
            Some((name, hash)) if hash.len() == 16 => name,
            _ => name,
        };
        let names = functions.entry((address, size)).or_default();
        names.insert(without_hash.to_owned());
    }
    let key = object(&own, Some(id));
    let mut symbolizer = Symbolizer::new(Vec::new());
    let (mut named, mut same) = (0, 0);
    for ((address, size), names) in &functions {
        let place = first.begin + address + size / 2;
        let map = own_maps.iter().find(|map| (map.begin..map.end).contains(&place)).unwrap();
        let found = symbolizer.names(&key, at(place - map.begin + map.offset));
        named += usize::from(found.is_known);
        same += usize::from(found.names.last().is_some_and(|name| names.contains(name)));
    }
    println!("{} functions, {named} have a name, {same} that of nm", functions.len());
    assert!(functions.len() > 500 && named * 100 >= functions.len() * 95, "{named} of {}", functions.len());
    assert!(same * 100 >= functions.len() * 95, "{same} of {}", functions.len());
}

const PROGRAM: &str = "
    #include <stdio.h>
    static volatile int sink;
    static inline __attribute__((always_inline)) void innermost(int n) { sink = n * 3; sink = sink / 7; }
    static inline __attribute__((always_inline)) void middle(int n) { innermost(n); sink++; }
    __attribute__((noinline)) void outermost(int n) { middle(n); }
    int main(void) { outermost(1); return 0; }
";

/// Returns a compiled C program. If no compiler is installed, prints one line and returns `None`.
fn compiled(folder: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = folder.join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let path = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wl,--build-id"]).args(options).arg("-o").arg(&path).arg(&source);
    output(&mut compiler).map(|_| path)
}

/// Returns the offset of a function in the file, according to the tools nm and readelf.
fn offset_of(path: &Path, function: &str) -> Option<u64> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let table = output(Command::new("nm").arg(path))?;
    let line = table.lines().find(|line| line.ends_with(&format!(" {function}"))).unwrap();
    let address = number(line.split(' ').next().unwrap());
    let segments = output(Command::new("readelf").arg("-lW").arg(path))?;
    segments.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if *words.first()? != "LOAD" {
            return None;
        }
        let (offset, begin, bytes) = (number(words[1]), number(words[2]), number(words[4]));
        (begin..begin + bytes).contains(&address).then(|| address - begin + offset)
    })
}

// Proves that inlined functions are named from debug information in all its encodings. The debug
// file of a stripped program is found in each of its possible places. A stripped program alone
// gives file and offset.
#[test]
fn inlined_functions_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let encodings = [
        &["-g"][..],
        &["-g", "-gz=zlib"],
        &["-g", "-gdwarf-4"],
        &["-g", "-no-pie"],
        &["-g", "-Wl,-z,noseparate-code"],
    ];
    for (number, options) in encodings.iter().enumerate() {
        let Some(path) = compiled(folder.path(), &format!("program{number}"), options) else { return };
        let (Some(offset), Some(id)) = (offset_of(&path, "outermost"), build_id(&path)) else { return };
        let names = |symbolizer: &mut Symbolizer, path: &Path| {
            let found = symbolizer.names(&object(path, Some(id.clone())), at(offset + 4));
            (found.names.join(" "), found.is_known)
        };
        let expected = ("innermost middle outermost".to_owned(), true);
        assert_eq!(names(&mut Symbolizer::new(Vec::new()), &path), expected, "{options:?}");

        let hex = id.to_string();
        let tree = folder.path().join(format!("debug{number}/.build-id")).join(&hex[..2]);
        fs::create_dir_all(&tree).unwrap();
        let debug_file = tree.join(format!("{}.debug", &hex[2..]));
        let mut objcopy = Command::new("objcopy");
        if output(objcopy.arg("--only-keep-debug").arg(&path).arg(&debug_file)).is_none() {
            return;
        }
        output(Command::new("strip").arg(&path)).unwrap();
        let directory = folder.path().join(format!("debug{number}"));
        assert_eq!(names(&mut Symbolizer::new(vec![directory.clone()]), &path), expected, "{options:?}");
        // On another host only the debug file exists.
        let elsewhere = Path::new("/nowhere/program");
        assert_eq!(names(&mut Symbolizer::new(vec![directory]), elsewhere), expected, "{options:?}");

        let mut alone = Symbolizer::new(Vec::new());
        let shown = format!("program{number}+{:#x}", offset + 4);
        assert_eq!(names(&mut alone, &path), (shown, false), "{options:?}");
        let errors = alone.errors();
        assert!(errors.is_empty() || errors[0].to_string().contains("is stripped"), "{errors:?}");
    }
}

// Proves that the address to which a call returns belongs to the calling function, although the
// next function may begin there. The address is shown as it was recorded.
#[test]
fn return_addresses_are_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(folder.path(), "program", &[]) else { return };
    let (Some(offset), Some(id)) = (offset_of(&path, "outermost"), build_id(&path)) else { return };
    let mut symbolizer = Symbolizer::new(Vec::new());
    let key = object(&path, Some(id));
    let first = symbolizer.names(&key, CodeLocation { offset: offset + 1, is_return: true });
    assert_eq!(first.names, ["outermost"]);
    let before = symbolizer.names(&key, CodeLocation { offset, is_return: true });
    assert_ne!(before.names, ["outermost"]);
    let nowhere = symbolizer.names(&key, CodeLocation { offset: 0xffff_ffff, is_return: true });
    assert_eq!(nowhere.names, ["program+0xffffffff"]);
}

// Proves that damaged and hostile files are errors, and that the library never waits for a file.
// Method: each byte of the headers and tables of a program is set to other values, and the program
// is cut at all lengths. Also a FIFO, a directory, and a sparse file of a terabyte.
#[test]
fn hostile_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(folder.path(), "program", &["-g"]) else { return };
    let Some(id) = build_id(&path) else { return };
    let bytes = fs::read(&path).unwrap();
    let key = object(&path, Some(id));
    let ask = || {
        let mut symbolizer = Symbolizer::new(Vec::new());
        (0..4).map(|at_page| symbolizer.names(&key, at(at_page * 0x800)).names.len()).sum::<usize>()
    };
    let tables = usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap())).unwrap();
    let headers = (0..0x400).chain(tables..bytes.len());
    for place in headers.step_by(3) {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[place] = value;
            fs::write(&path, &damaged).unwrap();
            assert!(ask() >= 4);
        }
    }
    for length in (0..bytes.len()).step_by(bytes.len() / 64) {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(ask() >= 4);
    }
    fs::write(&path, &bytes).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(ask() >= 4);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(ask() >= 4);
    fs::remove_dir(&path).unwrap();
    output(Command::new("mkfifo").arg(&path)).unwrap();
    let mut symbolizer = Symbolizer::new(Vec::new());
    assert!(!symbolizer.names(&key, at(0)).is_known);
    assert!(symbolizer.errors()[0].to_string().contains("is a FIFO, not a regular file"));
}

// Proves that functions of the running kernel are named by their offset from _text, if this user
// may read the addresses. For another kernel, no functions are named.
#[test]
fn functions_of_the_kernel_are_named() {
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let address = |name: &str| {
        let line = kallsyms.lines().find(|line| line.ends_with(&format!(" {name}")))?;
        u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|address| *address > 0)
    };
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let key = |kind, boot_id: &str| ObjectKey {
        kind,
        path: "[kernel]".to_owned(),
        build_id: None,
        version: None,
        process: None,
        boot_id: Some(boot_id.trim().to_owned()),
    };
    let mut symbolizer = Symbolizer::new(Vec::new());
    let other = symbolizer.names(&key(ObjectKind::Kernel, "another"), at(0x1234));
    assert_eq!((other.names, other.is_known), (vec!["[kernel]+0x1234".to_owned()], false));
    let (Some(text), Some(function)) = (address("_text"), address("schedule")) else {
        println!("skipped: /proc/kallsyms hides addresses from this user");
        return;
    };
    let by_offset = symbolizer.names(&key(ObjectKind::Kernel, &boot_id), at(function - text + 8));
    assert_eq!(by_offset.names, ["schedule"]);
    let by_address = symbolizer.names(&key(ObjectKind::KernelAddress, &boot_id), at(function + 8));
    assert_eq!(by_address.names, ["schedule"]);
}

/// Size and time of modification of a file.
fn version(path: &Path) -> ObjectVersion {
    let metadata = fs::metadata(path).unwrap();
    let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    ObjectVersion { bytes: metadata.len(), modified_ns }
}

// Proves that the functions of dynamic and static programs without a build id are named if path,
// size and modification time are the recorded ones. If one of these differs, the file is not used,
// and the error says so.
#[test]
fn programs_without_a_build_id_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (number, options) in
        [&["-Wl,--build-id=none"][..], &["-Wl,--build-id=none", "-static"]].iter().enumerate()
    {
        let Some(path) = compiled(folder.path(), &format!("program{number}"), options) else { return };
        let Some(offset) = offset_of(&path, "outermost") else { return };
        assert_eq!(build_id(&path), None);
        let own = version(&path);
        let name = |version: ObjectVersion| {
            let mut symbolizer = Symbolizer::new(Vec::new());
            let found = symbolizer.names(&without_id(&path, Some(version)), at(offset + 4));
            (found.names.concat(), symbolizer.errors().iter().map(ToString::to_string).collect::<String>())
        };
        assert_eq!(name(own), ("outermost".to_owned(), String::new()), "{options:?}");
        for other in [
            ObjectVersion { bytes: own.bytes + 1, ..own },
            ObjectVersion { modified_ns: own.modified_ns - 1, ..own },
        ] {
            let (shown, error) = name(other);
            assert!(shown.contains("+0x") && error.contains("was modified since"), "{shown}: {error}");
        }
        // No version was recorded, so any program may be at the path now.
        let mut symbolizer = Symbolizer::new(Vec::new());
        assert!(!symbolizer.names(&without_id(&path, None), at(offset + 4)).is_known);
    }
}

// Proves that a function of a program in Go is named, even if the program is stripped. The file is
// identified by its build id, which is in no segment, or by its version if the build id is missing.
// The test is skipped if there is no Go compiler.
#[test]
fn programs_in_go_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.go");
    let text = "package main\n//go:noinline\nfunc work(n int) int { return n * 3 }\n\
                func main() { println(work(2)) }\n";
    fs::write(&source, text).unwrap();
    let path = folder.path().join("program");
    let mut unstripped = None;
    for flags in ["-ldflags=-B=none", "-ldflags=", "-ldflags=-s -w"] {
        let mut compiler = Command::new("go");
        compiler.arg("build").arg(flags).arg("-o").arg(&path).arg(&source);
        for (name, value) in [("GOCACHE", "cache"), ("GOPATH", "path"), ("HOME", "home")] {
            compiler.env(name, folder.path().join(value));
        }
        compiler.envs([
            ("GOPROXY", "off"),
            ("GO111MODULE", "off"),
            ("CGO_ENABLED", "0"),
            ("GOTOOLCHAIN", "local"),
        ]);
        if output(&mut compiler).is_none() {
            return;
        }
        if !flags.contains("-s") {
            unstripped = offset_of(&path, "main.work");
        }
        let Some(offset) = unstripped else { return };
        let id = build_id(&path);
        let version = id.is_none().then(|| version(&path));
        let key = ObjectKey { build_id: id, ..without_id(&path, version) };
        let found = Symbolizer::new(Vec::new()).names(&key, at(offset));
        assert_eq!(found.names, ["main.work"], "{flags} {key:?}");
    }
}

/// A child process that waits, and its map file in /tmp. Both are removed at the end.
struct CompiledChild {
    child: Child,
    map: PathBuf,
}

impl CompiledChild {
    fn start() -> Self {
        let child = Command::new("sleep").arg("3600").spawn().unwrap();
        let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
        Self { child, map }
    }

    fn name(&self, first_ns: u64, directories: Vec<PathBuf>) -> (String, String) {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let key = ObjectKey {
            kind: ObjectKind::Unknown,
            process: Some(CodeProcess { id: self.child.id(), first_ns }),
            boot_id: Some(boot_id.trim().to_owned()),
            ..without_id(Path::new("[anon]"), None)
        };
        let mut symbolizer = Symbolizer::new(directories);
        let found = symbolizer.names(&key, at(0x7f10));
        (found.names.concat(), symbolizer.errors().iter().map(ToString::to_string).collect())
    }

    fn end(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for CompiledChild {
    fn drop(&mut self) {
        self.end();
        let _removed = fs::remove_file(&self.map);
    }
}

/// Returns the time of the clock that samples use.
fn now_ns() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since boot")]
    let ns = (seconds * 1e9) as u64;
    ns
}

// Proves that the map file of a process names compiled functions. If the process runs, it must have
// started before the sample. If it has ended, the file must be younger than the sample. A file in a
// directory that the user names is always used.
#[test]
fn compiled_functions_are_named() {
    let mut process = CompiledChild::start();
    // Because of its resolution, the time in /proc/uptime may be before the start of the process.
    let sampled_ns = now_ns() + 1_000_000_000;
    let nothing = ("[anon]".to_owned(), String::new());
    assert_eq!(process.name(sampled_ns, Vec::new()), nothing);
    fs::write(&process.map, "7f00 20 js work file.js:3\n").unwrap();
    let known = ("js work file.js:3".to_owned(), String::new());
    assert_eq!(process.name(sampled_ns, Vec::new()), known);
    // Shortly after the boot, another process had this number.
    assert_eq!(process.name(0, Vec::new()), nothing);
    process.end();
    assert_eq!(process.name(0, Vec::new()), known);
    let (shown, error) = process.name(sampled_ns + 3600 * 1_000_000_000, Vec::new());
    assert!(shown == "[anon]" && error.contains("older than its samples"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    fs::rename(&process.map, folder.path().join(process.map.file_name().unwrap()))
        .or_else(|_| fs::copy(&process.map, folder.path().join(process.map.file_name().unwrap())).map(drop))
        .unwrap();
    assert_eq!(process.name(u64::MAX, vec![folder.path().to_owned()]), known);
}

// Proves that links, other kinds of files, files of other users and too long files are refused
// without waiting, and that the error gives the reason.
#[test]
fn files_of_others_name_nothing() {
    let process = CompiledChild::start();
    let sampled_ns = now_ns() + 1_000_000_000;
    let refused = |why: &str| {
        let (shown, error) = process.name(sampled_ns, Vec::new());
        assert!(shown == "[anon]" && error.contains(why), "{why}: {shown}: {error}");
        fs::remove_file(&process.map).unwrap();
    };
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "7f00 20 other\n").unwrap();
    std::os::unix::fs::symlink(&other, &process.map).unwrap();
    refused("it is a symbolic link");
    fs::hard_link(&other, &process.map).unwrap();
    refused("it has several hard links");
    output(Command::new("mkfifo").arg(&process.map)).unwrap();
    refused("it is not a regular file");
    fs::write(&process.map, "7f00 20 other\n").unwrap();
    fs::OpenOptions::new().write(true).open(&process.map).unwrap().set_len(1 << 40).unwrap();
    refused("the limit is");
    fs::write(&process.map, "7f00 20 other\n").unwrap();
    if std::os::unix::fs::chown(&process.map, Some(65_534), None).is_ok() {
        refused("it does not belong to the user of the process");
    }
}
