//! Exports to a profile of pprof, which `go tool pprof`, Speedscope, Grafana and others read. For
//! each stack, the profile has the number of samples and the CPU time.
//!
//! The outermost function of each stack is the process, as in folded stacks. The message is not
//! compressed, because all readers accept it uncompressed.

use std::collections::HashMap;

use prost::Message;

use crate::error::ColumnarError;
use crate::single_output::SingleOutput;
use crate::stack_lines::StackLines;

/// Writes the stacks as a profile.
pub(crate) fn put_pprof(stacks: &StackLines, out: &mut SingleOutput) -> Result<(), ColumnarError> {
    out.put(&profile(stacks).encode_to_vec())
}

/// `perftools.profiles.Profile`, with the numbers of its fields in `proto/profile.proto` of pprof.
#[derive(Clone, PartialEq, prost::Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<SampleType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<ProfileFunction>,
    /// The strings of the profile. The first string is empty. Other fields refer to a string by its
    /// index.
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(message, optional, tag = "11")]
    period_type: Option<SampleType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SampleType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    /// The ids of the locations, the innermost function first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<ProfileLine>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProfileLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProfileFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Returns the stacks as a profile. Each function has only one location, because addresses from
/// different runs or processes cannot be compared.
fn profile(stacks: &StackLines) -> Profile {
    let mut strings: HashMap<&str, i64> = HashMap::new();
    let mut profile = Profile { string_table: vec![String::new()], ..Profile::default() };
    let mut value_type = |name: &str, unit: &str| {
        let mut add = |text: &str| {
            profile.string_table.push(text.to_owned());
            signed(profile.string_table.len() as u64 - 1)
        };
        SampleType { r#type: add(name), unit: add(unit) }
    };
    let types = [value_type("samples", "count"), value_type("cpu", "nanoseconds")];
    profile.period_type = types.last().cloned();
    profile.sample_type = types.to_vec();
    profile.period = signed(stacks.cpu_ns.checked_div(stacks.samples).unwrap_or_default());
    for (line, total) in &stacks.lines {
        let mut location_id: Vec<u64> = Vec::new();
        for name in line.split(';') {
            let next = signed(profile.function.len() as u64 + 1);
            let id = *strings.entry(name).or_insert(next);
            if id == next {
                let id = id.unsigned_abs();
                profile.string_table.push(name.to_owned());
                let name = signed(profile.string_table.len() as u64 - 1);
                profile.function.push(ProfileFunction { id, name });
                profile.location.push(Location { id, line: vec![ProfileLine { function_id: id }] });
            }
            location_id.push(id.unsigned_abs());
        }
        location_id.reverse();
        profile.sample.push(Sample { location_id, value: vec![signed(total.samples), signed(total.cpu_ns)] });
    }
    profile
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_lines::StackCount;

    // Proves that each stack has its functions with the innermost function first, its samples and
    // its time. Also proves that each function and name occurs exactly once.
    #[test]
    fn stacks_are_samples() {
        let count = |samples| StackCount { samples, cpu_ns: samples * 10 };
        let lines = [("app;main;work", 3), ("app;main", 2), ("b;work", 1)];
        let stacks = StackLines {
            lines: lines.map(|(line, samples)| (line.to_owned(), count(samples))).into(),
            samples: 6,
            cpu_ns: 60,
            ..StackLines::default()
        };
        let found = Profile::decode(&*profile(&stacks).encode_to_vec()).unwrap();
        let text = |index: i64| found.string_table[usize::try_from(index).unwrap()].clone();
        let name = |location: &u64| {
            let location = found.location.iter().find(|own| own.id == *location).unwrap();
            let function = found.function.iter().find(|own| own.id == location.line[0].function_id).unwrap();
            text(function.name)
        };
        let read: Vec<(String, Vec<i64>)> = found
            .sample
            .iter()
            .map(|sample| {
                let names: Vec<String> = sample.location_id.iter().rev().map(name).collect();
                (names.join(";"), sample.value.clone())
            })
            .collect();
        let expected = [("app;main", [2, 20]), ("app;main;work", [3, 30]), ("b;work", [1, 10])];
        assert_eq!(read, expected.map(|(line, values)| (line.to_owned(), values.to_vec())));
        assert_eq!((found.function.len(), found.location.len(), found.period), (4, 4, 10));
        let types = found.sample_type.iter().map(|own| (text(own.r#type), text(own.unit)));
        let expected = [("samples", "count"), ("cpu", "nanoseconds")];
        assert!(types.eq(expected.map(|(name, unit)| (name.to_owned(), unit.to_owned()))));
        assert_eq!(text(0), "");
    }
}
