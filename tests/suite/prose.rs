//! Sentences of comments, schemas, documents and manual pages that have a marker of hard reading.
//!
//! A marker is an indicator: some hits are good English, so a share of the sentences may have one.

use std::path::{Path, PathBuf};

use regex::Regex;

/// Constructions that a reader probably reads twice.
const MARKERS: [(&str, &str); 12] = [
    ("a question as subject or object", r"^(What|Who|Whoever|Where|How|Which|When) [a-z][^?]*$"),
    ("'Most x that' for a maximum", r"^(Most|Least|Longest) [a-z ]+\b(that|of)\b"),
    ("'none if', 'none for'", r"[;,] none (if|for|without|of|where)\b"),
    ("'those of', 'that of'", r"\b(those|that) of\b"),
    ("'beside' for next to, during, in addition", r"\bbeside\b"),
    ("'anew'", r"\banew\b"),
    ("'told', 'tells'", r"\b(told|tells?)\b"),
    ("'is of', 'are of'", r"\b(is|are|was|were) of (a|an|the|its|this|that|one|no|those|each)\b"),
    ("'has what', 'has none'", r"\bhas (what|all|those|them|none|others)\b"),
    ("'thereby', 'whereof'", r"\b(meanwhile|thereby|therein|thereof|whereof)\b"),
    ("'texts' for strings", r"\btexts\b"),
    ("'so many', 'as many as are'", r"\bso many\b|\bas (many|much|often) as (are|is|it)\b"),
];
/// Longest sentence without a marker, in words.
const WORDS_MAX: usize = 35;
/// Shortest sentence that is counted, in words.
const WORDS_MIN: usize = 4;
/// Maximum number of sentences with a marker, of 1,000.
const MARKED_MAX: usize = 30;

/// Returns the text of a line of prose: a comment, or a line of a document that is neither a table
/// nor a heading.
fn prose(line: &str, is_document: bool) -> Option<&str> {
    let text = line.trim();
    if is_document {
        let is_other = text.starts_with(['|', '#', '!', '<']) || line.starts_with("    ");
        return (!is_other).then(|| text.strip_prefix("- ").unwrap_or(text));
    }
    Some(text.strip_prefix("//")?.trim_start_matches(['/', '!']).trim())
}

/// Returns a manual page as a document with the same lines. Headings, examples, and the tags of
/// lists are empty lines.
fn document_of_manual(page: &str) -> String {
    let (mut document, mut is_example, mut is_tag) = (String::new(), false, false);
    for line in page.lines() {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        is_example = name == ".nf" || (is_example && name != ".fi");
        let text = match name {
            _ if is_example || is_tag => String::new(),
            ".B" | ".I" => arguments.to_owned(),
            ".BI" | ".BR" | ".IB" | ".IR" | ".RB" | ".RI" => joined(arguments),
            _ if name.starts_with('.') => String::new(),
            _ => line.to_owned(),
        };
        is_tag = name == ".TP";
        let escapes = [r"\fB", r"\fI", r"\fR", r"\&"].into_iter();
        let text = escapes.fold(text, |text, escape| text.replace(escape, ""));
        document.push_str(&text.replace(r"\-", "-"));
        document.push('\n');
    }
    document
}

/// Joins the arguments of a macro that alternates fonts. Only spaces in double quotes are printed.
fn joined(arguments: &str) -> String {
    let parts = arguments.split('"').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part.replace(' ', "") } else { part.to_owned() }).collect()
}

/// Returns the sentences of a file of code, a document or a manual page.
fn sentences_of_file(path: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("rs" | "fbs") => sentences(&text, false),
        Some("md") => sentences(&text, true),
        _ => sentences(&document_of_manual(&text), true),
    }
}

/// Returns the sentences of a text, with the number of the line where their paragraph begins.
fn sentences(text: &str, is_document: bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut paragraph, mut first, mut is_code) = (String::new(), 0, false);
    let end = ("", text.lines().count() + 1);
    for (line, number) in text.lines().zip(1..).chain([end]) {
        let is_fence = is_document && line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let added = prose(line, is_document).filter(|added| !added.is_empty() && !is_code && !is_fence);
        let is_item = is_document && line.trim_start().starts_with("- ");
        if added.is_none() || is_item {
            found.extend(split(&paragraph).into_iter().map(|sentence| (first, sentence)));
            paragraph.clear();
        }
        if let Some(added) = added {
            if paragraph.is_empty() {
                first = number;
            }
            paragraph.push_str(added);
            paragraph.push(' ');
        }
    }
    found
}

/// Splits a paragraph where a punctuation mark is followed by a capital letter or by code.
fn split(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![Vec::new()];
    for word in paragraph.split_whitespace() {
        let is_start = word.starts_with(|first: char| first.is_ascii_uppercase() || first == '`');
        let last: &mut Vec<&str> = sentences.last_mut().unwrap();
        if is_start && last.last().is_some_and(|before| before.ends_with(['.', '!', '?', ':'])) {
            sentences.push(vec![word]);
        } else {
            last.push(word);
        }
    }
    sentences.iter().filter(|words| words.len() >= WORDS_MIN).map(|words| words.join(" ")).collect()
}

/// The markers, compiled once.
struct Markers(Vec<(&'static str, Regex)>);

impl Markers {
    fn new() -> Self {
        // The tables for letters of all languages are not compiled.
        let compiled = |pattern: &str| Regex::new(&pattern.replace(r"\b", r"(?-u:\b)")).unwrap();
        Self(MARKERS.map(|(name, pattern)| (name, compiled(pattern))).into())
    }

    fn of(&self, sentence: &str) -> Option<&'static str> {
        let is_long = sentence.split(' ').count() > WORDS_MAX;
        let named = self.0.iter().find(|(_, pattern)| pattern.is_match(sentence)).map(|(name, _)| *name);
        named.or(is_long.then_some("more than 35 words"))
    }
}

/// Adds the hand-written files of a folder that have one of the endings.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["target", "generated", "node_modules"].contains(&name) {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

// Proves that few sentences of the code, of the schemas, of the manual pages, of the documents next
// to code, and of each other document have a marker.
#[test]
fn few_sentences_have_a_marker() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut code, mut schemas) = (Vec::new(), Vec::new());
    for part in ["src", "crates", "tests", "benches"] {
        files(&root.join(part), &[".rs"], &mut code);
    }
    for part in ["schemas", "crates"] {
        files(&root.join(part), &[".fbs"], &mut schemas);
    }
    let (mut manuals, mut readmes, mut documents) = (Vec::new(), Vec::new(), Vec::new());
    files(&root.join("deploy/man"), &[".1", ".8", ".head", ".tail"], &mut manuals);
    for part in ["crates", "deploy", "examples", "python", "tests"] {
        files(&root.join(part), &[".md"], &mut readmes);
    }
    files(&root.join("docs"), &[".md"], &mut documents);
    documents.extend(["README.md", "CHANGELOG.md"].map(|name| root.join(name)));
    let parts = [code, schemas, manuals, readmes].into_iter();
    let parts = parts.chain(documents.into_iter().map(|document| vec![document]));
    let markers = Markers::new();
    for part in parts {
        let (mut count, mut marked) = (0, Vec::new());
        for path in &part {
            for (line, sentence) in sentences_of_file(path) {
                count += 1;
                if let Some(marker) = markers.of(&sentence) {
                    marked.push(format!("{}:{line}: {marker}: {sentence}", path.display()));
                }
            }
        }
        let is_small = count < 20; // one sentence would be too large a share
        assert!(is_small || marked.len() * 1000 <= count * MARKED_MAX, "of {count}: {marked:#?}");
    }
}

// Proves that the code blocks of documents are intact: a fence is alone on its line, and each block
// is closed.
#[test]
fn code_blocks_of_documents_are_intact() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![root.join("README.md")];
    for part in ["docs", "crates", "deploy", "examples", "python", "tests"] {
        files(&root.join(part), &[".md"], &mut documents);
    }
    for path in documents {
        let text = std::fs::read_to_string(&path).unwrap();
        let fences: Vec<&str> = text.lines().filter(|line| line.contains("```")).map(str::trim).collect();
        for (at, fence) in fences.iter().enumerate() {
            let language = fence.strip_prefix("```").unwrap_or_else(|| panic!("{path:?}: {fence}"));
            let is_begin = at % 2 == 0;
            assert_eq!(is_begin, !language.is_empty(), "{path:?}: {fence}");
            assert!(
                language.chars().all(|letter| letter.is_ascii_alphanumeric() || ",_".contains(letter)),
                "{path:?}: {fence}"
            );
        }
        assert!(fences.len().is_multiple_of(2), "{path:?}: a block is not closed");
    }
}

// Proves that a manual page is read like a document, without headings, tags and examples.
#[test]
fn manual_pages_are_read_as_documents() {
    let page = ".SH OUTPUT\n.TP\n.B Tag of a list\nRuns as\n.BR flatcap-info (1),\n.B \\-\\-json\nor\n\
                .IR first \", \" second .\n.PP\n\\fIName\\fR of one file.\n.nf\nA command of four words\n.fi\n";
    let found = sentences(&document_of_manual(page), true);
    let expected = [(4, "Runs as flatcap-info(1), --json or first, second."), (10, "Name of one file.")];
    assert!(found.iter().map(|(line, text)| (*line, text.as_str())).eq(expected), "{found:?}");
}

// Proves that paragraphs are split into sentences, that code, tables and short sentences do not
// count, and that markers are found.
#[test]
fn markers_are_found_in_sentences() {
    let document = "# What it is\nIt reads a file. Those of the\nother host are kept: `x` is one more.\n\
                    \n```sh\nWhat a command line has\n```\n- How the rows are read\n| What a table has |\n";
    let found = sentences(document, true);
    let expected = [
        (2, "It reads a file."),
        (2, "Those of the other host are kept:"),
        (2, "`x` is one more."),
        (8, "How the rows are read"),
    ];
    assert!(found.iter().map(|(line, text)| (*line, text.as_str())).eq(expected), "{found:?}");
    let markers = Markers::new();
    let names = found.iter().map(|(_, sentence)| markers.of(sentence));
    assert!(names.eq([None, None, None, Some("a question as subject or object")]), "{found:?}");
    let code = "/// Returns what it has.\n/// The length is that of the row.\nfn one() {} // Not a comment of its own.\n";
    let found = sentences(code, false);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(markers.of(&found[1].1), Some("'those of', 'that of'"));
    assert!(markers.of(&"word ".repeat(36)).is_some() && markers.of("A short sentence.").is_none());
}
