//! The house rules: which room may know which, and what every file owes its reader.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Which rooms each room may import: docs/ARCHITECTURE.md, "Edges".
const EDGES: [(&str, &[&str]); 19] = [
    ("stream", &[]),
    ("schema", &[]),
    ("os", &[]),
    ("metrics", &[]),
    ("block", &["stream", "schema"]),
    ("config", &["block"]),
    ("frame", &["schema", "stream"]),
    ("slab", &["stream", "os", "metrics", "schema"]),
    ("sampling", &["frame", "slab", "os", "metrics", "config", "schema"]),
    ("segment", &["block", "stream", "schema", "os", "metrics"]),
    ("recorder", &["slab", "segment", "stream", "os", "metrics"]),
    ("seal", &["block", "segment", "stream", "os", "metrics"]),
    ("replay", &["segment", "stream"]),
    ("import", &["segment", "stream", "frame", "schema", "os"]),
    ("export", &["replay", "segment", "stream", "os"]),
    ("control", &["metrics", "os", "config"]),
    (
        "daemon",
        &[
            "config", "sampling", "slab", "recorder", "segment", "stream", "os", "metrics", "control",
            "seal", "block",
        ],
    ),
    (
        "cli",
        &[
            "config", "sampling", "slab", "recorder", "segment", "stream", "os", "metrics", "daemon",
            "replay", "schema", "frame", "control", "import", "export", "seal", "block",
        ],
    ),
    ("main", &["cli"]),
];

/// Longest file without its tests.
const LINES_MAX: usize = 500;

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
    for folder in ["src", "tests", "benches"] {
        files(&root().join(folder), "rs", &mut found);
    }
    // What a compiler of schemas wrote keeps its own rules.
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

/// The part of a file that is shipped: what stands in front of its tests.
fn shipped(text: &str) -> &str {
    let starts = ["\nmod tests {", "\npub(super) mod tests {", "\npub(crate) mod tests {"];
    let start = starts.iter().filter_map(|start| text.find(start)).min();
    text.get(..start.unwrap_or(text.len())).unwrap()
}

/// Whether a file is a module that only tests have: its room declares it under `#[cfg(test)]`.
fn is_for_tests(path: &Path) -> bool {
    let read = |name| std::fs::read_to_string(root().join(path).with_file_name(name)).unwrap_or_default();
    let room = read("mod.rs") + &read("lib.rs");
    let stem = path.file_stem().unwrap().to_str().unwrap();
    ["test", "all(test, flatcap_model)"]
        .iter()
        .any(|cfg| room.contains(&format!("#[cfg({cfg})]\nmod {stem};")))
}

fn room(path: &Path) -> Option<String> {
    let inner = path.strip_prefix("src").ok()?;
    let first = inner.components().next()?.as_os_str().to_str()?;
    Some(first.trim_end_matches(".rs").to_owned())
}

// Goal: edges between rooms go one way, as the document says. Method: every `crate::ROOM` in shipped code against the
// table, and the table against a cycle.
#[test]
fn rooms_import_only_what_they_may() {
    let edges: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(room) = room(&path) else { continue };
        if room == "lib" || is_for_tests(&path) {
            continue;
        }
        let allowed = edges.get(room.as_str()).unwrap_or_else(|| panic!("{room} is in no row of the table"));
        for line in shipped(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            let own_name = if room == "main" { "flatcap::" } else { "crate::" };
            for reference in line.split(own_name).skip(1) {
                let to: String = reference.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if edges.contains_key(to.as_str()) && to != room && !allowed.contains(&to.as_str()) {
                    wrong.push(format!("{}: {room} -> {to}", path.display()));
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

// Goal: the table in the document is the table that is tested. Method: find each row there.
#[test]
fn the_document_shows_the_edges() {
    let document = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for (room, to) in EDGES {
        let row = format!("| `{room}` | {} |", if to.is_empty() { "-".to_owned() } else { to.join(", ") });
        assert!(document.contains(&row), "docs/ARCHITECTURE.md lacks the row {row}");
    }
}

// Goal: every file says what it is for, in plain characters, and leaves nothing for later. Method: read them all.
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
        // Written in two halves, so that this file does not find itself.
        for word in
            [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("unimple", "mented!")]
        {
            if text.contains(word) {
                wrong.push(format!("{shown}: {word}"));
            }
        }
        let lines = shipped(&text).lines().count();
        if path.starts_with("src") && lines > LINES_MAX {
            wrong.push(format!("{shown}: {lines} lines without tests, more than {LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Goal: a test says what it proves before it does it. Method: the line above each #[test], or the first of its body.
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

// Goal: every dependency has its reason. Method: a comment above each line of the tables in Cargo.toml.
#[test]
fn every_dependency_has_a_reason() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut in_table = false;
    let mut before = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_table = line.ends_with("dependencies]");
        } else if in_table && line.contains('=') {
            assert!(before.starts_with('#'), "no reason above: {line}");
        }
        before = line;
    }
}

// Goal: every room has its paragraph in the document. Method: each folder of src by name.
#[test]
fn every_room_is_in_the_document() {
    let document = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = format!("`{}/`", path.file_name().unwrap().to_str().unwrap());
            assert!(document.contains(&name), "docs/ARCHITECTURE.md does not speak of {name}");
        }
    }
}

// Goal: every file and every test that the operator's document names exists. Method: words in backticks: paths, and names of
// three words or more, which are tests or fields of the agent's state; metrics have a test of their own.
#[test]
fn the_operators_document_names_what_is_there() {
    let document = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let sources = sources();
    let mut tests = 0;
    for word in document.split('`').skip(1).step_by(2) {
        if Path::new(word).extension().is_some_and(|ending| ending == "rs") {
            assert!(root().join(word).is_file(), "there is no {word}");
        } else if word.split('_').count() > 2 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            if word.starts_with("flatcap_") || word.starts_with("process_") {
                continue;
            }
            let (function, field) = (format!("fn {word}("), format!("pub {word}:"));
            let is_there = |text: &str| text.contains(&function) || text.contains(&field);
            assert!(sources.iter().any(|(_, text)| is_there(text)), "there is no test {word}");
            tests += 1;
        }
    }
    assert!(tests > 10, "{tests}");
}

/// The text that a logging macro shows, with `*` for what is put in, from what stands behind its parenthesis: the one literal that is an
/// argument by itself.
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

/// Whether a text begins as a pattern says, in which `*` stands for anything.
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

// Goal: an operator finds every line at warning or above, with its level, in exactly one row of the table, and no row is about a
// line that there no longer is. Method: the texts of all logging macros against the first column.
#[test]
fn every_warning_is_in_the_operators_document() {
    let document = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let table = document.split("\n## Log lines\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.trim_matches('|').split(" | ");
            (cells.next().unwrap().trim().trim_matches('`'), cells.next().unwrap().trim())
        })
        .collect();
    let (mut said, mut wrong) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources() {
        if !path.starts_with("src") || is_for_tests(&path) {
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
