//! `hugepages`: pools of huge pages by size, from /sys/kernel/mm/hugepages.

use flatbuffers::FlatBufferBuilder;

use super::folders::{Folders, Kind};
use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable};
use crate::sampling::{Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{HugepagePool, Hugepages, HugepagesArgs};

const DIRECTORY: &str = "sys/kernel/mm/hugepages";
const KIND: Kind<5> = Kind {
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
    folders_max: 64, // sizes are powers of two
    hint: ": this kernel has no huge pages (CONFIG_HUGETLBFS)",
};

/// Include and exclude speak of pools, such as `hugepages-2048kB`.
pub(super) const ENTRY: Entry = Entry {
    name: "hugepages",
    root: "flatcap.host.Hugepages",
    schema: include_bytes!("../../../generated/host/hugepages.bfbs"),
    files: &[DIRECTORY],
    refresh: "whenever a huge page is taken or given back",
    selects: "pools, such as hugepages-2048kB",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    Ok(Opened::built(HugepagesSampler { folders: Folders::open(opening, KIND)?, pools: Vec::new() }))
}

#[derive(Debug)]
struct HugepagesSampler {
    folders: Folders<5>,
    pools: Vec<HugepagePool>, // reused
}

impl Sampler for HugepagesSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.folders.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let Self { folders, pools } = self;
        pools.clear();
        let mut shortfall = folders.shortfall();
        for folder in folders.folders() {
            let [total, free, reserved, surplus, overcommit] = folder.contents().map(|content| {
                let Some(content) = content else { return ABSENT };
                let (mut lines, lacks) = text::whole_lines(content);
                shortfall |= lacks;
                text::value(lines.next(), &mut shortfall)
            });
            pools.push(HugepagePool::new(folder.number, total, free, reserved, surplus, overcommit));
        }
        let pools = builder.create_vector(pools);
        let root = Hugepages::create(builder, &HugepagesArgs { pools: Some(pools) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{assert_composed, opened, sampled, sampled_under};

    fn pool(root: &Path, name: &str, values: [&str; 5]) {
        let folder = root.join(DIRECTORY).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, value) in KIND.files.iter().zip(values) {
            std::fs::write(folder.join(file), value).unwrap();
        }
    }

    fn pools(payload: &[u8]) -> Vec<HugepagePool> {
        flatbuffers::root::<Hugepages<'_>>(payload).unwrap().pools().iter().copied().collect()
    }

    // Goal: every value is in its place, the smallest size first. Method: a tree with all values different.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        pool(folder.path(), "hugepages-1048576kB", ["6\n", "7\n", "8\n", "9\n", "10\n"]);
        pool(folder.path(), "hugepages-2048kB", ["1\n", "2\n", "3\n", "4\n", "5\n"]);
        pool(folder.path(), "others", ["1\n"; 5]);
        let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
        assert!(shortfall.is_none());
        let expected = [HugepagePool::new(2048, 1, 2, 3, 4, 5), HugepagePool::new(1_048_576, 6, 7, 8, 9, 10)];
        assert_eq!(pools(&payload), expected);
        let (payload, shortfall) = sampled_under(&ENTRY, "include = [\"*-2048kB\"]", folder.path());
        assert_eq!((pools(&payload), shortfall), (expected[..1].to_vec(), Shortfall::NONE));
    }

    // Goal: damaged files are marked with their reason, one that is gone is missed. Method: every cut and replaced byte of
    // one, then its removal.
    #[test]
    fn damaged_files_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        pool(folder.path(), "hugepages-2048kB", ["1\n"; 5]);
        let file = folder.path().join(DIRECTORY).join("hugepages-2048kB/free_hugepages");
        let mut sampler = opened(&ENTRY, "", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            sampler.read().unwrap();
            let shortfall = sampler.build(0, &mut builder);
            (pools(builder.finished_data()), shortfall)
        };
        assert_composed(b"123\n", |text| {
            std::fs::write(&file, text).unwrap();
            let (pools, shortfall) = sample();
            shortfall.is_none() && pools[0].free() == 123
        });
        std::fs::write(&file, "-1\n").unwrap();
        assert_eq!((sample().0[0].free(), sample().1), (ABSENT, Shortfall::UNREADABLE));
        // An open file stays readable when an ordinary file system removes it; a pool that comes anew has other files.
        std::fs::remove_dir_all(folder.path().join(DIRECTORY).join("hugepages-2048kB")).unwrap();
        assert_eq!(sample(), (Vec::new(), Shortfall::NONE));
        pool(folder.path(), "hugepages-2048kB", ["8\n"; 5]);
        assert_eq!(sample(), (vec![HugepagePool::new(2048, 8, 8, 8, 8, 8)], Shortfall::NONE));
    }

    // Goal: this host is read whole. Method: its folders and files by the standard library.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = opened(&ENTRY, "", Path::new("/")) {
            println!("passed over: {missing}");
            return;
        }
        let payload = sampled(&ENTRY);
        let pools = pools(&payload);
        assert_eq!(pools.len(), std::fs::read_dir(format!("/{DIRECTORY}")).unwrap().count());
        for pool in pools {
            let file = format!("/{DIRECTORY}/hugepages-{}kB/nr_hugepages", pool.page_size());
            assert_eq!(pool.total().to_string(), std::fs::read_to_string(file).unwrap().trim());
        }
    }
}
