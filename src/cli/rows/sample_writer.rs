//! Writes whole samples as JSON lines, CSV, or human-readable lines.

use std::io::{self, Write};

use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::schema::{DecodeError, FieldValue, FlatColumn, append_json_value};
use flatcap_format::segment::SampleView;
use flatcap_query::SampleReader;

use super::row_cell::print_data;
use super::row_writer::{RowFormat, RowWriter};

impl RowWriter<'_> {
    /// Adds the columns of a whole sample to the CSV heading. Skips a sample that cannot be
    /// decoded.
    pub(super) fn add_columns(&mut self, reader: &SampleReader) -> Result<(), DecodeError> {
        match (reader.walk(&mut self.sample_row), reader.schema()) {
            (Ok(()), Some(schema)) => self.sample_columns.add(schema, &self.sample_row),
            _ => Ok(()),
        }
    }

    /// Writes the CSV heading of whole samples.
    pub(super) fn begin_samples(&mut self) -> io::Result<()> {
        let RowFormat::Csv { out, line, .. } = &mut self.format else { return Ok(()) };
        let stamps = ["seq", "mono_ns", "wall_ns", "time", "duration_ns", "flags"];
        let names = ["source"].into_iter().chain(self.has_host_column.then_some("host")).chain(stamps);
        let names = names.chain(self.sample_columns.as_slice().iter().map(FlatColumn::path));
        let mut distinct = DistinctNames::default();
        line.clear();
        names.for_each(|name| line.push_text(distinct.take(name, '-').as_bytes()));
        out.write_all(line.end())
    }

    /// Writes the sample that the reader returned last. If the sample cannot be decoded, writes
    /// nothing and returns an error.
    pub(super) fn sample(&mut self, reader: &SampleReader) -> io::Result<Result<(), DecodeError>> {
        let Some(sample) = reader.sample() else { return Ok(Ok(())) };
        let SampleView { seq, mono_ns, wall_ns, duration_ns, flags, .. } = sample;
        let Self { format, times, host, has_host_column, cell, sample_row: row, .. } = self;
        if let RowFormat::Jsonl { out, line } = format {
            line.clear();
            line.extend_from_slice(b"{\"source\":");
            append_json_value(FieldValue::Text(reader.source()), line);
            line.extend_from_slice(b",\"host\":");
            append_json_value(FieldValue::Text(host), line);
            write!(line, ",\"seq\":{seq},\"mono_ns\":{mono_ns},\"wall_ns\":{wall_ns},\"time\":\"")?;
            times.push_nanoseconds(wall_ns, line);
            write!(line, "\",\"duration_ns\":{duration_ns},\"flags\":{flags},\"data\":")?;
            if let Err(error) = reader.append_json(line) {
                return Ok(Err(error));
            }
            line.extend_from_slice(b"}\n");
            return out.write_all(line).map(Ok);
        }
        if let Err(error) = reader.walk(row) {
            return Ok(Err(error));
        }
        let host = has_host_column.then_some(host.as_str());
        match format {
            RowFormat::Csv { out, line, text_rule, .. } => {
                line.clear();
                for text in [reader.source()].into_iter().chain(host) {
                    print_data(FieldValue::Text(text), *text_rule, cell);
                    line.push_text(cell);
                }
                line.push_number(seq);
                line.push_number(mono_ns);
                line.push_number(wall_ns);
                line.push_plain(|bytes| times.push_nanoseconds(wall_ns, bytes));
                line.push_number(duration_ns);
                line.push_number(flags);
                for value in self.sample_columns.align(row) {
                    print_data(value, *text_rule, cell);
                    match value {
                        FieldValue::Text(_) => line.push_text(cell),
                        _ => line.push_plain(|bytes| bytes.extend_from_slice(cell)),
                    }
                }
                out.write_all(line.end()).map(Ok)
            }
            RowFormat::Lines(lines) => lines.print((reader, row), host, times),
            RowFormat::Jsonl { .. } | RowFormat::Table(_) => Ok(Ok(())),
        }
    }
}
