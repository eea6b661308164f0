//! Tests of summing call chains.

use super::*;
use crate::generated::kernel::CodeKind;
use crate::task::{TaskName, ThreadInfo};
use crate::testing::ProfilePayload;

/// Returns samples of two threads of one process and of one thread of another process. The function
/// `main` calls `work`, which calls itself.
fn payload() -> ProfilePayload {
    let thread =
        |thread, process, name: &str| ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) };
    ProfilePayload {
        begin_ns: 0,
        end_ns: 100,
        interval_ns: 10,
        threads: vec![thread(1, 1, "one"), thread(2, 1, "one"), thread(9, 9, "nine")],
        samples: vec![(10, 0, 0, 0), (20, 1, 1, 0), (30, 0, 0, 1), (40, 2, 0, 1), (50, 0, 0, 2)],
        stacks: vec![vec![1, 2, 0], vec![0], vec![]],
        frames: vec![(0, 0x100), (0, 0x200), (0, 0x208)],
        objects: vec![(CodeKind::File, "/usr/bin/program".to_owned(), vec![0xAB])],
        versions: Vec::new(),
        lost: 0,
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the type of a look-up")]
fn name(object: &CodeObjectInfo, offset: u64) -> Option<String> {
    assert_eq!((&*object.path, &*object.build_id), ("/usr/bin/program", &[0xAB][..]));
    Some(if offset < 0x200 { "main" } else { "work" }.to_owned())
}

// Proves that equal call chains of a process are merged and that a recursive function is counted
// once. Proves that a sample without a call chain is also counted.
#[test]
fn functions_have_their_time() {
    let mut totals = StackTotals::new(0..100);
    totals.add(&ProfileBatch::read(&payload().bytes()).unwrap());
    let stacks: Vec<(u32, usize, u64)> =
        totals.stacks().iter().map(|stack| (stack.process, stack.frames.len(), stack.ns)).collect();
    assert_eq!(stacks, [(1, 3, 20), (1, 1, 10), (1, 0, 10), (9, 1, 10)]);
    assert_eq!((totals.samples(), totals.total_ns(), totals.left_out_ns()), (5, 50, 0));
    let functions: Vec<(u32, Option<String>, u64, u64)> = totals
        .functions(name)
        .into_iter()
        .map(|total| (total.process, total.function, total.self_ns, total.total_ns))
        .collect();
    let function = |name: &str| Some(name.to_owned());
    assert_eq!(
        functions,
        [(1, function("work"), 20, 20), (1, function("main"), 10, 30), (9, function("main"), 10, 10)]
    );
    // If functions have no names, each position is separate.
    assert_eq!(totals.functions(|_, _| None).len(), 4);
}

// Proves that samples outside the window are not counted.
#[test]
fn the_window_is_kept() {
    let mut totals = StackTotals::new(20..40);
    totals.add(&ProfileBatch::read(&payload().bytes()).unwrap());
    assert_eq!(totals.samples(), 2);
}

// Proves that each index of a payload is checked.
#[test]
fn payloads_are_checked() {
    let error = |change: fn(&mut ProfilePayload)| {
        let mut payload = payload();
        change(&mut payload);
        ProfileBatch::read(&payload.bytes()).unwrap_err().to_string()
    };
    let stack = error(|payload| payload.samples.push((60, 0, 0, 3)));
    assert_eq!(stack, "samples has the index 3 of stacks, which has 3 elements");
    assert!(error(|payload| payload.samples.push((60, 3, 0, 0))).contains("of threads"));
    assert!(error(|payload| payload.stacks.push(vec![3])).contains("stacks has the index 3 of frames"));
    assert!(error(|payload| payload.frames.push((1, 0))).contains("frames has the index 1 of objects"));
}

// Proves that a file without a build id gets the build id of its path, from earlier and later
// payloads, unless the path has two build ids. Positions, call chains and functions that become
// equal are merged.
#[test]
fn build_ids_are_completed() {
    let file = |path: &str, id: &[u8]| (CodeKind::File, path.to_owned(), id.to_vec());
    let payload = |objects: Vec<(CodeKind, String, Vec<u8>)>| ProfilePayload {
        stacks: vec![vec![0], vec![1], vec![2]],
        frames: vec![(0, 0x100), (1, 0x100), (2, 0x100)],
        samples: vec![(10, 0, 0, 0), (20, 0, 0, 1), (30, 0, 0, 2)],
        objects,
        ..payload()
    };
    let kernel = (CodeKind::Kernel, "/a".to_owned(), Vec::new());
    let early = payload(vec![file("/a", b""), file("/b", b""), kernel.clone()]).bytes();
    let late = payload(vec![file("/a", b"1"), file("/b", b"2"), file("/c", b"")]).bytes();
    let replaced = payload(vec![file("/b", b"3"), file("/a", b"1"), file("/b", b"2")]).bytes();
    let batches = [&early, &late, &replaced].map(|bytes| ProfileBatch::read(bytes).unwrap());
    let mut known = KnownCode::default();
    for batch in &batches {
        known.add(batch);
    }
    let completed = |kind, path, build_id| {
        known.completed(CodeObjectView { kind, path, build_id, version: None }).build_id
    };
    let of_file = |path| completed(CodeKind::File, path, b"");
    assert_eq!([of_file("/a"), of_file("/b"), of_file("/c")], [&b"1"[..], b"", b""]);
    assert_eq!(completed(CodeKind::Kernel, "/a", b""), b"");
    assert_eq!(completed(CodeKind::File, "/a", b"4"), b"4");
    let mut totals = StackTotals::new(0..100);
    for batch in batches.iter().take(2) {
        totals.add(batch);
    }
    let before = (totals.samples(), totals.total_ns());
    assert_eq!((totals.stacks().len(), totals.objects().len()), (6, 6));
    totals.complete_objects(&known);
    let ids = |totals: &StackTotals| -> Vec<(String, Box<[u8]>, u64)> {
        let stacks = totals.stacks().into_iter();
        let object =
            |stack: &StackTotal| totals.object(totals.frame(stack.frames[0]).unwrap()).unwrap().clone();
        stacks.map(|stack| (object(stack).path.to_string(), object(stack).build_id, stack.samples)).collect()
    };
    let text = |path: &str, id: &[u8], samples| (path.to_owned(), Box::from(id), samples);
    let mut found = ids(&totals);
    found.sort();
    assert_eq!(
        found,
        [
            text("/a", b"", 1),
            text("/a", b"1", 2),
            text("/b", b"", 1),
            text("/b", b"2", 1),
            text("/c", b"", 1)
        ]
    );
    assert_eq!((totals.samples(), totals.total_ns()), before);
    assert_eq!(totals.functions(|_, _| None).iter().map(|total| total.self_ns).sum::<u64>(), before.1);
    // A second call without new information changes nothing, and more samples can be added.
    totals.complete_objects(&KnownCode::default());
    assert_eq!(totals.stacks().len(), 5);
    totals.add(&batches[1]);
    assert_eq!((totals.stacks().len(), totals.samples()), (5, before.0 + 3));
}

// Proves that a file without a build id gets the version of its path, unless the path had two
// versions. Code without a file belongs to its process. The process gets the time of its first
// sample in the run.
#[test]
fn versions_and_processes_are_completed() {
    let file = |path: &str| (CodeKind::File, path.to_owned(), Vec::new());
    let memory = (CodeKind::Unknown, "[anon]".to_owned(), Vec::new());
    let payload = |versions: Vec<(u64, i64)>, first_ns| ProfilePayload {
        stacks: vec![vec![0], vec![1], vec![2]],
        frames: vec![(0, 0x100), (1, 0x100), (2, 0x100)],
        samples: vec![(first_ns, 0, 0, 0), (20, 0, 0, 1), (30, 0, 0, 2), (40, 2, 0, 2)],
        objects: vec![file("/a"), file("/b"), memory.clone()],
        versions,
        ..payload()
    };
    let early = payload(Vec::new(), 7).bytes();
    let late = payload(vec![(10, -1), (20, 2)], 10).bytes();
    let replaced = payload(vec![(10, -1), (20, 3)], 10).bytes();
    let batches = [&early, &late, &replaced].map(|bytes| ProfileBatch::read(bytes).unwrap());
    let mut known = KnownCode::default();
    for batch in &batches {
        known.add(batch);
    }
    let mut totals = StackTotals::new(0..100);
    for batch in batches.iter().take(2) {
        totals.add(batch);
    }
    totals.complete_objects(&known);
    let objects = totals.objects().iter().map(|object| (&*object.path, object.version, object.process));
    let mut found: Vec<_> = objects.collect();
    found.sort();
    let version = |bytes, modified_ns| Some(FileVersion { bytes, modified_ns });
    let process = |id, first_ns| Some(SampledProcess { id, first_ns });
    let expected = [
        ("/a", version(10, -1), None),
        ("/b", None, None),
        ("/b", version(20, 2), None),
        ("[anon]", None, process(1, 7)),
        ("[anon]", None, process(9, 40)),
    ];
    assert_eq!(found, expected);
}
