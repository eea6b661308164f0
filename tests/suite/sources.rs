//! Checks what is generated from the list of sources and the keys of the configuration:
//! docs/SOURCES.md and config/flatcap.toml.

use std::fmt::Write;
use std::path::Path;

use flatbuffers_reflection::reflection::root_as_schema;
use flatcap::config::{Config, SourceConfig, format_duration};
use flatcap_format::schema::{CompiledSchema, MetricKind};
use flatcap_sampling::sources::{CATALOG, find, synthetic};
use flatcap_sampling::{OwnKeys, SourceOpener, SourceSpec};

use super::settings_file::settings_file;

const DOCUMENT: &str = "docs/SOURCES.md";
const SETTINGS: &str = "config/flatcap.toml";
/// The command that writes both again.
const WRITE: &str = "FLATCAP_SOURCES=write cargo test --features packaged --test suite sources";
const HEAD: &str = "# Sources\n\n\
    The sources that flatcap can sample, field by field. Generated from the schemas and the source list\n\
    by `FLATCAP_SOURCES=write cargo test --features packaged --test suite sources`; a test fails if this\n\
    file is out of date.\n\n\
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
    for spec in CATALOG.iter().filter(|spec| matches!(spec.opener, SourceOpener::Host(_))) {
        source(&mut out, spec, config.sources.iter().find(|configured| configured.spec == spec));
    }
    out.push_str("\n## self\n\nThe recorder itself; always available.\n");
    let itself = find("self").unwrap();
    fields(&mut out, itself.root, itself.schema);
    out.push_str(
        "\n## synthetic\n\nGenerated values, computed from the sequence number of the sample: shape `point`.\n",
    );
    fields(&mut out, synthetic::POINT_ROOT, synthetic::SCHEMA);
    out.push_str("\nShape `wide`:\n");
    fields(&mut out, synthetic::WIDE_ROOT, synthetic::SCHEMA);
    out
}

/// Compares a file with what it should be, or writes it if that is asked for.
fn assert_up_to_date(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("FLATCAP_SOURCES").is_some_and(|value| value == "write") {
        return std::fs::write(&path, wanted).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(wanted.lines()).position(|(kept, wanted)| kept != wanted);
    let first = first.unwrap_or_else(|| kept.lines().count().min(wanted.lines().count())) + 1;
    assert!(kept == wanted, "{file} differs from line {first} on; write it anew: {WRITE}");
}

// Proves that the document matches the build, and that every field is documented. Method: generate
// and compare.
#[test]
fn the_sources_document_is_up_to_date() {
    assert_up_to_date(DOCUMENT, &document());
}

// Proves that the file of all settings has each key, as its source or its table states it. Method:
// generate and compare.
#[test]
fn the_settings_are_up_to_date() {
    assert_up_to_date(SETTINGS, &settings_file());
}

// Proves that a source is written down in its own file alone: the configuration names no source but
// those with keys of their own.
#[test]
fn the_configuration_names_no_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for spec in CATALOG.iter().filter(|spec| spec.keys == OwnKeys::None) {
            let literal = format!("\"{}\"", spec.name);
            assert!(!shipped.contains(&literal), "{} names {literal}", path.display());
        }
        files += 1;
    }
    assert!(files > 20, "{files}");
}

// Proves that every source can be configured under its name and says how often it changes.
#[test]
fn every_source_can_be_configured() {
    let config = Config::default();
    for spec in CATALOG {
        let is_configured = config.sources.iter().any(|source| source.full_name() == spec.name);
        assert_eq!(is_configured, !spec.has_instances(), "{}", spec.name);
        assert!(!spec.refresh.is_empty() && spec.about.ends_with('.'), "{}", spec.name);
    }
}
