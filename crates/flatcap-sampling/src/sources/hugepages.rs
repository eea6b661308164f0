//! `hugepages`: pools of huge pages by size, from /sys/kernel/mm/hugepages.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_schemas::host::{HugepagePool, Hugepages, HugepagesArgs};

use super::numbered_dirs::{NumberedDirKind, NumberedDirs};
use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, ReadError, Sampler};

const DIRECTORY: &str = "sys/kernel/mm/hugepages";
const DIR_KIND: NumberedDirKind<5> = NumberedDirKind {
    directory: DIRECTORY,
    prefix: "hugepages-",
    suffix: "kB",
    files: [
        "nr_hugepages",
        "free_hugepages",
        "resv_hugepages",
        "surplus_hugepages",
        "nr_overcommit_hugepages",
    ],
    dirs_max: 64, // enough, because sizes are powers of two
    hint: SPEC.hint,
};

/// `include` and `exclude` match pools, such as `hugepages-2048kB`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "hugepages",
    about: "Pools of huge pages, by size.",
    root: "flatcap.host.Hugepages",
    schema: include_bytes!("../../../../generated/host/hugepages.bfbs"),
    files: &[DIRECTORY],
    // Pools change only when an administrator changes them.
    period: Duration::from_secs(1),
    refresh: "whenever a huge page is allocated or freed",
    selects: "pools, such as hugepages-2048kB",
    hint: ": this kernel has no huge pages (CONFIG_HUGETLBFS)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    Ok(OpenedSampler::built(HugepagesSampler {
        dirs: NumberedDirs::open(context, DIR_KIND)?,
        pools: Vec::new(),
    }))
}

#[derive(Debug)]
struct HugepagesSampler {
    dirs: NumberedDirs<5>,
    pools: Vec<HugepagePool>, // reused
}

impl Sampler for HugepagesSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.dirs.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { dirs, pools } = self;
        pools.clear();
        let mut incomplete = dirs.incomplete();
        for folder in dirs.dirs() {
            let mut names = DIR_KIND.files.iter();
            let [total, free, reserved, surplus, overcommit] = folder.contents().map(|content| {
                let name = names.next().copied().unwrap_or_default();
                let Some(content) = content else { return ABSENT };
                let (mut lines, mut lacks) = text::whole_lines(content);
                let value = text::value(lines.next(), &mut lacks);
                incomplete |= DIR_KIND.in_file(lacks, content, (folder.number, name));
                value
            });
            pools.push(HugepagePool::new(folder.number, total, free, reserved, surplus, overcommit));
        }
        let pools = builder.create_vector(pools);
        let root = Hugepages::create(builder, &HugepagesArgs { pools: Some(pools) });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, open_sampler, sample_this_host, sample_under};

    fn pool(root: &Path, name: &str, values: [&str; 5]) {
        let folder = root.join(DIRECTORY).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, value) in DIR_KIND.files.iter().zip(values) {
            std::fs::write(folder.join(file), value).unwrap();
        }
    }

    fn pools(payload: &[u8]) -> Vec<HugepagePool> {
        flatbuffers::root::<Hugepages<'_>>(payload).unwrap().pools().iter().copied().collect()
    }

    // Proves that every value ends up in its field, and that pools are ordered by page size.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        pool(folder.path(), "hugepages-1048576kB", ["6\n", "7\n", "8\n", "9\n", "10\n"]);
        pool(folder.path(), "hugepages-2048kB", ["1\n", "2\n", "3\n", "4\n", "5\n"]);
        pool(folder.path(), "others", ["1\n"; 5]);
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        let expected = [HugepagePool::new(2048, 1, 2, 3, 4, 5), HugepagePool::new(1_048_576, 6, 7, 8, 9, 10)];
        assert_eq!(pools(&payload), expected);
        let (payload, incomplete) = sample_under(&SPEC, "include = [\"*-2048kB\"]", folder.path());
        assert_eq!((pools(&payload), incomplete), (expected[..1].to_vec(), Incomplete::NONE));
    }

    // Proves that damaged files are marked with their reason, and that a removed pool disappears.
    #[test]
    fn damaged_files_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        pool(folder.path(), "hugepages-2048kB", ["1\n"; 5]);
        let file = folder.path().join(DIRECTORY).join("hugepages-2048kB/free_hugepages");
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            sampler.read().unwrap();
            let incomplete = sampler.build(0, &mut builder);
            (pools(builder.finished_data()), incomplete)
        };
        assert_damage_is_marked(b"123\n", |text| {
            std::fs::write(&file, text).unwrap();
            let (pools, incomplete) = sample();
            incomplete.is_none() && pools[0].free() == 123
        });
        std::fs::write(&file, "-1\n").unwrap();
        assert_eq!((sample().0[0].free(), sample().1), (ABSENT, Incomplete::UNREADABLE));
        // In an ordinary file system, an open file can still be read after the file is removed. A
        // new pool has other files.
        std::fs::remove_dir_all(folder.path().join(DIRECTORY).join("hugepages-2048kB")).unwrap();
        assert_eq!(sample(), (Vec::new(), Incomplete::NONE));
        pool(folder.path(), "hugepages-2048kB", ["8\n"; 5]);
        assert_eq!(sample(), (vec![HugepagePool::new(2048, 8, 8, 8, 8, 8)], Incomplete::NONE));
    }

    // Proves that this host is read completely, and that a read through the standard library finds
    // the same values.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = open_sampler(&SPEC, "", Path::new("/")) {
            println!("skipped: {missing}");
            return;
        }
        let payload = sample_this_host(&SPEC);
        let pools = pools(&payload);
        assert_eq!(pools.len(), std::fs::read_dir(format!("/{DIRECTORY}")).unwrap().count());
        for pool in pools {
            let file = format!("/{DIRECTORY}/hugepages-{}kB/nr_hugepages", pool.page_size());
            assert_eq!(pool.total().to_string(), std::fs::read_to_string(file).unwrap().trim());
        }
    }
}
