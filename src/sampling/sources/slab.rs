//! `slab`: the kernel's object caches, from /proc/slabinfo.

use flatbuffers::FlatBufferBuilder;

use super::text;
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Slab, SlabArgs, SlabCache};

const FILE: &str = "proc/slabinfo";
const HINT: &str = ": only root may read it (capability CAP_DAC_READ_SEARCH), and not every kernel has it";
/// Most caches in one sample; kernels have some 200, each with control groups or file systems some more.
const CACHES_MAX: usize = 8192;
const VERSION: &[u8] = b"slabinfo - version: 2.1";
/// What follows a name and its numbers.
const TUNABLES: &[u8] = b" : tunables";
const NUMBERS: usize = 5;

/// Include and exclude speak of caches. The kernel holds the mutex of all caches while it prints the file: nobody can make or remove
/// a cache meanwhile, while objects come and go as ever.
pub(super) const ENTRY: Entry = Entry {
    name: "slab",
    root: "flatcap.host.Slab",
    schema: include_bytes!("../../../generated/host/slab.bfbs"),
    files: &[FILE],
    refresh: "whenever a slab is filled or emptied",
    selects: "caches, such as dentry",
    needs: &["CAP_DAC_READ_SEARCH"],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let file = host_file(opening.host, FILE, HINT)?;
    Ok(Opened::built(SlabSampler { file, chosen: Chosen::new(opening.selection()), caches: Vec::new() }))
}

#[derive(Debug)]
struct SlabSampler {
    file: HostFile,
    chosen: Chosen,
    caches: Vec<SlabCache>, // reused
}

impl Sampler for SlabSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = parse(self.file.content(), &mut self.chosen, &mut self.caches);
        let caches = builder.create_vector(&self.caches);
        let root = Slab::create(builder, &SlabArgs { caches: Some(caches) });
        builder.finish_minimal(root);
        shortfall
    }
}

/// `NAME 375 532 576 28 4 : tunables 0 0 0 : slabdata 19 19 0`, behind two lines of heading.
fn parse(content: &[u8], chosen: &mut Chosen, caches: &mut Vec<SlabCache>) -> Shortfall {
    caches.clear();
    let (mut lines, mut shortfall) = text::whole_lines(content);
    // The columns of another version are not known.
    if lines.next() != Some(VERSION) {
        return shortfall | Shortfall::UNREADABLE;
    }
    for (at, line) in lines.filter(|line| !line.starts_with(b"#")).enumerate() {
        // A name may have colons and, on old kernels, spaces.
        let Some(end) = line.windows(TUNABLES.len()).position(|window| window == TUNABLES) else {
            shortfall |= Shortfall::UNREADABLE;
            continue;
        };
        let (front, rest) = line.split_at(end);
        let (name, counts) = split_numbers(front);
        if !chosen.wants(at, name) {
            continue;
        }
        let Some(name) = text::name::<64>(name) else {
            shortfall |= Shortfall::UNREADABLE;
            continue;
        };
        if caches.len() == CACHES_MAX {
            shortfall |= Shortfall::TOO_MANY;
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
        // The last one, of which nothing is recorded, shows that the line is whole.
        shortfall |= lacks | lacks_more | Shortfall::CUT.unless(fields.next().is_some());
    }
    shortfall
}

/// A name, and the last five fields behind it.
fn split_numbers(front: &[u8]) -> (&[u8], &[u8]) {
    let mut name = front.trim_ascii_end();
    for _ in 0..NUMBERS {
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
    use crate::sampling::sources::tests::{assert_composed, fixture, opened, sampled, sampled_under};
    use crate::sampling::sources::text::ABSENT;

    const TEXT: &[u8] = b"slabinfo - version: 2.1\n# name <active_objs>\n\
        iwl_cmd_pool:0000:04:00.0      1    2    3   4    5 : tunables    6    7    8 : slabdata      9      10      11\n\
        two words  21 22 23 24 25 : tunables 26 27 28 : slabdata 29 30 31\n";

    fn name(cache: &SlabCache) -> String {
        cache.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<SlabCache>, Shortfall) {
        let mut caches = Vec::new();
        let shortfall = parse(text, &mut Chosen::default(), &mut caches);
        (caches, shortfall)
    }

    // Goal: every value is in its place, with strange names. Method: a file with all values different.
    #[test]
    fn every_value_is_in_its_place() {
        let (caches, shortfall) = parsed(TEXT);
        assert!(shortfall.is_none());
        assert_eq!(caches.iter().map(name).collect::<Vec<_>>(), ["iwl_cmd_pool:0000:04:00.0", "two words"]);
        let cache = caches[1];
        assert_eq!((cache.active_objects(), cache.objects(), cache.object_size()), (21, 22, 23));
        assert_eq!((cache.objects_per_slab(), cache.pages_per_slab()), (24, 25));
        assert_eq!((cache.active_slabs(), cache.slabs()), (29, 30));
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let (caches, shortfall) = parsed(text);
            shortfall.is_none() && caches.len() == 2
        });
        let with = |line: &str| parsed(format!("slabinfo - version: 2.1\n{line}\n").as_bytes());
        assert_eq!(with("a 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10").1, Shortfall::CUT);
        let (caches, shortfall) = with("a 1 -2 3 4 5 : tunables 6 7 8 : slabdata x 10 11");
        assert_eq!((caches[0].objects(), caches[0].active_slabs()), (ABSENT, ABSENT));
        assert_eq!(shortfall, Shortfall::UNREADABLE);
        assert_eq!(with("a 1 2 3 4 5").1, Shortfall::UNREADABLE);
        let long = "x".repeat(64);
        assert_eq!(
            with(&format!("{long} 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10 11")).1,
            Shortfall::UNREADABLE
        );
        assert_eq!(parsed(b"slabinfo - version: 3.0\n").1, Shortfall::UNREADABLE);
        let line = "a 1 2 3 4 5 : tunables 6 7 8 : slabdata 9 10 11\n".repeat(CACHES_MAX + 1);
        let (caches, shortfall) = with(&line);
        assert_eq!((caches.len(), shortfall), (CACHES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: caches are chosen by name. Method: a tree.
    #[test]
    fn caches_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let (payload, shortfall) = sampled_under(&ENTRY, "include = [\"iwl*\"]", folder.path());
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        assert_eq!(slab.caches().iter().map(name).collect::<Vec<_>>(), ["iwl_cmd_pool:0000:04:00.0"]);
        assert!(shortfall.is_none());
    }

    // Goal: live and captured hosts are read whole, cache by cache. Method: a naive parser beside ours.
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
            let (caches, shortfall) = parsed(text.as_bytes());
            assert!(shortfall.is_none());
            assert_eq!(caches.iter().map(seen).collect::<Vec<_>>(), naive(&text));
        }
        if let Err(missing) = opened(&ENTRY, "", Path::new("/")) {
            println!("passed over: {missing}");
            return;
        }
        let payload = sampled(&ENTRY);
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        let live = std::fs::read_to_string("/proc/slabinfo").unwrap();
        assert_eq!(slab.caches().iter().map(seen).collect::<Vec<_>>(), naive(&live));
    }

    // Goal: another reader of the same file agrees. Method: `vmstat -m` from procps; sizes do not change.
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
        if theirs.is_empty() || opened(&ENTRY, "", Path::new("/")).is_err() {
            println!("passed over: no vmstat -m");
            return;
        }
        let payload = sampled(&ENTRY);
        let slab = flatbuffers::root::<Slab<'_>>(&payload).unwrap();
        // vmstat cuts long names.
        let found = slab
            .caches()
            .iter()
            .filter_map(|cache| Some((cache.object_size(), *theirs.get(name(cache).as_str())?)));
        let found: Vec<(u64, u64)> = found.collect();
        assert!(found.len() > 20 && found.iter().all(|(ours, theirs)| ours == theirs), "{found:?}");
    }
}
