//! Compiles conditions against the schemas of sources into programs, and collects the fields to
//! read.

use std::sync::Arc;

use flatcap_format::schema::{ColumnType, CompiledSchema, has_rate, nearest_name};
use flatcap_query::{FieldPath, LocatedField, locate_field};

use crate::condition::{
    Arithmetic, Clause, CompareClause, CompareSign, ExitTests, FieldOperand, RightSide, TriggerCondition,
    ValueTerm,
};
use crate::error::RuleError;
use crate::exits::ExitWatch;
use crate::limits;
use crate::program::{Check, CompiledComparison, Computed, ElementsCheck, Program};
use crate::rule_source::RuleSource;
use crate::scale::Scale;
use crate::series::Stage;
use crate::slot::{Reading, SlotPlan, SlotSparse};
use crate::transform::Transform;
use crate::unit::Dimension;

/// Extra samples per window beyond its length divided by the period, because samples may be late.
const SPARE_SAMPLES: u64 = 16;

/// Lists whose elements are events.
// Elements of these lists occur only once, so numbering them would only use memory.
pub(crate) const UNNAMED_LISTS: [&str; 2] = ["process.exits", "process.execs"];

/// Compiles the conditions of all rules. A field that several rules use is read once.
#[derive(Debug)]
pub(crate) struct RuleCompiler<'s> {
    sources: &'s [RuleSource<'s>],
    /// Name and schema of each source with a schema.
    known: Vec<(&'s str, &'s CompiledSchema)>,
    /// The positions of the named sources among all sources.
    positions: Vec<usize>,
    /// By source: the fields to read, including fields of the lists that contain them.
    pub(crate) fields: Vec<Vec<FieldPath>>,
    pub(crate) slots: Vec<SlotPlan>,
    pub(crate) watches: Vec<ExitWatch>,
}

/// Context of the condition that is being compiled.
struct Scope<'c> {
    operands: &'c [FieldOperand],
    located: Vec<LocatedField>,
    program: Program,
}

/// The list that the conditions in `any` or `all` apply to.
#[derive(Default)]
struct ElementScope {
    /// The position of the source, the path including the selection of elements, and a slot.
    list: Option<(usize, Box<str>, usize)>,
    is_every_element: bool,
}

/// A value with its dimension; `None` for a number without a unit.
struct TypedValue {
    value: Computed,
    dimension: Option<Dimension>,
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
    /// A field does not exist, or a comparison is invalid.
    pub(crate) fn compile(&mut self, condition: &TriggerCondition) -> Result<Program, RuleError> {
        let located = condition.operands.iter().map(|operand| self.locate(&operand.path));
        let located = located.collect::<Result<Vec<_>, _>>()?;
        let program = Program {
            root: Check::All(Box::default()),
            sources: Vec::new(),
            absences: Vec::new(),
            reads_marks: false,
        };
        let mut scope = Scope { operands: &condition.operands, located, program };
        let root = self.clause(&mut scope, &condition.root, None)?;
        let mut program = scope.program;
        program.root = root;
        program.sources.sort_unstable();
        program.sources.dedup();
        Ok(program)
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

    fn clause(
        &mut self,
        scope: &mut Scope<'_>,
        clause: &Clause,
        elements: Option<&mut ElementScope>,
    ) -> Result<Check, RuleError> {
        match clause {
            Clause::All(parts) => self.clauses(scope, parts, elements).map(Check::All),
            Clause::Any(parts) => self.clauses(scope, parts, elements).map(Check::Any),
            Clause::Not(part) => Ok(Check::Not(Box::new(self.clause(scope, part, elements)?))),
            Clause::Compare(compare) => {
                self.about_elements(scope, &compare.text, elements, |own, scope, elements| {
                    own.comparison(scope, compare, elements)
                })
            }
            Clause::Changed { operand, text } => {
                self.about_elements(scope, text, elements, |own, scope, elements| {
                    let slot = own.slot_of(scope, *operand, None, elements)?.value;
                    let (text, right) = (Arc::clone(text), Computed::Number(1.0));
                    Ok(CompiledComparison {
                        text,
                        left: slot,
                        sign: CompareSign::Equal,
                        right,
                        dimension: None,
                    })
                })
            }
            Clause::Elements { is_every, inner, text } => {
                // Evaluation has one current element, so a second list inside would have none.
                if elements.is_some() {
                    return Err(RuleError::mismatch(
                        text,
                        "any() and all() do not stand in each other; name the elements of the outer list",
                    ));
                }
                let mut elements = ElementScope { list: None, is_every_element: true };
                let inner = self.clause(scope, inner, Some(&mut elements))?;
                let Some((.., anchor)) = elements.list else {
                    return Err(RuleError::mismatch(
                        text,
                        "no field in it is of a list; leave out any() or all()",
                    ));
                };
                // `all` is vacuously true for a list without elements, which is no reason to fire.
                let needs_element = *is_every || !elements.is_every_element;
                let is_every = *is_every;
                Ok(Check::Elements(Box::new(ElementsCheck { is_every, anchor, needs_element, inner })))
            }
            Clause::Absent { source, limit_ns } => {
                let text = format!("absent({source})").into();
                let (source, limit_ns) = (self.source(source)?, *limit_ns);
                scope.program.absences.push((source, limit_ns));
                scope.program.sources.push(source);
                Ok(Check::Absent { source, limit_ns, text })
            }
            Clause::Exited(tests) => self.exited(scope, tests),
            Clause::Mark(expression) => {
                scope.program.reads_marks = true;
                let text = format!("mark(\"{}\")", crate::scanner::written(expression)).into();
                Ok(Check::Mark { expression: expression.clone(), text })
            }
        }
    }

    fn clauses(
        &mut self,
        scope: &mut Scope<'_>,
        parts: &[Clause],
        mut elements: Option<&mut ElementScope>,
    ) -> Result<Box<[Check]>, RuleError> {
        parts.iter().map(|part| self.clause(scope, part, elements.as_deref_mut())).collect()
    }

    /// Compiles a comparison. If it refers to selected elements outside of `any` and `all`, it
    /// holds if it holds for any of them.
    fn about_elements(
        &mut self,
        scope: &mut Scope<'_>,
        text: &str,
        elements: Option<&mut ElementScope>,
        compile: impl FnOnce(
            &mut Self,
            &mut Scope<'_>,
            &mut ElementScope,
        ) -> Result<CompiledComparison, RuleError>,
    ) -> Result<Check, RuleError> {
        if let Some(elements) = elements {
            return compile(self, scope, elements).map(Check::Compare);
        }
        let mut own = ElementScope { list: None, is_every_element: true };
        let inner = Check::Compare(compile(self, scope, &mut own)?);
        let Some((.., anchor)) = own.list else { return Ok(inner) };
        // `[*]` names all elements on purpose. Whether one or each of them must match decides how
        // often the rule fires, so the user has to write it.
        if own.is_every_element {
            return Err(RuleError::mismatch(
                text,
                "it is about several elements; write any(...) or all(...) around it, or pick one, such as [vda]",
            ));
        }
        Ok(Check::Elements(Box::new(ElementsCheck { is_every: false, anchor, needs_element: true, inner })))
    }

    fn comparison(
        &mut self,
        scope: &mut Scope<'_>,
        compare: &CompareClause,
        elements: &mut ElementScope,
    ) -> Result<CompiledComparison, RuleError> {
        let text = Arc::clone(&compare.text);
        let mismatch = |what: String| RuleError::mismatch(&compare.text, what);
        let reading = match &compare.right {
            RightSide::Value(right) => {
                let left = self.value(scope, &compare.left, &compare.text, elements)?;
                let right = self.value(scope, right, &compare.text, elements)?;
                let dimension = common(&compare.text, &left, &right)?;
                if compare.operator == CompareSign::Matches {
                    return Err(mismatch("=~ compares a text with an expression in quotes".to_owned()));
                }
                let (left, right) = (left.value, right.value);
                return Ok(CompiledComparison { text, left, sign: compare.operator, right, dimension });
            }
            RightSide::Text(text) => Reading::Text(text.clone()),
            RightSide::Expression(expression) => Reading::Expression(expression.clone()),
            RightSide::Truth(_) => Reading::Number,
        };
        if compare.operator.is_order() {
            return Err(mismatch("texts, true and false are compared with =, != or =~".to_owned()));
        }
        let ValueTerm::Field(operand) = &compare.left else {
            return Err(mismatch("a text, true or false is compared with one field".to_owned()));
        };
        let is_truth = matches!(compare.right, RightSide::Truth(_));
        let expected = if is_truth { ColumnType::Bool } else { ColumnType::Text };
        let located = scope.located.get(*operand);
        if let Some(located) = located.filter(|located| located.column_type != expected) {
            let with = if located.column_type == ColumnType::Text { "a text in quotes" } else { "a number" };
            return Err(mismatch(format!(
                "{} is {}; compare it with {with}",
                located.path, located.type_name
            )));
        }
        let left = self.slot_of(scope, *operand, Some(reading), elements)?.value;
        let wanted = if let RightSide::Truth(truth) = compare.right { truth } else { true };
        let is_equal = compare.operator != CompareSign::NotEqual;
        // A text reads as 1 if it equals the wanted one, else as 0. So `!=` becomes `= 0`, and an
        // absent text stays unknown instead of counting as different.
        let right = Computed::Number(if wanted == is_equal { 1.0 } else { 0.0 });
        Ok(CompiledComparison { text, left, sign: CompareSign::Equal, right, dimension: None })
    }

    fn value(
        &mut self,
        scope: &mut Scope<'_>,
        term: &ValueTerm,
        text: &str,
        elements: &mut ElementScope,
    ) -> Result<TypedValue, RuleError> {
        match term {
            ValueTerm::Number { value, unit: None, .. } => {
                Ok(TypedValue { value: Computed::Number(*value), dimension: None })
            }
            ValueTerm::Number { value, unit: Some(unit), text } => {
                let (dimension, factor) = Dimension::of_written(unit)
                    .ok_or_else(|| RuleError::mismatch(text, format!("unknown unit {unit:?}")))?;
                let value = Computed::Number(Scale::of(factor).apply(*value));
                Ok(TypedValue { value, dimension: Some(dimension) })
            }
            ValueTerm::Field(operand) => self.slot_of(scope, *operand, None, elements),
            ValueTerm::Lateness(source) => {
                let source = self.source(source)?;
                scope.program.sources.push(source);
                Ok(TypedValue { value: Computed::Lateness(source), dimension: Some(Dimension::SECONDS) })
            }
            ValueTerm::Pair(operation, pair) => {
                let left = self.value(scope, &pair.0, text, elements)?;
                let right = self.value(scope, &pair.1, text, elements)?;
                let dimension = computed(*operation, text, &left, &right)?;
                let value = Computed::Pair(*operation, Box::new((left.value, right.value)));
                Ok(TypedValue { value, dimension })
            }
        }
    }

    /// Returns the slot of an operand. Without a `reading`, the field must be a number.
    fn slot_of(
        &mut self,
        scope: &mut Scope<'_>,
        operand: usize,
        reading: Option<Reading>,
        elements: &mut ElementScope,
    ) -> Result<TypedValue, RuleError> {
        let (Some(operand), Some(located)) = (scope.operands.get(operand), scope.located.get(operand)) else {
            return Err(RuleError::mismatch("", "this field was not read"));
        };
        let is_text = located.column_type == ColumnType::Text;
        let is_changed = operand.transforms.first() == Some(&Transform::Changed);
        let mismatch = |what: String| RuleError::mismatch(&operand.text, what);
        if is_text && !operand.transforms.is_empty() && !is_changed {
            return Err(mismatch("is a text, which has no transforms".to_owned()));
        }
        if is_text && reading.is_none() && !is_changed {
            return Err(mismatch("is a text; compare it with =, != or =~ and a text in quotes".to_owned()));
        }
        if reading.is_some() && !operand.transforms.is_empty() {
            return Err(mismatch("a text, true or false is compared without transforms".to_owned()));
        }
        let is_unnamed = UNNAMED_LISTS.iter().any(|list| located.path.starts_with(&format!("{list}[")));
        if is_unnamed && !operand.transforms.is_empty() {
            return Err(mismatch(
                "each element of this list is in one sample, so it has no transforms".to_owned(),
            ));
        }
        let (dimension, factor, stages) = self.stages(operand, located)?;
        let default = if is_changed { Reading::Identity } else { Reading::Number };
        let slot = self.slot(located, &operand.path, reading.unwrap_or(default), (stages, Scale::of(factor)));
        scope.program.sources.push(located.source);
        if let Some(list) = &located.list {
            match &elements.list {
                None => elements.list = Some((located.source, list.clone(), slot)),
                Some((source, known, _)) if (*source, known) == (located.source, list) => {}
                Some((_, known, _)) => {
                    return Err(mismatch(format!(
                        "its list {list} is another one than {known}; compare fields of one list with the same elements"
                    )));
                }
            }
            elements.is_every_element &= located.is_every_element && !operand.is_alias;
        }
        Ok(TypedValue { value: Computed::Slot(slot), dimension: Some(dimension) })
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
                // A shorter window would silently measure one period instead.
                if window_ns < period_ns {
                    return Err(mismatch(format!(
                        "the window of {transform} is shorter than the period of {}; write at least {}",
                        self.sources.get(located.source).map_or("", |source| source.name),
                        flatcap_duration(period_ns),
                    )));
                }
                // A source without a period may have any number of samples; the window is bounded
                // anyway.
                samples = window_ns.checked_div(period_ns).unwrap_or(0);
                let limit = match transform {
                    Transform::Quantile(..) => limits::QUANTILE_SAMPLES_MAX,
                    _ => limits::WINDOW_SAMPLES_MAX,
                };
                if transform.holds_samples() && samples > limit {
                    return Err(mismatch(format!(
                        "the window of {transform} has {samples} samples, more than {limit}; write at most {}",
                        flatcap_duration(period_ns.saturating_mul(limit)),
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
            // The growth of a counter may fall again, so a second `:rate` must not take a fall for
            // a reset.
            is_counter &= !matches!(
                transform,
                Transform::Rate(_) | Transform::Delta(_) | Transform::Count(_) | Transform::Changed
            );
        }
        Ok((dimension, factor, stages))
    }

    /// Returns the slot of a field, and adds it if no rule uses it yet.
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

    /// Returns the number of a field among the fields that are read of its source.
    fn field(&mut self, source: usize, path: &FieldPath) -> usize {
        let Some(fields) = self.fields.get_mut(source) else { return 0 };
        let known = fields.iter().position(|known| known == path);
        known.unwrap_or_else(|| {
            fields.push(path.clone());
            fields.len() - 1
        })
    }

    fn exited(&mut self, scope: &mut Scope<'_>, tests: &ExitTests) -> Result<Check, RuleError> {
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
        scope.program.sources.push(source);
        Ok(Check::Exited { watch, text: Arc::clone(&tests.text) })
    }
}

/// Returns the common dimension of two values that are compared or added.
fn common(text: &str, left: &TypedValue, right: &TypedValue) -> Result<Option<Dimension>, RuleError> {
    // Zero is the same amount in each unit, so it needs none.
    let is_zero = |value: &TypedValue| matches!(value.value, Computed::Number(number) if number == 0.0);
    match (&left.dimension, &right.dimension) {
        (None, None) => Err(RuleError::mismatch(text, "compares two numbers; one side must have a field")),
        (Some(one), None) if one.is_plain() || is_zero(right) => Ok(Some(one.clone())),
        (None, Some(other)) if other.is_plain() || is_zero(left) => Ok(Some(other.clone())),
        (Some(one), None) | (None, Some(one)) => Err(RuleError::mismatch(
            text,
            format!("the value is in {one}; write the number with a unit, such as {}", one.example()),
        )),
        (Some(one), Some(other)) if one == other => Ok(Some(one.clone())),
        (Some(one), Some(other)) => {
            let name = |dimension: &Dimension| {
                let name = dimension.to_string();
                if name.is_empty() { "a plain number".to_owned() } else { name }
            };
            Err(RuleError::mismatch(
                text,
                format!("{} is not {}; write a number such as {}", name(other), name(one), one.example()),
            ))
        }
    }
}

/// Returns the dimension of the result of an operation.
fn computed(
    operation: Arithmetic,
    text: &str,
    left: &TypedValue,
    right: &TypedValue,
) -> Result<Option<Dimension>, RuleError> {
    let none = || {
        RuleError::mismatch(
            text,
            "the units of this product or quotient have no name; divide by a field of the same unit or by a count",
        )
    };
    match (operation, &left.dimension, &right.dimension) {
        (_, None, None) => Ok(None),
        (Arithmetic::Add | Arithmetic::Subtract, ..) => common(text, left, right),
        (Arithmetic::Multiply, Some(one), None) | (Arithmetic::Multiply, None, Some(one)) => {
            Ok(Some(one.clone()))
        }
        (Arithmetic::Divide, Some(one), None) => Ok(Some(one.clone())),
        (Arithmetic::Multiply, Some(one), Some(other)) => one.times(other).map(Some).ok_or_else(none),
        (Arithmetic::Divide, Some(one), Some(other)) => one.over(other).map(Some).ok_or_else(none),
        (Arithmetic::Divide, None, Some(other)) => Dimension::COUNT.over(other).map(Some).ok_or_else(none),
    }
}

/// Returns a duration in the notation of conditions.
fn flatcap_duration(ns: u64) -> String {
    for (unit, factor) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ns.is_multiple_of(factor) {
            return format!("{}{unit}", ns / factor);
        }
    }
    format!("{ns}ns")
}
