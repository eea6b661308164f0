//! A telemetry agent in a few lines. The agent writes samples of /proc/loadavg to a file of frames.
//! Each frame has an XXH3 checksum. Then it reads the file, and appends to the file as a restarted
//! agent does after a crash.
//!
//! How to run: `cargo run --example telemetry_agent`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use std::error::Error;
use std::fs::{File, read_to_string};
use std::io::{BufReader, BufWriter};

use flatbuffers::{Allocator, FlatBufferBuilder, Vector};
use flatcap_stream::{
    AdaptiveWatermarkPolicy, ChecksumDeframer, ChecksumFramer, RecoveryEnd, Result, StreamDeserialize,
    StreamReader, StreamSerialize, StreamWriter, XxHash64, recover_file,
};

const SAMPLES: usize = 100;

/// The load averages over 1, 5 and 15 minutes. In the stream, they are a vector of three
/// floating-point values.
struct Loads([f64; 3]);

impl Loads {
    /// Reads /proc/loadavg, for example "0.42 0.50 0.61 2/345 6789".
    fn sample() -> std::result::Result<Self, Box<dyn Error>> {
        let text = read_to_string("/proc/loadavg")?;
        let numbers =
            text.split_whitespace().take(3).map(str::parse).collect::<std::result::Result<Vec<_>, _>>();
        Ok(Self(numbers?.try_into().map_err(|_| "fewer than three load averages")?))
    }
}

impl StreamSerialize for Loads {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        let root = builder.create_vector(&self.0);
        builder.finish(root, None);
        Ok(())
    }
}

impl<'a> StreamDeserialize<'a> for Loads {
    type Root = Vector<'a, f64>;

    fn from_payload(payload: &'a [u8]) -> Result<Vector<'a, f64>> {
        Ok(flatbuffers::root::<Vector<'a, f64>>(payload)?)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("loads.bin");
    let file = File::options().write(true).create_new(true).open(&path)?;
    // The writer is buffered, because the frames are small. One system call writes some hundred
    // frames.
    let mut writer = StreamWriter::new(BufWriter::new(file), ChecksumFramer::new(XxHash64))
        .with_memory_policy(AdaptiveWatermarkPolicy::default());
    let mut sampled = Vec::new();
    for _ in 0..SAMPLES {
        let loads = Loads::sample()?;
        writer.write(&loads)?;
        sampled.push(loads.0);
    }
    // Without the flush the last frames would still be in the buffer. A real agent also syncs the
    // file from time to time.
    writer.flush()?;

    let mut reader = StreamReader::new(BufReader::new(File::open(&path)?), ChecksumDeframer::new(XxHash64));
    let mut read = Vec::new();
    reader.process_typed::<Loads, _>(|loads| {
        read.push(loads.iter().collect::<Vec<_>>());
        Ok(())
    })?;
    assert_eq!(read, sampled.iter().map(|loads| loads.to_vec()).collect::<Vec<_>>());
    println!("wrote {SAMPLES} samples and read all of them back, verified");

    // A crash leaves a partial frame at the end. It is cut off and the same file is continued.
    let mut file = File::options().read(true).write(true).open(&path)?;
    file.set_len(file.metadata()?.len() - 3)?;
    let report = recover_file(&mut file, ChecksumDeframer::new(XxHash64))?;
    assert_eq!((report.frames, report.end), (SAMPLES as u64 - 1, RecoveryEnd::TornTail));
    file.set_len(report.last_good_offset)?;
    let mut writer = StreamWriter::new(&mut file, ChecksumFramer::new(XxHash64));
    writer.write(&Loads::sample()?)?;
    assert_eq!(recover_file(&mut file, ChecksumDeframer::new(XxHash64))?.frames, SAMPLES as u64);
    println!("cut off a torn frame and continued");
    Ok(())
}
