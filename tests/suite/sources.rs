//! Checks docs/SOURCES.md, which is generated from the schemas and the source list.

use std::fmt::Write;
use std::path::Path;

use flatbuffers_reflection::reflection::root_as_schema;
use flatcap::config::{Config, SourceConfig, format_duration};
use flatcap::sampling::sources::{CATALOG, SourceSpec, self_source, synthetic};
use flatcap_format::schema::{CompiledSchema, MetricKind};

const DOCUMENT: &str = "docs/SOURCES.md";
const HEAD: &str = "# Sources\n\n\
    The sources that flatcap can sample, field by field. Generated from the schemas and the source list\n\
    by `FLATCAP_SOURCES=write cargo test --test suite sources`; a test fails if this file is out of date.\n\n\
    - A field is named by its path, as in `dump --fields`. In a list it means the field of every element.\n\
    - A *counter* only grows, until it wraps or its device is removed. It is recorded as the kernel\n  \
    reports it, and `dump --rate` converts it to a rate. A *gauge* rises and falls. A *state* changes\n  \
    rarely.\n\
    - A value that the kernel lacks or that could not be read is absent, and the sample is marked with\n  \
    the reason (FORMAT.md, \"Telemetry frame\").\n\
    - `flatcap sources` measures the cost of a sample of each source on a host.\n";

/// Returns the name of each field in its file, if it differs: the attribute `origin`, by the name
/// of the field. Names of several fields of a schema are ambiguous and omitted.
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
    let plan = CompiledSchema::compile(schema, root).unwrap();
    let origins = origins(schema);
    out.push_str("\n| field | type | unit | kind | description |\n|---|---|---|---|---|\n");
    for leaf in plan.fields() {
        let field = leaf.field;
        let kind = match field.metric_kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::State => "state",
            MetricKind::Text => "text",
            MetricKind::Unknown => "",
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
    assert!(silent.is_empty(), "fields without documentation: {silent:?}");
}

fn source(out: &mut String, entry: &SourceSpec, config: Option<&SourceConfig>) {
    let files: Vec<String> = entry.files.iter().map(|file| format!("`/{file}`")).collect();
    writeln!(out, "\n## {}\n", entry.name).unwrap();
    let files = if files.is_empty() {
        "the file or program that its table names".to_owned()
    } else {
        files.join(", ")
    };
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
        None => writeln!(out, "- One per table `[source.{}.NAME]`; group `blocking`", entry.name),
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
    out.push_str("\n## self\n\nThe recorder itself; always available.\n");
    fields(&mut out, self_source::ROOT, self_source::SCHEMA);
    out.push_str(
        "\n## synthetic\n\nGenerated values, computed from the sequence number of the sample: shape `point`.\n",
    );
    fields(&mut out, synthetic::POINT_ROOT, synthetic::SCHEMA);
    out.push_str("\nShape `wide`:\n");
    fields(&mut out, synthetic::WIDE_ROOT, synthetic::SCHEMA);
    out
}

// Proves that the document matches the build, and that every field is documented. Method: generate
// and compare.
#[test]
fn the_sources_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let made = document();
    if std::env::var_os("FLATCAP_SOURCES").is_some_and(|value| value == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(kept == made, "{DOCUMENT} differs from line {first:?} on; generate it again");
}

// Proves that every source that can be configured is in this build, under its name, and vice versa.
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
