//! Templates of matrices. Most matrices of a block have the same structure as a matrix of the
//! previous block. For these matrices, an existing template only gets new values, so the payload
//! need not be walked.

use std::collections::BTreeMap;

use flatcap_format::block::MatrixRows;
use flatcap_format::schema::envelope::split;

use super::template::SampleTemplate;
use super::template_cache::ATTEMPTS;
use crate::names::elements::ElementNames;
use crate::plan::SourcePlan;

/// Maximum number of templates that are kept for a source.
const KEPT_MAX: usize = 16;

/// The templates of a segment's matrices, by the id of their source.
#[derive(Debug, Default)]
pub(super) struct TemplatePool {
    sources: BTreeMap<u16, SourceTemplates>,
}

#[derive(Debug, Default)]
struct SourceTemplates {
    /// The templates that are not in use. The most recently used template is last.
    free: Vec<SampleTemplate>,
    /// Number of matrices whose rows fitted a template (`served`), and number of matrices whose
    /// rows fitted no template (`failed`).
    served: u64,
    failed: u64,
}

impl TemplatePool {
    /// Returns the template of a matrix. Returns `None` if the rows of the matrix have several
    /// structures, or if the first row does not fit its schema. Also returns `None` if a template
    /// is not likely to fit all rows.
    pub(super) fn template(
        &mut self,
        matrix: &MatrixRows,
        plan: &SourcePlan,
        names: &mut ElementNames,
    ) -> Option<SampleTemplate> {
        let own = self.sources.entry(matrix.source()).or_default();
        let (_, payload) = split(matrix.first())?;
        let made = match own.renewed(plan, payload) {
            Some(template) => Some(template),
            // If templates rarely fit, making them takes more time than they save.
            None if own.failed >= ATTEMPTS + own.served => return None,
            None => SampleTemplate::of(plan, payload, names).ok(),
        };
        let right = made.filter(|template| template.fits_all(matrix));
        let count = if right.is_some() { &mut own.served } else { &mut own.failed };
        *count += 1;
        right
    }

    /// Returns a template to the pool.
    pub(super) fn give_back(&mut self, source: u16, template: SampleTemplate) {
        let SourceTemplates { free, .. } = self.sources.entry(source).or_default();
        if free.len() >= KEPT_MAX {
            free.remove(0);
        }
        free.push(template);
    }
}

impl SourceTemplates {
    /// Returns a free template that fits a payload, with the values of this payload.
    fn renewed(&mut self, plan: &SourcePlan, payload: &[u8]) -> Option<SampleTemplate> {
        let at = self.free.iter().position(|template| template.fits(payload))?;
        let mut template = self.free.remove(at);
        template.renew(plan, payload);
        Some(template)
    }
}
