//! `slab`: the kernel's object caches, from /proc/slabinfo.

use std::ops::Range;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{Slab, SlabArgs, SlabCache};

use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/slabinfo";
/// Maximum number of caches in one sample. Kernels have about 200 caches, and more with control
/// groups or some file systems.
const CACHES_MAX: usize = 8192;
const VERSION: &[u8] = b"slabinfo - version: ";
/// Versions of the file with known columns. Since Linux 2.6 the version is 2.1.
const KNOWN_VERSIONS: Range<f64> = 2.0..3.0;
/// The text that follows a name and its numbers in a line.
const TUNABLES: &[u8] = b" : tunables";
const NUMBER_COUNT: usize = 5;

/// `include` and `exclude` match caches. The kernel holds the mutex of all caches while it prints
/// the file. During this time no cache can be created or destroyed, but objects are allocated and
/// freed as usual.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "slab",
    about: "The kernel's object caches; expensive, and needs CAP_DAC_READ_SEARCH.",
    root: "flatcap.host.Slab",
    schema: include_bytes!("../../../../generated/host/slab.bfbs"),
    files: &[FILE],
    // A sample is expensive and holds the kernel's lock of all caches.
    period: Duration::from_secs(10),
    refresh: "whenever a slab is filled or emptied",
    selects: "caches, such as dentry",
    needs: &["CAP_DAC_READ_SEARCH"],
    hint: ": only root or CAP_DAC_READ_SEARCH may read it, and not every kernel has it",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = host_file(context.host, FILE, SPEC.hint)?;
    Ok(OpenedSampler::built(SlabSampler {
        file,
        filter: CachedNameFilter::new(context.selection()),
        caches: Vec::new(),
    }))
}

#[derive(Debug)]
struct SlabSampler {
    file: HostFile,
    filter: CachedNameFilter,
    caches: Vec<SlabCache>, // reused
}

impl Sampler for SlabSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = parse(self.file.content(), &mut self.filter, &mut self.caches);
        let incomplete = odd_text::in_file(incomplete, self.file.content(), format_args!("/{FILE}"));
        let caches = builder.create_vector(&self.caches);
        let root = Slab::create(builder, &SlabArgs { caches: Some(caches) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Parses the file, with lines of the form `NAME 375 532 576 28 4 : tunables 0 0 0 : slabdata 19 19
/// 0`, after two heading lines.
fn parse(content: &[u8], filter: &mut CachedNameFilter, caches: &mut Vec<SlabCache>) -> Incomplete {
    caches.clear();
    let (mut lines, mut incomplete) = text::whole_lines(content);
    let heading = lines.next().unwrap_or_default();
    let version = heading.strip_prefix(VERSION).and_then(text::decimal);
    if !version.is_some_and(|version| KNOWN_VERSIONS.contains(&version)) {
        incomplete |= odd_text::unreadable(heading);
        // The columns of other versions are unknown. If the version is damaged, the form of each
        // line shows whether it has the known columns.
        if version.is_some() {
            return incomplete;
        }
    }
    for (at, line) in lines.filter(|line| !line.starts_with(b"#")).enumerate() {
        // A name may contain colons and, on old kernels, spaces.
        let Some(end) = line.windows(TUNABLES.len()).position(|window| window == TUNABLES) else {
            incomplete |= odd_text::unreadable(line);
            continue;
        };
        let (front, rest) = line.split_at(end);
        let (name, counts) = split_numbers(front);
        if !filter.matches(at, name) {
            continue;
        }
        let Some(name) = text::name::<64>(name) else {
            incomplete |= odd_text::unreadable(line);
            continue;
        };
        if caches.len() == CACHES_MAX {
            incomplete |= Incomplete::TOO_MANY;
            break;
        }
        let ([active_objects, objects, object_size, objects_per_slab, pages_per_slab], lacks) =
            text::numbers(text::fields(counts));
        let mut fields = text::fields(rest).skip_while(|field| *field != b"slabdata").skip(1);
        let ([active_slabs, slabs], lacks_more) = text::numbers(fields.by_ref());
        caches.push(SlabCache::new(
            &name,
            active_objects,
            objects,
            object_size,
            objects_per_slab,
            pages_per_slab,
            active_slabs,
            slabs,
        ));
        // The last field, which is not recorded, shows that the line is complete.
        incomplete |= lacks | lacks_more | Incomplete::CUT.unless(fields.next().is_some());
    }
    incomplete
}

/// Splits a name from the five fields that follow it.
fn split_numbers(front: &[u8]) -> (&[u8], &[u8]) {
    let mut name = front.trim_ascii_end();
    for _ in 0..NUMBER_COUNT {
        let end = name.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
        name = name.get(..end).unwrap_or_default().trim_ascii_end();
    }
    (name, front.get(name.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::sources::tests::{
        assert_damage_is_marked, fixture, open_sampler, sample_this_host, sample_under,
    };
    use crate::sources::text::ABSENT;

    const TEXT: &[u8] = b"slabinfo - version: 2.1\n# name <active_objs>\n\
        iwl_cmd_pool:0000:04:00.0      1    2    3   4    5 : tunables    6    7    8 : slabdata      9      10      11\n\
        two words  21 22 23 24 25 : tunables 26 27 28 : slabdata 29 30 31\n";

    fn name(cache: &SlabCache) -> String {
        cache.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<SlabCache>, Incomplete) {
        let mut caches = Vec::new();
        let incomplete = parse(text, &mut CachedNameFilter::default(), &mut caches);
        (caches, incomplete)
    }

    // Proves that every value ends up in its field, even after unusual names.
    #[test]
    fn every_value_is_in_its_place() {
        let (caches, incomplete) = parsed(TEXT);
        assert!(incomplete.is_none());
        assert_eq!(caches.iter().map(name).collect::<Vec<_>>(), ["iwl_cmd_pool:0000:04:00.0", "two words"]);
        let cache = caches[1];
        assert_eq!((cache.active_objects(), cache.objects(), cache.object_size()), (21, 22, 23));
        assert_eq!((cache.objects_per_slab(), cache.pages_per_slab()), (24, 25));
        assert_eq!((cache.active_slabs(), cache.slabs()), (29, 30));
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (caches, incomplete) = parsed(text);
            incomplete.is_none() && caches.len() == 2
        });
        let with = |line: &str| parsed(format!("slabinfo - version: 2.1\n{line}\n").as_bytes());
        assert_eq!(with("a 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10").1, Incomplete::CUT);
        let (caches, incomplete) = with("a 1 -2 3 4 5 : tunables 6 7 8 : slabdata x 10 11");
        assert_eq!((caches[0].objects(), caches[0].active_slabs()), (ABSENT, ABSENT));
        assert_eq!(incomplete, Incomplete::UNREADABLE);
        assert_eq!(with("a 1 2 3 4 5").1, Incomplete::UNREADABLE);
        let long = "x".repeat(64);
        assert_eq!(
            with(&format!("{long} 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10 11")).1,
            Incomplete::UNREADABLE
        );
        assert_eq!(parsed(b"slabinfo - version: 3.0\n").1, Incomplete::UNREADABLE);
        let line = "a 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10 11\n".repeat(CACHES_MAX + 1);
        let (caches, incomplete) = with(&line);
        assert_eq!((caches.len(), incomplete), (CACHES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that caches are selected by name.
    #[test]
    fn caches_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "include = [\"iwl*\"]", folder.path());
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        assert_eq!(slab.caches().iter().map(name).collect::<Vec<_>>(), ["iwl_cmd_pool:0000:04:00.0"]);
        assert!(incomplete.is_none());
    }

    // Proves that all caches of this host and of files captured from other hosts are read, and that
    // a naive parser finds the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let naive = |text: &str| -> Vec<(String, u64, u64)> {
            let cache = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                (words[0].to_owned(), words[3].parse().unwrap(), words[4].parse().unwrap())
            };
            text.lines().skip(2).map(cache).collect()
        };
        let seen = |cache: &SlabCache| (name(cache), cache.object_size(), cache.objects_per_slab());
        if let Some(text) = fixture("./proc/slabinfo") {
            let text = String::from_utf8(text).unwrap().replace("Mode: 644\n", "");
            let (caches, incomplete) = parsed(text.as_bytes());
            assert!(incomplete.is_none());
            assert_eq!(caches.iter().map(seen).collect::<Vec<_>>(), naive(&text));
        }
        if let Err(missing) = open_sampler(&SPEC, "", Path::new("/")) {
            println!("skipped: {missing}");
            return;
        }
        let payload = sample_this_host(&SPEC);
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        let live = std::fs::read_to_string("/proc/slabinfo").unwrap();
        assert_eq!(slab.caches().iter().map(seen).collect::<Vec<_>>(), naive(&live));
    }

    // Proves agreement with `vmstat -m` of procps on sizes, which do not change.
    #[test]
    fn agrees_with_vmstat() {
        let output = Command::new("vmstat").args(["-m", "-n"]).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let theirs: BTreeMap<&str, u64> = text
            .lines()
            .skip(1)
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                Some((*words.first()?, words.get(3)?.parse().ok()?))
            })
            .collect();
        if theirs.is_empty() || open_sampler(&SPEC, "", Path::new("/")).is_err() {
            println!("skipped: no vmstat -m");
            return;
        }
        let payload = sample_this_host(&SPEC);
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        // vmstat truncates long names.
        let found = slab
            .caches()
            .iter()
            .filter_map(|cache| Some((cache.object_size(), *theirs.get(name(cache).as_str())?)));
        let found: Vec<(u64, u64)> = found.collect();
        assert!(found.len() > 20 && found.iter().all(|(ours, theirs)| ours == theirs), "{found:?}");
    }
}
