//! The templates of a source's latest payloads.

use super::template::SampleTemplate;
use crate::names::elements::ElementNames;
use crate::plan::SourcePlan;

/// Maximum number of templates of a source.
// The limit is sufficient because the lengths of lists vary by only one or two elements around the
// usual length.
const TEMPLATES_MAX: usize = 4;
/// Number of templates that are made even if no template was useful yet.
// Making a template takes as long as reading about ten samples. So useless templates take at most
// as much time as reading about 80 samples of a source, while a segment has thousands of samples.
// One attempt would not be enough, because the first samples may have an unusual length.
pub(super) const ATTEMPTS: u64 = 8;
/// Number of samples for which templates must be used before one more template is made.
const SAMPLES_MIN: u64 = 16;

/// The latest templates of a source.
#[derive(Debug, Default)]
pub(super) struct TemplateCache {
    /// The templates, most recently used first.
    templates: Vec<SampleTemplate>,
    made: u64,
    served: u64,
    /// Whether the first template was used for the previous sample.
    is_latest: bool,
    /// Length of the last payload for which no template was found.
    missed_bytes: Option<usize>,
}

impl TemplateCache {
    /// Returns the template of a payload, and whether the previous sample had the same template.
    pub(super) fn find(&mut self, payload: &[u8]) -> Option<(&SampleTemplate, bool)> {
        let found = self.templates.iter().position(|template| template.fits(payload))?;
        let is_same = found == 0 && self.is_latest;
        self.served += 1;
        self.is_latest = true;
        // Successive samples mostly have the same template, so the latest template is tried first.
        if found > 0
            && let Some(front) = self.templates.get_mut(..=found)
        {
            front.rotate_right(1);
        }
        Some((self.templates.first()?, is_same))
    }

    /// Records that the current names of the elements do not come from the previous sample's
    /// template.
    pub(super) fn interrupt(&mut self) {
        self.is_latest = false;
    }

    /// Makes a template of a payload that has no template, if the template is likely to be useful.
    pub(super) fn learn(&mut self, plan: &SourcePlan, payload: &[u8], names: &mut ElementNames) {
        // The payload was walked, so the next payload that fits a template must set the names of
        // its elements again.
        self.interrupt();
        // A payload length that occurs only one time does not justify a template.
        let is_repeated = self.missed_bytes.replace(payload.len()) == Some(payload.len());
        if !is_repeated || self.made >= ATTEMPTS + self.served / SAMPLES_MIN {
            return;
        }
        self.made += 1;
        if let Ok(template) = SampleTemplate::of(plan, payload, names) {
            self.templates.truncate(TEMPLATES_MAX - 1);
            self.templates.insert(0, template);
        }
    }
}
