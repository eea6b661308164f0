//! Counts the contents of a segment without a footer by reading it in full.

use flatcap_format::frame::Incomplete;
use flatcap_format::segment::{
    Advance, FooterTotals, FrameKind, Gap, SampleSpan, SegmentError, SegmentReader, SourceInfo,
};

/// Reads an unsealed segment in full. Returns the totals of each source, and the number of markers.
pub(super) fn count_unsealed(reader: &mut SegmentReader) -> Result<(Vec<FooterTotals>, u64), SegmentError> {
    let mut marks = 0;
    let mut totals: Vec<FooterTotals> =
        reader.header().sources.iter().map(|source| FooterTotals::new(source.id)).collect();
    while let Some(advance) = reader.advance()? {
        let Advance::Frame(at) = advance else { continue };
        match at.kind {
            FrameKind::Telemetry => {
                let Some(sample) = reader.sample(at) else { continue };
                if let Some(totals) = totals_of(&mut totals, sample.source) {
                    totals.add_samples(1, SampleSpan::of(sample.seq, sample.mono_ns, sample.wall_ns));
                    let lacks = Incomplete::of_flags(sample.flags);
                    totals.incomplete += u64::from(!lacks.is_none());
                    totals.incomplete_flags |= lacks.flags();
                }
            }
            FrameKind::Descriptor => {
                if let Some(source) = SourceInfo::decode(reader.payload(at))
                    && totals_of(&mut totals, source.id).is_none()
                {
                    totals.push(FooterTotals::new(source.id));
                }
            }
            FrameKind::Gap => {
                let Some(gap) = Gap::decode(reader.payload(at)) else { continue };
                if let Some(totals) = totals_of(&mut totals, gap.source) {
                    totals.add_gap(&gap);
                }
            }
            FrameKind::Marker => marks += 1,
            _ => {}
        }
    }
    Ok((totals, marks))
}

fn totals_of(totals: &mut [FooterTotals], source: u16) -> Option<&mut FooterTotals> {
    totals.iter_mut().find(|totals| totals.source == source)
}
