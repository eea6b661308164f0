//! docs/SOURCES.md follows from the schemas and from what the sources say of themselves.

use std::fmt::Write;
use std::path::Path;

use flatbuffers_reflection::reflection::root_as_schema;
use flatcap::config::{Config, Source, format_duration};
use flatcap::sampling::sources::{CATALOG, Entry, agent, synthetic};
use flatcap::schema::{Meaning, Plan};

const DOCUMENT: &str = "docs/SOURCES.md";
const HEAD: &str = "# Sources\n\n\
    What can be sampled, field by field. Made from the schemas and from the sources' own statements by\n\
    `FLATCAP_SOURCES=write cargo test --test suite sources`; a test fails when it is not fresh.\n\n\
    - A field is named by its path, as `dump --fields` takes it; in a list, it means that of every element.\n\
    - A *counter* only grows until it wraps or its device goes; it is recorded as the kernel has it, and `dump --rate` makes rates\n  \
    of it. A *gauge* goes up and down. A *state* changes seldom.\n\
    - What a kernel lacks, or what could not be read, is absent, and the sample is marked with the reason (FORMAT.md,\n  \
    \"Telemetry frame\").\n\
    - `flatcap sources` measures what a sample of each costs on a host.\n";

/// What each field is called in its file, where that is another name: the attribute `origin`, by the field's name. A name that
/// stands for several fields of a schema tells nothing.
pub fn origins(schema: &[u8]) -> Vec<(String, String)> {
    let schema = root_as_schema(schema).unwrap();
    let fields = || schema.objects().iter().flat_map(|object| object.fields());
    fields()
        .filter(|field| fields().filter(|other| other.name() == field.name()).count() == 1)
        .filter_map(|field| {
            let attributes = field.attributes().into_iter().flatten();
            let mut origin = attributes.filter(|attribute| attribute.key() == "origin");
            Some((field.name().to_owned(), origin.next()?.value()?.to_owned()))
        })
        .collect()
}

fn fields(out: &mut String, root: &str, schema: &[u8]) {
    let mut silent = Vec::new();
    let plan = Plan::compile(schema, root).unwrap();
    let origins = origins(schema);
    out.push_str("\n| field | type | unit | kind | what it is |\n|---|---|---|---|---|\n");
    for leaf in plan.fields() {
        let field = leaf.field;
        let kind = match field.meaning() {
            Meaning::Counter => "counter",
            Meaning::Gauge => "gauge",
            Meaning::State => "state",
            Meaning::Text => "text",
            Meaning::Unknown => "",
        };
        let origin = origins.iter().find(|(name, _)| name == field.name());
        let origin =
            origin.map(|(_, origin)| format!(" (`{}`)", origin.trim_end_matches(':'))).unwrap_or_default();
        let about = field.documentation().replace('|', "\\|");
        if about.is_empty() {
            silent.push(format!("{root}: {}", leaf.path));
        }
        let unit = field.unit().unwrap_or_default();
        writeln!(out, "| `{}` | {} | {unit} | {kind} | {about}{origin} |", leaf.path, field.type_name())
            .unwrap();
    }
    assert!(silent.is_empty(), "fields that say nothing of themselves: {silent:?}");
}

fn source(out: &mut String, entry: &Entry, config: Option<&Source>) {
    let files: Vec<String> = entry.files.iter().map(|file| format!("`/{file}`")).collect();
    writeln!(out, "\n## {}\n", entry.name).unwrap();
    let files = if files.is_empty() { "what its table names".to_owned() } else { files.join(", ") };
    writeln!(out, "- Reads: {files}").unwrap();
    writeln!(out, "- Changes: {}", entry.refresh).unwrap();
    match config {
        Some(config) => {
            let state = if config.enabled { "on by default" } else { "off by default" };
            writeln!(
                out,
                "- Period: {}; {state}; group `{}`",
                format_duration(config.period),
                config.group().as_str()
            )
        }
        None => writeln!(out, "- One for each table `[source.{}.NAME]`; group `blocking`", entry.name),
    }
    .unwrap();
    if !entry.selects.is_empty() {
        writeln!(out, "- `include` and `exclude`: {}", entry.selects).unwrap();
    }
    if !entry.needs.is_empty() {
        writeln!(out, "- Needs: {}", entry.needs.join(", ")).unwrap();
    }
    fields(out, entry.root, entry.schema);
}

fn document() -> String {
    let config = Config::default();
    let mut out = HEAD.to_owned();
    let entry = |name: &str| CATALOG.iter().find(|entry| entry.name == name);
    for configured in &config.sources {
        if let Some(entry) = entry(&configured.full_name()) {
            source(&mut out, entry, Some(configured));
        }
    }
    for name in ["file", "command"] {
        source(&mut out, entry(name).unwrap(), None);
    }
    out.push_str("\n## self\n\nThe recorder about itself; always at hand.\n");
    fields(&mut out, agent::ROOT, agent::SCHEMA);
    out.push_str(
        "\n## synthetic\n\nMade-up values, which follow from the number of the reading: shape `point`.\n",
    );
    fields(&mut out, synthetic::POINT_ROOT, synthetic::SCHEMA);
    out.push_str("\nShape `wide`:\n");
    fields(&mut out, synthetic::WIDE_ROOT, synthetic::SCHEMA);
    out
}

// Goal: the document says what the build records, and every field says what it is. Method: made again and compared.
#[test]
fn the_document_of_sources_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let made = document();
    if std::env::var_os("FLATCAP_SOURCES").is_some_and(|value| value == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(kept == made, "{DOCUMENT} is not fresh from line {first:?} on: write it again");
}

// Goal: every source that can be configured is in this build, under its name. Method: names on both sides.
#[test]
fn every_configured_source_is_there() {
    let config = Config::default();
    let known =
        |name: &str| CATALOG.iter().any(|entry| entry.name == name) || matches!(name, "self" | "synthetic");
    assert!(config.sources.iter().all(|source| known(&source.full_name())));
    for entry in CATALOG {
        let is_configured = config.sources.iter().any(|source| source.full_name() == entry.name);
        assert!(is_configured || matches!(entry.name, "file" | "command"), "{}", entry.name);
        assert!(!entry.refresh.is_empty(), "{}", entry.name);
    }
}
