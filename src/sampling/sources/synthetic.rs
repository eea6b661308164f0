//! STUB
use flatbuffers::FlatBufferBuilder;
use crate::sampling::{Completeness, ReadError, Sampler};
use crate::schema::synthetic as wire;
/// S
pub const POINT_ROOT: &str = "flatcap.synthetic.Point";
/// S
pub const WIDE_ROOT: &str = "flatcap.synthetic.Wide";
/// S
pub const SCHEMA: &[u8] = include_bytes!("../../../generated/synthetic.bfbs");
/// S
#[derive(Debug)]
pub struct Synthetic { seed: u64 }
impl Synthetic {
    /// p
    pub fn point(seed: u64) -> Self { Self { seed } }
    /// w
    pub fn wide(seed: u64, _fields: u32, _padding: u32) -> Self { Self { seed } }
}
impl Sampler for Synthetic {
    fn read(&mut self) -> Result<(), ReadError> { Ok(()) }
    fn build(&mut self, seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Completeness {
        let root = wire::Point::create(builder, &wire::PointArgs { counter: seq, wave: 0.5, noise: self.seed });
        builder.finish_minimal(root);
        Completeness::Whole
    }
}
