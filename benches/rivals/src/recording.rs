//! Samples as frames of segments: recorded live, or read from segments.

use std::path::{Path, PathBuf};

use flatcap::config::Config;
use flatcap_format::frame::{Builders, ENVELOPE_BYTES, Envelope, Stamp};
use flatcap_format::schema::{CompiledSchema, FieldValue, FlatColumns, FlatRow, envelope};
use flatcap_format::segment::{Advance, FrameKind, list};
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::host::HostRoot;
use flatcap_os::wake_event::WakeEvent;
use flatcap_sampling::OpenContext;
use flatcap_stream::{ChecksumKind, Framer, KindDeframer, SliceReader};
use parquet::data_type::ByteArray;

use crate::tables::{Column, Table, Values};

/// Consecutive frames with XXH3-64, and their sources.
pub struct Recording {
    pub frames: Vec<u8>,
    pub sources: Vec<Source>,
}

/// One source; its id is its index.
pub struct Source {
    pub name: String,
    pub root: String,
    pub schema: Vec<u8>,
}

/// The checksum of a recording's frames.
pub const CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;

impl Recording {
    /// Samples sources of this host on a thread of this process: every `period_ns` one after the
    /// other, each with its own stamp and duration. Missed ticks are not caught up.
    pub fn live(names: &[&str], period_ns: u64, ticks: u64) -> Self {
        let config = Config::default();
        let host = HostRoot::new("/");
        let mut recording = Self { frames: Vec::new(), sources: Vec::new() };
        let mut samplers = Vec::new();
        for name in names {
            let source = config.sources.iter().find(|source| source.spec.name == *name);
            let source = source.expect("a source of every configuration");
            let context = OpenContext { host: &host, settings: source.settings() };
            samplers.push(source.spec.open(&context).expect("a source of this host"));
            let (root, schema) = (source.spec.root.to_owned(), source.spec.schema.to_vec());
            recording.sources.push(Source { name: (*name).to_owned(), root, schema });
        }
        let mut builders = Builders::default();
        let (wake_event, wall_offset) = (WakeEvent::new(), read_clocks().wall_offset_ns());
        let mut place = Vec::new();
        let mut due = monotonic_ns() + period_ns;
        for seq in 0..ticks {
            wake_event.wait_until(due);
            due = (due + period_ns).max(monotonic_ns());
            for (id, sampler) in (0..).zip(&mut samplers) {
                let mono_ns = monotonic_ns();
                sampler.read().expect("a source of this host");
                let duration_ns = (monotonic_ns() - mono_ns) as u32;
                let (payload, incomplete) = sampler.payload(seq, builders.for_size(8192));
                let wall_ns = mono_ns as i64 + wall_offset;
                let stamp = Stamp { mono_ns, wall_ns, seq, incomplete, duration_ns };
                place.resize(ENVELOPE_BYTES + payload.len(), 0);
                Envelope::new(id).write(&mut place, &stamp, &payload);
                CHECKSUM.frame_and_write(&mut recording.frames, &place).expect("a vector takes everything");
            }
        }
        recording
    }

    /// Reads the samples of all segments of a directory, which must be of one run. None without
    /// segments.
    pub fn of_segments(directory: &Path) -> Option<Self> {
        let mut recording = Self { frames: Vec::new(), sources: Vec::new() };
        for listing in list(&[directory.to_owned()]).ok()? {
            let mut reader = listing.open().expect("a segment")?;
            for source in &reader.header().sources {
                let (id, blank) = (usize::from(source.id), || Source {
                    name: String::new(),
                    root: String::new(),
                    schema: Vec::new(),
                });
                if recording.sources.len() <= id {
                    recording.sources.resize_with(id + 1, blank);
                }
                let (name, root) = (source.name.clone(), source.root.clone());
                recording.sources[id] = Source { name, root, schema: source.schema.clone() };
            }
            while let Some(Advance::Frame(at)) = reader.advance().expect("intact") {
                if at.kind == FrameKind::Telemetry {
                    let payload = reader.payload(at);
                    CHECKSUM
                        .frame_and_write(&mut recording.frames, payload)
                        .expect("a vector takes everything");
                }
            }
        }
        (!recording.frames.is_empty()).then_some(recording)
    }

    /// The payloads of the frames.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        SliceReader::new(&self.frames, KindDeframer::new(CHECKSUM)).map(|payload| payload.expect("intact"))
    }

    /// The frames with lengths and checksums.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.frames[..];
        std::iter::from_fn(move || {
            let length = u32::from_le_bytes(*rest.first_chunk()?);
            let (frame, behind) = rest.split_at(CHECKSUM.frame_bytes(length as usize));
            rest = behind;
            Some(frame)
        })
    }

    /// Source, time and payload of each frame.
    pub fn messages(&self) -> impl Iterator<Item = (u16, u64, &[u8])> {
        self.payloads().map(|payload| {
            let (header, _) = envelope::split(payload).expect("a telemetry frame");
            (header.source(), header.mono_ns(), payload)
        })
    }

    /// Creates a table per source: the stamp and each field of the schema that occurs in any frame,
    /// list elements by their index.
    pub fn tables(&self) -> Vec<Table> {
        (0..).zip(&self.sources).filter_map(|(id, source)| self.table(id, source)).collect()
    }

    fn table(&self, id: u16, source: &Source) -> Option<Table> {
        let plan = CompiledSchema::compile(&source.schema, &source.root).ok()?;
        let (mut row, mut columns) = (FlatRow::default(), FlatColumns::default());
        let of_source = || self.messages().filter(|(source, _, _)| *source == id);
        for (_, _, payload) in of_source() {
            plan.walk(&payload[ENVELOPE_BYTES..], &mut row).expect("a payload of its schema");
            columns.add(&plan, &row).expect("not too many");
        }
        let names = ["mono_ns", "wall_ns", "seq", "shortfall", "duration_ns"];
        let mut stamps = names.map(|_| Vec::new());
        let mut fields: Vec<Filling> = columns.as_slice().iter().map(|_| Filling::default()).collect();
        for (_, _, payload) in of_source() {
            let (header, body) = envelope::split(payload).expect("a telemetry frame");
            let stamp = [
                header.mono_ns() as i64,
                header.wall_ns(),
                header.seq() as i64,
                i64::from(header.flags()),
                i64::from(header.duration_ns()),
            ];
            stamps.iter_mut().zip(stamp).for_each(|(column, value)| column.push(value));
            plan.walk(body, &mut row).expect("a payload of its schema");
            fields.iter_mut().zip(columns.align(&row)).for_each(|(field, value)| field.push(value));
        }
        let mut table = Table::default();
        for (name, values) in names.into_iter().zip(stamps) {
            let values = Values::Integers(values);
            table.columns.push(Column { name: name.to_owned(), values, levels: None });
        }
        for (column, field) in columns.as_slice().iter().zip(fields) {
            // Parquet would turn dots into nested groups.
            table.columns.extend(field.column(column.path().replace('.', "/")));
        }
        (!table.columns[0].values_is_empty()).then_some(table)
    }
}

impl Column {
    fn values_is_empty(&self) -> bool {
        matches!(&self.values, Values::Integers(values) if values.is_empty())
    }
}

/// A column that is being filled.
#[derive(Default)]
struct Filling {
    values: Option<Values>,
    levels: Vec<i16>,
}

impl Filling {
    fn push(&mut self, value: FieldValue<'_>) {
        self.levels.push(i16::from(value != FieldValue::Absent));
        let values = match (&mut self.values, value) {
            (_, FieldValue::Absent) => return,
            (Some(values), _) => values,
            (none, FieldValue::Unsigned(_) | FieldValue::Signed(_)) => {
                none.insert(Values::Integers(Vec::new()))
            }
            (none, FieldValue::Float(_)) => none.insert(Values::Floats(Vec::new())),
            (none, FieldValue::Float32(_)) => none.insert(Values::Floats32(Vec::new())),
            (none, FieldValue::Bool(_)) => none.insert(Values::Bools(Vec::new())),
            (none, FieldValue::Text(_)) => none.insert(Values::Texts(Vec::new())),
        };
        match (values, value) {
            (Values::Integers(values), FieldValue::Unsigned(value)) => values.push(value as i64),
            (Values::Integers(values), FieldValue::Signed(value)) => values.push(value),
            (Values::Floats(values), FieldValue::Float(value)) => values.push(value),
            (Values::Floats32(values), FieldValue::Float32(value)) => values.push(value),
            (Values::Bools(values), FieldValue::Bool(value)) => values.push(value),
            (Values::Texts(values), FieldValue::Text(value)) => values.push(ByteArray::from(value)),
            _ => panic!("a field has one type"),
        }
    }

    /// Returns the column, or `None` if no row has a value.
    fn column(self, name: String) -> Option<Column> {
        let is_everywhere = self.levels.iter().all(|level| *level == 1);
        let levels = (!is_everywhere).then_some(self.levels);
        Some(Column { name, values: self.values?, levels })
    }
}

/// The directory of data outside the repository: FLATCAP_SHARED_DATA, or shared/data next to the
/// checkout.
pub fn shared_data() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    std::env::var_os("FLATCAP_SHARED_DATA").map_or_else(beside, PathBuf::from)
}
