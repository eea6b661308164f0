//! Compiles conditions into programs, using the schemas of sources, and collects the fields to
//! read.

use std::sync::Arc;

use flatcap_format::schema::{CompiledSchema, has_rate, nearest_name};
use flatcap_format::units::{SECOND_UNITS, in_exact_unit};
use flatcap_query::language::{
    Binder, Dimension, ExitTests, FieldOperand, RuleTest, SampleCondition, Scale, Transform, ValueTest,
};
use flatcap_query::{FieldPath, LocatedField, locate_field};

use crate::error::RuleError;
use crate::exits::ExitWatch;
use crate::limits;
use crate::program::{Program, ProgramInput, ProgramReads, RuleCheck};
use crate::rule_source::RuleSource;
use crate::series::Stage;
use crate::slot::{Reading, SlotPlan, SlotSparse};

/// Number of extra samples per window. Extra samples are needed because samples may be late.
/// Without extra samples, a window would hold as many samples as its length divided by the period.
const SPARE_SAMPLES: u64 = 16;

/// Lists whose elements are events.
// Events in these lists never occur again, so numbering them would only use memory.
pub(crate) const UNNAMED_LISTS: [&str; 2] = ["process.exits", "process.execs"];

/// Compiles the conditions of all rules. A field that several rules use is read only once.
#[derive(Debug)]
pub(crate) struct RuleCompiler<'s> {
    sources: &'s [RuleSource<'s>],
    /// The name and the schema of each source that has a schema.
    known: Vec<(&'s str, &'s CompiledSchema)>,
    /// For each entry of `known`, the position of the source among all sources.
    positions: Vec<usize>,
    /// For each source, the fields to read. These fields include the ranges of counters, and the
    /// counts of omitted list elements.
    pub(crate) fields: Vec<Vec<FieldPath>>,
    pub(crate) slots: Vec<SlotPlan>,
    pub(crate) watches: Vec<ExitWatch>,
}

/// The condition that is being compiled.
struct RuleBinder<'c, 's> {
    compiler: &'c mut RuleCompiler<'s>,
    operands: &'c [FieldOperand],
    program: ProgramReads,
}

impl<'s> RuleCompiler<'s> {
    pub(crate) fn new(sources: &'s [RuleSource<'s>]) -> Self {
        let with_schema = sources.iter().enumerate();
        let (positions, known) = with_schema
            .filter_map(|(position, source)| Some((position, (source.name, source.schema?))))
            .unzip();
        let fields = vec![Vec::new(); sources.len()];
        Self { sources, known, positions, fields, slots: Vec::new(), watches: Vec::new() }
    }

    /// Compiles a condition.
    ///
    /// # Errors
    /// Fails if a field does not exist or a comparison is invalid.
    pub(crate) fn compile(&mut self, condition: &SampleCondition) -> Result<Program, RuleError> {
        let mut binder =
            RuleBinder { compiler: self, operands: &condition.operands, program: ProgramReads::default() };
        let root = condition.bind(&mut binder)?;
        let mut reads = binder.program;
        reads.sources.sort_unstable();
        reads.sources.dedup();
        Ok(Program { root, reads })
    }

    /// Finds the field of a path, and the position of its source among all sources.
    fn locate(&self, path: &FieldPath) -> Result<LocatedField, RuleError> {
        let mut located = locate_field(&self.known, path)?;
        // Sources without a schema are not searched, so positions in `known` differ from positions
        // among all sources.
        located.source = self.positions.get(located.source).copied().unwrap_or(usize::MAX);
        Ok(located)
    }

    fn source(&self, name: &str) -> Result<usize, RuleError> {
        let position = self.sources.iter().position(|source| source.name == name);
        position.ok_or_else(|| {
            let near = nearest_name(name, self.sources.iter().map(|source| source.name));
            RuleError::NoSource {
                name: name.to_owned(),
                nearest: near.into_iter().map(str::to_owned).collect(),
            }
        })
    }

    /// Returns the dimension of an operand, the scale of its values, and its transforms.
    fn stages(
        &self,
        operand: &FieldOperand,
        located: &LocatedField,
    ) -> Result<(Dimension, f64, Vec<Stage>), RuleError> {
        let mismatch = |what: String| RuleError::mismatch(&operand.text, what);
        let (mut dimension, mut factor) = Dimension::of_field(located.unit.as_deref());
        let period_ns = self.sources.get(located.source).map_or(0, |source| source.period_ns);
        let mut is_counter = has_rate(located.kind, located.column_type);
        let mut stages = Vec::new();
        for transform in &operand.transforms {
            let mut samples = 1;
            if let Some(window_ns) = transform.window_ns() {
                // A window shorter than the period would measure one period instead, and the user
                // would not notice.
                if window_ns < period_ns {
                    return Err(mismatch(format!(
                        "the window of {transform} is shorter than the period of {}; write at least {}",
                        self.sources.get(located.source).map_or("", |source| source.name),
                        in_exact_unit(SECOND_UNITS, period_ns),
                    )));
                }
                // A source without a period may have any number of samples in a window. The number
                // of samples that the window keeps is limited in any case.
                samples = window_ns.checked_div(period_ns).unwrap_or(0);
                let limit = match transform {
                    Transform::Quantile(..) => limits::QUANTILE_SAMPLES_MAX,
                    _ => limits::WINDOW_SAMPLES_MAX,
                };
                if transform.holds_samples() && samples > limit {
                    return Err(mismatch(format!(
                        "the window of {transform} has {samples} samples, more than {limit}; write at most {}",
                        in_exact_unit(SECOND_UNITS, period_ns.saturating_mul(limit)),
                    )));
                }
                samples = if period_ns == 0 { limit } else { samples * 2 + SPARE_SAMPLES };
            }
            match transform {
                Transform::Rate(_) => dimension = dimension.per_second(),
                Transform::Count(_) | Transform::Changed => (dimension, factor) = (Dimension::COUNT, 1.0),
                _ => {}
            }
            let samples_max = usize::try_from(samples).unwrap_or(usize::MAX).saturating_add(1);
            stages.push(Stage { transform: *transform, is_counter, samples_max });
            // The growth of a counter may fall again, so a second `:rate` must not treat such a
            // fall as a reset.
            is_counter &= !matches!(
                transform,
                Transform::Rate(_) | Transform::Delta(_) | Transform::Count(_) | Transform::Changed
            );
        }
        Ok((dimension, factor, stages))
    }

    /// Returns the slot of a field. Adds the slot if no rule uses the field yet.
    fn slot(
        &mut self,
        located: &LocatedField,
        path: &FieldPath,
        reading: Reading,
        (stages, scale): (Vec<Stage>, Scale),
    ) -> usize {
        let (source, is_list) = (located.source, located.list.is_some());
        // Fields are read in the order of their numbers, so the range of a counter is numbered
        // first.
        let range = located.range.as_ref().map(|range| self.field(source, range));
        let sparse = SlotSparse::of(&located.sparse, |path| self.field(source, path));
        let field = self.field(source, path);
        let plan = SlotPlan { source, field, reading, stages, scale, is_list, range, sparse };
        let known = self.slots.iter().position(|known| known.is_same(&plan));
        known.unwrap_or_else(|| {
            self.slots.push(plan);
            self.slots.len() - 1
        })
    }

    /// Returns the index of a field among the fields of its source that the rules read. Adds the
    /// field if it is new.
    fn field(&mut self, source: usize, path: &FieldPath) -> usize {
        let Some(fields) = self.fields.get_mut(source) else { return 0 };
        let known = fields.iter().position(|known| known == path);
        known.unwrap_or_else(|| {
            fields.push(path.clone());
            fields.len() - 1
        })
    }

    /// Returns the index of the source that reports when processes end, and the index of the watch
    /// for these ends.
    fn exited(&mut self, tests: &ExitTests) -> Result<(usize, usize), RuleError> {
        let mut slot = |path: &FieldPath| -> Result<(usize, usize), RuleError> {
            let located = self.locate(path)?;
            Ok((located.source, self.slot(&located, path, Reading::Number, (Vec::new(), Scale::One))))
        };
        let processes = tests.processes.as_ref().map(|path| slot(path).map(|(_, slot)| slot)).transpose()?;
        let (source, exits) = slot(&tests.exits)?;
        let (_, events) = slot(&"process.events.exits".parse()?)?;
        let (_, skipped) = slot(&"process.skipped".parse()?)?;
        let new = ExitWatch::new(source, (processes, exits), (events, skipped), tests.needs_events);
        let known = self.watches.iter().position(|known| known.is_same(&new));
        let watch = known.unwrap_or_else(|| {
            self.watches.push(new);
            self.watches.len() - 1
        });
        Ok((source, watch))
    }
}

impl RuleBinder<'_, '_> {
    fn operand(&self, operand: usize) -> Result<&FieldOperand, RuleError> {
        self.operands.get(operand).ok_or_else(|| RuleError::mismatch("", "this field was not read"))
    }
}

impl Binder for RuleBinder<'_, '_> {
    type Value = ProgramInput;
    type Other = RuleCheck;
    type Error = RuleError;

    const IS_OF_ROWS: bool = false;

    fn locate(&mut self, operand: usize) -> Result<LocatedField, RuleError> {
        self.compiler.locate(&self.operand(operand)?.path)
    }

    fn dimension(&mut self, operand: usize, field: &LocatedField) -> Result<Dimension, RuleError> {
        self.compiler.stages(self.operand(operand)?, field).map(|(dimension, ..)| dimension)
    }

    fn value(
        &mut self,
        operand: usize,
        located: &LocatedField,
        test: Option<ValueTest>,
        _is_element: bool,
    ) -> Result<ProgramInput, RuleError> {
        let operand = self.operands.get(operand).ok_or_else(|| RuleError::mismatch("", "not read"))?;
        let is_unnamed = UNNAMED_LISTS.iter().any(|list| located.path.starts_with(&format!("{list}[")));
        if is_unnamed && !operand.transforms.is_empty() {
            return Err(RuleError::mismatch(
                &operand.text,
                "each element of this list is in one sample, so it has no transforms",
            ));
        }
        let (_, factor, stages) = self.compiler.stages(operand, located)?;
        let reading = match test {
            Some(test) => Reading::Test(test),
            None if operand.transforms.first() == Some(&Transform::Changed) => Reading::Identity,
            None => Reading::Number,
        };
        self.program.sources.push(located.source);
        let slot = self.compiler.slot(located, &operand.path, reading, (stages, Scale::of(factor)));
        self.program.slots.push(slot);
        Ok(ProgramInput::Slot(slot))
    }

    fn lateness(&mut self, source: &str) -> Result<ProgramInput, RuleError> {
        let source = self.compiler.source(source)?;
        self.program.sources.push(source);
        Ok(ProgramInput::Lateness(source))
    }

    fn other(&mut self, part: &RuleTest) -> Result<RuleCheck, RuleError> {
        match part {
            RuleTest::Absent { source, limit_ns } => {
                let text = format!("absent({source})").into();
                let (source, limit_ns) = (self.compiler.source(source)?, *limit_ns);
                self.program.absences.push((source, limit_ns));
                self.program.sources.push(source);
                Ok(RuleCheck::Absent { source, limit_ns, text })
            }
            RuleTest::Exited(tests) => {
                let (source, watch) = self.compiler.exited(tests)?;
                self.program.sources.push(source);
                Ok(RuleCheck::Exited { watch, text: Arc::clone(&tests.text) })
            }
            RuleTest::Mark { expression, text } => {
                self.program.marks = true;
                Ok(RuleCheck::Mark { expression: expression.clone(), text: Arc::clone(text) })
            }
        }
    }
}
