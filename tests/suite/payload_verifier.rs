//! The verifier by schema against the code that flatc generates, on samples of this host.

use std::path::Path;

use flatbuffers::{FlatBufferBuilder, VerifierOptions};
use flatcap::config::Config;
use flatcap_format::schema::CompiledSchema;
use flatcap_os::host::HostRoot;
use flatcap_sampling::sources::find;
use flatcap_sampling::{OpenContext, SourceSpec};

/// The code that flatc generates for all sources.
mod host {
    pub use flatcap_schemas::host::*;
    pub use flatcap_tasks::schema::{Kmsg, Profile, Sched};
}

/// The judge: flatbuffers' verifier with the code that flatc generates.
type Judge = fn(&[u8]) -> bool;

macro_rules! judges {
    ($($name:literal: $root:ident),+ $(,)?) => {
        [$(($name, (|payload| flatbuffers::root::<host::$root<'_>>(payload).is_ok()) as Judge)),+]
    };
}

/// Returns a sample of this host, if it has the source.
fn sample(spec: &SourceSpec) -> Option<Vec<u8>> {
    let instance = match spec.name {
        "file" => "[source.file.x]\npath = \"/proc/meminfo\"\nformat = \"pairs\"\n",
        "command" => {
            "[source.command.x]\ncommand = [\"/bin/echo\", \"{\\\"a\\\": [1, 2]}\"]\nformat = \"json\"\n"
        }
        _ => "",
    };
    let config = Config::parse("test.toml", instance).unwrap();
    let source = config.sources.iter().find(|source| source.spec == spec).unwrap();
    let context = OpenContext { host: &HostRoot::new(Path::new("/")), settings: source.settings() };
    let mut sampler = spec.open(&context).inspect_err(|missing| println!("skipped: {missing}")).ok()?;
    sampler.read().ok()?;
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    Some(sampler.payload(0, &mut builder).0)
}

// Proves that for each source with generated accessors exactly the payloads are accepted that
// flatbuffers accepts. Method: a sample of this host, with each of its first bytes replaced, and
// cut at each of them, where offsets, vtables and lengths are; and with each last byte.
#[test]
fn samples_are_judged_alike() {
    let judges = judges! {
        "cpu": Cpu, "load": Load, "disk": Disk, "network": Network, "pressure": Pressure,
        "schedstat": Schedstat, "softirqs": Softirqs, "interrupts": Interrupts, "cpufreq": Cpufreq,
        "thermal": Thermal, "hwmon": Hwmon, "power": Power, "slab": Slab, "buddy": Buddy,
        "hugepages": Hugepages, "filesystem": Filesystem, "softnet": Softnet, "conntrack": Conntrack,
        "ethtool": Ethtool, "process": Process, "cgroup": Cgroup, "perf": Perf, "sched": Sched,
        "profile": Profile, "kmsg": Kmsg, "gpu": Gpu,
        "file": File, "command": Command,
    };
    let mut rejected = 0;
    for (name, judge) in judges {
        let spec = find(name).unwrap();
        let Some(payload) = sample(spec) else { continue };
        let schema = CompiledSchema::compile(spec.schema, spec.root).unwrap();
        let mut verifier = schema.verifier(VerifierOptions::default());
        let mut compare = |payload: &[u8], what: &str| {
            let is_valid = judge(payload);
            assert_eq!(verifier.accepts(payload), is_valid, "{name}: {what}");
            is_valid
        };
        assert!(compare(&payload, "whole"));
        let ends = (0..payload.len().min(400)).chain(payload.len().saturating_sub(100)..payload.len());
        for at in ends {
            compare(&payload[..at], &format!("cut at {at}"));
            for byte in [0, 1, 2, 4, 8, 0x7F, 0xFF] {
                let mut damaged = payload.clone();
                damaged[at] = byte;
                rejected += u32::from(!compare(&damaged, &format!("{byte} at {at}")));
            }
        }
    }
    assert!(rejected > 100, "{rejected}");
}
