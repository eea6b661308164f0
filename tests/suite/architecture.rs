//! The rules of the source tree: allowed imports between modules, and form of files, tests and
//! documents.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::imports::ImportGraph;

/// The imports that each crate or module may have (docs/ARCHITECTURE.md, "Modules"). Most are
/// crates. Those from `host` to `replay` are in flatcap-format, four are in flatcap-recorder, and
/// `config`, `export`, `daemon`, `cli`, `lib` and `main` are the program.
const EDGES: &[(&str, &[&str])] = &[
    ("stream", &[]),
    ("tasks", &[]),
    ("lane", &["stream"]),
    ("push", &["lane", "stream"]),
    ("host", &[]),
    ("consumer_names", &[]),
    ("duration", &[]),
    ("histogram", &[]),
    ("storage", &[]),
    ("units", &[]),
    ("symbols", &["storage"]),
    ("mapped_file", &["storage"]),
    ("schema", &["lane", "units"]),
    ("frame", &["schema", "stream"]),
    ("block", &["stream", "schema"]),
    ("segment", &["block", "stream", "schema", "storage", "mapped_file", "host", "histogram"]),
    ("replay", &["segment", "stream", "duration"]),
    (
        "query",
        &[
            "replay",
            "segment",
            "block",
            "schema",
            "frame",
            "host",
            "tasks",
            "consumer_names",
            "duration",
            "units",
        ],
    ),
    ("promql", &["query", "replay", "segment", "schema"]),
    ("trigger", &["query", "segment", "schema", "units"]),
    ("explain", &["query", "replay", "segment", "schema", "tasks", "units"]),
    ("arrow", &["query", "replay", "segment", "schema", "consumer_names"]),
    ("schemas", &[]),
    ("os", &["host", "storage"]),
    ("metrics", &["histogram", "segment", "schema", "os"]),
    ("slab", &["stream", "os", "metrics", "schema", "storage"]),
    ("sampling", &["frame", "slab", "os", "metrics", "schemas", "histogram", "tasks", "stream"]),
    (
        "config",
        &["block", "sampling", "ingest", "recorder", "slab", "stream", "schema", "trigger", "os", "text"],
    ),
    (
        "recorder",
        &["slab", "segment", "stream", "os", "metrics", "storage", "host", "histogram", "schema", "trigger"],
    ),
    ("compress", &["block", "segment", "stream", "os", "metrics", "storage"]),
    ("snapshot", &["segment", "stream", "schema", "os", "metrics", "storage", "block"]),
    ("ingest", &["lane", "slab", "segment", "schema", "stream", "os", "metrics"]),
    (
        "import",
        &[
            "segment",
            "stream",
            "frame",
            "schema",
            "schemas",
            "os",
            "storage",
            "host",
            "text",
            "consumer_names",
        ],
    ),
    ("export", &["replay", "segment", "stream", "os", "storage"]),
    ("text", &["schema", "duration", "units", "os", "tasks"]),
    ("control", &["metrics", "os", "text", "histogram", "segment", "schema"]),
    (
        "view",
        &[
            "snapshot", "promql", "duration", "query", "replay", "segment", "schema", "explain", "tasks",
            "control", "os", "text", "units",
        ],
    ),
    (
        "daemon",
        &[
            "config",
            "sampling",
            "slab",
            "recorder",
            "segment",
            "stream",
            "os",
            "metrics",
            "control",
            "compress",
            "snapshot",
            "ingest",
            "lane",
            "block",
            "storage",
            "frame",
            "histogram",
            "schema",
            "trigger",
        ],
    ),
    (
        "cli",
        &[
            "config",
            "sampling",
            "slab",
            "recorder",
            "segment",
            "stream",
            "os",
            "metrics",
            "daemon",
            "replay",
            "query",
            "schema",
            "frame",
            "control",
            "import",
            "export",
            "explain",
            "text",
            "view",
            "compress",
            "snapshot",
            "block",
            "storage",
            "histogram",
            "trigger",
            "tasks",
            "consumer_names",
        ],
    ),
    (
        "flatcap-export",
        &["query", "replay", "segment", "schema", "storage", "arrow", "tasks", "symbols", "consumer_names"],
    ),
    ("flatcap-convert", &["flatcap-export", "import", "symbols", "schema", "text"]),
    (
        "flatcap-ship",
        &[
            "flatcap-export",
            "arrow",
            "query",
            "replay",
            "segment",
            "schema",
            "storage",
            "host",
            "duration",
            "text",
            "consumer_names",
        ],
    ),
    ("lib", &["cli"]),
    ("main", &["lib"]),
];

/// The sources of each crate that ships.
const CRATES: &[&str] = &[
    "crates/flatcap-stream/src",
    "crates/flatcap-lane/src",
    "crates/flatcap-push/src",
    "crates/flatcap-format/src",
    "crates/flatcap-query/src",
    "crates/flatcap-trigger/src",
    "crates/flatcap-promql/src",
    "crates/flatcap-explain/src",
    "crates/flatcap-tasks/src",
    "crates/flatcap-symbols/src",
    "crates/flatcap-arrow/src",
    "crates/flatcap-export/src",
    "crates/flatcap-convert/src",
    "crates/flatcap-ship/src",
    "crates/flatcap-os/src",
    "crates/flatcap-schemas/src",
    "crates/flatcap-metrics/src",
    "crates/flatcap-slab/src",
    "crates/flatcap-sampling/src",
    "crates/flatcap-recorder/src",
    "crates/flatcap-text/src",
    "crates/flatcap-control/src",
    "crates/flatcap-import/src",
    "crates/flatcap-view/src",
    "src",
];

/// The crate with an interface for applications in Rust and C.
const PUSH: &str = "crates/flatcap-push/src";

/// The crate with an interface for programs that use flatstream.
const STREAM: &str = "crates/flatcap-stream/src";

/// Public functions of the stream library that only other programs use: names of flatstream's
/// interface.
const FLATSTREAM_NAMES: &[&str] = &[
    "DEFAULT_BASELINE_CAPACITY",
    "DEFAULT_GROW_ABOVE_BYTES",
    "DEFAULT_MAX_FRAME_LEN",
    "DEFAULT_MESSAGES_TO_WAIT",
    "DEFAULT_SHRINK_BELOW_BYTES",
    "DEFAULT_SIZE_RATIO_THRESHOLD",
    "MAX_WIRE_FRAME_LEN",
    "buffer_capacity",
    "checksum_mismatch",
    "framer",
    "from_verify",
    "from_verify_named",
    "into_kind",
    "invalid_frame",
    "invalid_frame_with",
    "next_message",
    "next_typed",
    "process_all",
    "process_typed",
    "process_typed_with_payload",
    "read_message",
    "recover_file",
    "typed_messages",
    "unexpected_eof",
    "validation_failed",
    "with_baseline",
    "with_builder",
    "with_builder_alloc",
    "with_clock",
    "with_cooldown",
    "with_limits",
    "with_limits_from_verify",
    "with_limits_from_verify_named",
    "with_memory_policy",
    "with_memory_policy_and_factory",
    "write_finished",
];

/// The same, but names that flatstream lacks. They write batches and frames that exist already,
/// limit the search in damaged streams, and show kinds of errors and the state of a decoder.
const STREAM_ADDITIONS: &[&str] = &[
    "CHECKSUM_BYTES_MAX",
    "is_between_frames",
    "is_invalid_frame",
    "is_invalid_payload",
    "is_unexpected_eof",
    "pending_bytes",
    "skip_frame",
    "skip_refused",
    "starting_at",
    "with_identifiers",
    "with_payload_bytes_min",
    "with_plausibility_check",
    "write_batch",
    "write_framed",
    "write_payloads",
];

/// Public functions and constants that shipped code uses only in their own crate. Tests and benches
/// of other crates name them.
const PUBLIC_FOR_TESTS: &[&str] = &[
    "OFFSET",
    "PAYLOAD_BYTES",
    "POINT_ROOT",
    "RAW_BYTES_DEFAULT",
    "WIDE_ROOT",
    "append_attachment",
    "begin_segment",
    "is_plain_field_name",
    "is_recording",
    "name_group",
    "of_bytes",
    "seal_recovered",
    "set_first_block",
    "stored_offset",
    "with_root",
    "write_envelope",
];

/// Maximum lines of code in a file. Comments do not count, so that explaining code is never a
/// reason to split it; blank lines and tests do not count either.
const CODE_LINES_MAX: usize = 450;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "crates"] {
        files(&root().join(folder), "rs", &mut found);
    }
    // Code generated by flatc follows its own rules.
    let is_ours = |part: &OsStr| part != "target" && part != "generated";
    found.retain(|path| path.components().all(|part| is_ours(part.as_os_str())));
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect()
}

/// Returns the shipped part of a file: everything before its tests.
fn shipped(text: &str) -> &str {
    let starts = ["\nmod tests {", "\npub(super) mod tests {", "\npub(crate) mod tests {"];
    let start = starts.iter().filter_map(|start| text.find(start)).min();
    text.get(..start.unwrap_or(text.len())).unwrap()
}

/// Returns whether a file is a test module, or below one: a parent declares it under
/// `#[cfg(test)]`.
fn is_for_tests(path: &Path) -> bool {
    let read = |name| std::fs::read_to_string(root().join(path).with_file_name(name)).unwrap_or_default();
    let parent = read("mod.rs") + &read("lib.rs");
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let cfgs = ["test", "all(test, flatcap_model)", "any(test, feature = \"testing\")"];
    let is_declared = |cfg, visibility| parent.contains(&format!("#[cfg({cfg})]\n{visibility}mod {stem};"));
    cfgs.iter().any(|cfg| ["", "pub ", "pub(super) "].iter().any(|visibility| is_declared(cfg, visibility)))
        || path.parent().is_some_and(|folder| {
            !folder.ends_with("src") && folder.file_name().is_some() && is_for_tests(folder)
        })
}

/// Returns the crate of a shipped file, and the file's path in it.
fn crate_of(path: &Path) -> Option<(&'static str, &Path)> {
    CRATES.iter().find_map(|folder| Some((*folder, path.strip_prefix(folder).ok()?)))
}

/// The crates that are one module.
const MODULE_CRATES: &[(&str, &str)] = &[
    ("crates/flatcap-stream/src", "stream"),
    ("crates/flatcap-lane/src", "lane"),
    ("crates/flatcap-push/src", "push"),
    ("crates/flatcap-query/src", "query"),
    ("crates/flatcap-trigger/src", "trigger"),
    ("crates/flatcap-promql/src", "promql"),
    ("crates/flatcap-explain/src", "explain"),
    ("crates/flatcap-tasks/src", "tasks"),
    ("crates/flatcap-symbols/src", "symbols"),
    ("crates/flatcap-arrow/src", "arrow"),
    ("crates/flatcap-export/src", "flatcap-export"),
    ("crates/flatcap-convert/src", "flatcap-convert"),
    ("crates/flatcap-ship/src", "flatcap-ship"),
    ("crates/flatcap-os/src", "os"),
    ("crates/flatcap-schemas/src", "schemas"),
    ("crates/flatcap-metrics/src", "metrics"),
    ("crates/flatcap-slab/src", "slab"),
    ("crates/flatcap-sampling/src", "sampling"),
    ("crates/flatcap-text/src", "text"),
    ("crates/flatcap-control/src", "control"),
    ("crates/flatcap-import/src", "import"),
    ("crates/flatcap-view/src", "view"),
];

/// The folders of flatcap-recorder that are modules of their own. The other files are `recorder`.
const RECORDER_FOLDERS: &[&str] = &["compress", "ingest", "snapshot"];

/// Returns the module that a shipped file belongs to: a folder, a file next to the folders, or a
/// whole crate.
fn module_of(path: &Path) -> Option<String> {
    let (folder, inner) = crate_of(path)?;
    if let Some((_, module)) = MODULE_CRATES.iter().find(|(of, _)| *of == folder) {
        return Some((*module).to_owned());
    }
    let first = inner.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs");
    Some(if folder == RECORDER { recorder_module(first) } else { first }.to_owned())
}

const RECORDER: &str = "crates/flatcap-recorder/src";

/// Returns the module of flatcap-recorder in which a name at the top of the crate is.
fn recorder_module(name: &str) -> &str {
    if RECORDER_FOLDERS.contains(&name) { name } else { "recorder" }
}

// Proves that imports between modules follow the edges above and have no cycle. Method: every
// `crate::MODULE` in shipped code against the table.
#[test]
fn modules_import_only_what_they_may() {
    let edges: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(module) = module_of(&path) else { continue };
        if is_for_tests(&path) || path.ends_with("flatcap-format/src/lib.rs") {
            continue;
        }
        let allowed =
            edges.get(module.as_str()).unwrap_or_else(|| panic!("{module} is in no row of the table"));
        let is_recorder = path.starts_with(RECORDER);
        let own_name = if module == "main" { "flatcap::" } else { "crate::" };
        for line in shipped(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            let mut check = |to: &str| {
                if edges.contains_key(to) && to != module && !allowed.contains(&to) {
                    wrong.push(format!("{}: {module} -> {to}", path.display()));
                }
            };
            for (prefix, is_recorder) in
                [(own_name, is_recorder), ("flatcap_format::", false), ("flatcap_recorder::", true)]
            {
                for reference in line.split(prefix).skip(1) {
                    let end = reference.find(|c: char| !c.is_alphanumeric() && c != '_');
                    let name = reference.get(..end.unwrap_or(reference.len())).unwrap();
                    check(if is_recorder { recorder_module(name) } else { name });
                }
            }
            for &(_, to) in MODULE_CRATES {
                if line.contains(&format!("flatcap_{to}::")) && !allowed.contains(&to) && module != to {
                    wrong.push(format!("{}: {module} -> {to}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    let mut done: BTreeSet<&str> = BTreeSet::new();
    while done.len() < edges.len() {
        let next: Vec<&str> = edges
            .iter()
            .filter(|(room, to)| !done.contains(*room) && to.iter().all(|to| done.contains(to)))
            .map(|(room, _)| *room)
            .collect();
        assert!(!next.is_empty(), "a cycle among {:?}", edges.keys().filter(|room| !done.contains(*room)));
        done.extend(next);
    }
}

/// Returns the words of the code of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
}

/// Returns the name of the public function or constant that a line begins.
fn public_name(line: &str) -> Option<&str> {
    let item = line.trim_start().strip_prefix("pub ")?;
    let qualified = ["const ", "unsafe ", "async "].iter().find_map(|word| item.strip_prefix(word));
    let name = item.strip_prefix("fn ").or_else(|| qualified?.strip_prefix("fn ").or(qualified))?;
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// Returns the public functions and constants of a text that are in every build.
fn public_names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_optional = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if line.starts_with("#[cfg(") {
            is_optional = ["test", "fuzzing"].iter().any(|word| line.contains(word));
        } else if !line.starts_with(['#', '/']) {
            return Some(public_name(line)).filter(|_| !std::mem::take(&mut is_optional)).flatten();
        }
        None
    })
}

// Proves that the library crates have no public function or constant that shipped code of no other
// crate names: rustc reports dead code only among items that are not public. Method: words, so an
// item with the name of another one is not found.
#[test]
fn public_functions_have_callers_in_other_crates() {
    let mut shipping = sources();
    let mut python = Vec::new();
    files(&root().join("python/src"), "rs", &mut python);
    shipping.extend(python.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root()).unwrap().to_owned(), text)
    }));
    let folder_of = |path: &Path| crate_of(path).map_or("", |(folder, _)| folder);
    shipping.retain(|(path, _)| {
        let is_shipped = !is_for_tests(path) && !path.ends_with("fuzzing.rs");
        is_shipped && (crate_of(path).is_some() || path.starts_with("python/src"))
    });
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in &shipping {
        for word in words(shipped(text)) {
            users.entry(word).or_default().insert(folder_of(path));
        }
    }
    let (mut unused, mut unused_of_stream) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in &shipping {
        let own = folder_of(path);
        if !own.starts_with("crates/") || own == PUSH {
            continue;
        }
        for name in public_names(shipped(text)) {
            if users.get(name).is_none_or(|users| users.iter().all(|user| *user == own)) {
                (if own == STREAM { &mut unused_of_stream } else { &mut unused }).insert(name);
            }
        }
    }
    let listed = PUBLIC_FOR_TESTS.iter().copied().collect();
    assert_eq!(unused, listed, "make the new ones pub(crate), and remove the others from the list");
    let listed = FLATSTREAM_NAMES.iter().chain(STREAM_ADDITIONS).copied().collect();
    assert_eq!(unused_of_stream, listed, "the stream library: as above");
}

// Proves that no file imports itself through others, in a module or across modules.
#[test]
fn no_files_import_each_other() {
    for &folder in CRATES {
        let shipped_file = |(path, text): (PathBuf, String)| {
            let inner = path.strip_prefix(folder).ok()?.to_owned();
            (!is_for_tests(&path)).then(|| (inner, shipped(&text).to_owned()))
        };
        let graph = ImportGraph::new(sources().into_iter().filter_map(shipped_file));
        // The files of these hardly need each other.
        let is_flat = ["schemas", "text", "convert"].iter().any(|flat| folder.contains(flat));
        let is_small = ["lane", "arrow", "symbols", "metrics", "slab", "control"]
            .iter()
            .any(|small| folder.contains(small));
        let least = if is_small { 1 } else { 8 };
        assert!(is_flat || graph.imports() > least, "{folder}: {} imports were found", graph.imports());
        let cycles = graph.cycles();
        assert!(cycles.is_empty(), "{folder}: {cycles:#?}");
    }
}

// Proves that every file opens with its purpose, is ASCII, and has no open ends.
#[test]
fn every_file_keeps_the_house_rules() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let shown = path.display();
        if !text.starts_with("//!") {
            wrong.push(format!("{shown}: does not open with //!"));
        }
        if let Some(line) = text.lines().position(|line| !line.is_ascii()) {
            wrong.push(format!("{shown}:{}: not ASCII", line + 1));
        }
        // Written in two halves, so that this file does not match itself.
        for word in
            [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("unimple", "mented!")]
        {
            if text.contains(word) {
                wrong.push(format!("{shown}: {word}"));
            }
        }
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = shipped(&text).lines().filter(is_code).count();
        if crate_of(&path).is_some() && lines > CODE_LINES_MAX {
            wrong.push(format!("{shown}: {lines} lines of code without tests, more than {CODE_LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Proves that every test is preceded by a comment: above #[test], or as the first line of its body.
#[test]
fn every_test_says_what_it_proves() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[test]") {
            let is_said_above =
                at > 0 && (lines[at - 1].starts_with("//") || lines[at - 1].starts_with("#[cfg"));
            let body =
                lines[at..].iter().position(|line| line.ends_with('{')).map_or(at, |open| at + open + 1);
            if !is_said_above && !lines.get(body).is_some_and(|line| line.starts_with("//")) {
                wrong.push(format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Proves that every dependency in a Cargo.toml has a comment with its reason.
#[test]
fn every_dependency_has_a_reason() {
    let of_crates = CRATES.iter().map(|folder| folder.replace("src", "Cargo.toml"));
    for manifest in of_crates {
        let text = std::fs::read_to_string(root().join(&manifest)).unwrap();
        let mut in_table = false;
        let mut before = "";
        for line in text.lines() {
            if line.starts_with('[') {
                // The workspace's table has versions; the packages have the reasons.
                in_table = line.ends_with("dependencies]") && line != "[workspace.dependencies]";
            } else if in_table && line.contains('=') {
                assert!(before.starts_with('#'), "{manifest}: no reason above: {line}");
            }
            before = line;
        }
    }
}

// Proves that docs/ARCHITECTURE.md has a row about every folder of the crates.
#[test]
fn every_module_is_in_the_document() {
    let document = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for &folder in CRATES {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                let name = format!("`{}/`", path.file_name().unwrap().to_str().unwrap());
                assert!(document.contains(&name), "docs/ARCHITECTURE.md does not speak of {name}");
            }
        }
    }
}

/// Returns the tables (the first part of their names) and the keys of config/flatcap.toml,
/// including examples in its comments.
fn settings() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = std::fs::read_to_string(root().join("config/flatcap.toml")).unwrap();
    let (mut tables, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        if let Some(table) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            tables.insert(table.split('.').next().unwrap().to_owned());
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.insert(key.to_owned());
        }
    }
    (tables, keys)
}

// Proves that the words in backticks in the operator's document exist: tables and keys of the
// configuration, environment variables, metrics, causes, fields of the JSON output; no source
// files. Log lines at the start of a table's row have a test of their own.
#[test]
fn the_operators_document_names_what_is_there() {
    let document = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let (tables, keys) = settings();
    let sources = sources();
    let is_in_source = |word: &str| {
        let (field, text) = (format!(" {word}: "), format!("\"{word}\""));
        let has = |source: &str| source.contains(&field) || source.contains(&text);
        sources.iter().any(|(path, source)| crate_of(path).is_some() && has(shipped(source)))
    };
    let (mut metrics, mut prose) = (BTreeSet::new(), String::new());
    for line in document.lines() {
        let row = line.strip_prefix("| `").and_then(|row| row.split_once("` | "));
        let (name, rest) = row.unwrap_or(("", line));
        metrics.insert(name);
        prose.extend([rest, "\n"]);
    }
    let listed = std::fs::read_to_string(root().join("docs/METRICS.md")).unwrap();
    metrics.extend(listed.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` | ")?.0)));
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for word in prose.split('`').skip(1).step_by(2) {
        let is_there = if Path::new(word).extension().is_some_and(|ending| ending == "rs") {
            false
        } else if let Some(setting) = word.strip_prefix('[') {
            // "[table]" or "[table] key"
            let (table, key) = setting.split_once(']').unwrap();
            let key = key.trim_start().split(' ').next().unwrap();
            tables.contains(table.split('.').next().unwrap()) && (key.is_empty() || keys.contains(key))
        } else if let Some(variable) = word.strip_prefix("FLATCAP_").filter(|name| name.contains("__")) {
            let path = variable.split('=').next().unwrap().to_lowercase();
            let (table, key) = (path.split("__").next().unwrap(), path.rsplit("__").next().unwrap());
            tables.contains(table) && keys.contains(key)
        } else if !word.contains('_') || !word.chars().all(is_name) {
            continue;
        } else if word.starts_with("flatcap_") || word.starts_with("process_") {
            metrics.contains(word)
        } else {
            keys.contains(word) || is_in_source(word)
        };
        seen.insert(word);
        if !is_there {
            wrong.push(word);
        }
    }
    assert!(wrong.is_empty(), "docs/OPERATIONS.md names what is not there: {wrong:#?}");
    assert!(seen.len() > 60, "{} names", seen.len());
}

/// Maximum length of a line of a comment or a document. rustfmt formats code.
const COLUMNS_MAX: usize = 100;

// Proves that comments and documents fit 100 columns. Tables and links of documents cannot be
// wrapped and are exempt.
#[test]
fn comments_and_documents_fit_the_width() {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            if is_comment(line) && line.len() > COLUMNS_MAX {
                wrong.push(format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    for name in [
        "README.md",
        "docs/ARCHITECTURE.md",
        "docs/BENCHMARKS.md",
        "docs/COOKBOOK.md",
        "docs/FORMAT.md",
        "docs/LAKE.md",
        "docs/OPERATIONS.md",
        "docs/PAGE.md",
        "docs/PUSH.md",
    ] {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        let mut is_code = false;
        for (at, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let is_prose = !is_code && !line.starts_with(['|', '#', '<']) && !line.starts_with("    ");
            if is_prose && line.chars().count() > COLUMNS_MAX && line.trim().contains(' ') {
                wrong.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "longer than {COLUMNS_MAX} columns: {wrong:#?}");
}

/// Maximum number of type names that are defined in more than one module.
const SHARED_NAMES_MAX: usize = 20;

/// The name of the type that a line of code defines.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    loop {
        match words.next()? {
            "pub" | "crate" | "super" | "in" | "unsafe" => {}
            "struct" | "enum" | "trait" | "union" => return words.next(),
            _ => return None,
        }
    }
}

// Proves that a type name can be searched for: it is defined in one module, except for a few that
// mean the same thing everywhere.
#[test]
fn a_type_name_means_one_thing() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let Some(module) = module_of(&path) else { continue };
        if is_for_tests(&path) {
            continue;
        }
        for name in shipped(&text).lines().filter_map(defined_type) {
            modules.entry(name.to_owned()).or_default().insert(module.clone());
        }
    }
    assert!(modules.len() > 500, "{} types were found", modules.len());
    modules.retain(|_, modules| modules.len() > 1);
    assert!(modules.len() <= SHARED_NAMES_MAX, "{} names: {modules:#?}", modules.len());
}

/// Returns the text of a logging macro, with `*` for each inserted value. `arguments` is the code
/// after the parenthesis; the text is the literal that is an argument by itself.
fn logged_text(arguments: &str) -> String {
    let (mut depth, mut rest, mut text) = (1, arguments, None);
    let mut before = ',';
    while depth > 0 {
        let next = rest.chars().next().unwrap();
        rest = &rest[next.len_utf8()..];
        match next {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '"' => {
                let mut end = rest.find('"').unwrap();
                while rest[..end].ends_with('\\') {
                    end += 1 + rest[end + 1..].find('"').unwrap();
                }
                if depth == 1 && before == ',' {
                    text = Some(rest[..end].to_owned());
                }
                rest = &rest[end + 1..];
            }
            _ => {}
        }
        if !next.is_whitespace() {
            before = next;
        }
    }
    let text = text.unwrap_or_else(|| panic!("no literal text in {arguments:.80}"));
    let text = text.split("\\\n").map(str::trim_start).collect::<String>().replace("\\\"", "\"");
    let mut pieces = text.split('{');
    let first = pieces.next().unwrap().to_owned();
    pieces.fold(first, |text, piece| text + "*" + piece.split_once('}').unwrap().1)
}

/// Returns whether a text begins with a pattern in which `*` matches anything.
fn begins(text: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap()) else { return false };
    pieces.all(|piece| {
        rest.find(piece).is_some_and(|at| {
            rest = &rest[at + piece.len()..];
            true
        })
    })
}

// Proves that every log line at warning or above is in exactly one row of the table, with its
// level, and that no row is obsolete. Method: compares the messages of all logging macros with the
// first column.
#[test]
fn every_warning_is_in_the_operators_document() {
    let document = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let table = document.split("\n## Log lines\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.trim_matches('|').split(" | ");
            let pattern = cells.next().unwrap().trim().trim_matches('`');
            (pattern, if cells.next().unwrap().starts_with("Error. ") { "error" } else { "warn" })
        })
        .collect();
    let (mut said, mut wrong) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources() {
        if crate_of(&path).is_none() || is_for_tests(&path) {
            continue;
        }
        for level in ["warn", "error"] {
            for (at, name) in shipped(&text).match_indices(&format!("{level}!(")) {
                let arguments = &text[at + name.len()..];
                if text[..at].ends_with("compile_") {
                    continue;
                }
                if !text[..at].ends_with("tracing::") {
                    wrong.push(format!("{}: {level}! without tracing::", path.display()));
                    continue;
                }
                let line = logged_text(arguments);
                let found: Vec<_> = rows.iter().filter(|(pattern, _)| begins(&line, pattern)).collect();
                match found.as_slice() {
                    [(pattern, of)] if *of == level => {
                        said.insert(*pattern);
                    }
                    [(_, of)] => wrong.push(format!("\"{line}\" is {level}, not {of}")),
                    rows => wrong.push(format!("{}: \"{line}\" is in {} rows", path.display(), rows.len())),
                }
            }
        }
    }
    wrong.extend(
        rows.iter().filter(|(row, _)| !said.contains(row)).map(|(row, _)| format!("nobody says \"{row}\"")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(said.len() > 20, "{}", said.len());
}
