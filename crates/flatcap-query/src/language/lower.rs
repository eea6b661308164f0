//! Binds a parsed condition to fields. Checks the types and units of comparisons, and determines
//! the elements to which the comparisons apply. The compiler of rules and the conditions on rows
//! use this module.

use std::sync::Arc;

use flatcap_format::schema::ColumnType;
use flatcap_format::units::Unit;

use super::check::{Check, Comparison, ElementsCheck, NumberTest, Term, TestKind, ValueTest};
use super::condition::{
    Arithmetic, CompareClause, CompareSign, FieldOperand, NumberTerm, RightSide, RuleTest, SampleCondition,
    Test, ValueTerm,
};
use super::dimension::Dimension;
use super::logic::Logic;
use super::transform::Transform;
use crate::error::ConditionError;
use crate::names::located_field::LocatedField;

/// Provides the fields of a condition.
pub trait Binder {
    /// The type of a value of a sample.
    type Value: Copy;
    /// The type of a test that is not a comparison.
    type Other;
    /// The type of the error for a condition that does not fit the fields.
    type Error: From<ConditionError>;

    /// Whether the condition is a condition on rows. In a row that is an element of a list, a field
    /// of the list means the field of this element.
    const IS_OF_ROWS: bool;

    /// Finds the field of an operand.
    ///
    /// # Errors
    /// The operand refers to no field, or to several fields.
    fn locate(&mut self, operand: usize) -> Result<LocatedField, Self::Error>;

    /// Returns the dimension of an operand after its transforms.
    ///
    /// # Errors
    /// A transform does not fit the field.
    fn dimension(&mut self, operand: usize, field: &LocatedField) -> Result<Dimension, Self::Error>;

    /// Returns the value of an operand. If `test` is present, returns the result of this test of
    /// the value. `is_element` means that the operand is within `any` or `all`.
    ///
    /// # Errors
    /// A transform does not fit the field.
    fn value(
        &mut self,
        operand: usize,
        field: &LocatedField,
        test: Option<ValueTest>,
        is_element: bool,
    ) -> Result<Self::Value, Self::Error>;

    /// Returns the lateness of a source.
    ///
    /// # Errors
    /// No source has this name.
    fn lateness(&mut self, source: &str) -> Result<Self::Value, Self::Error>;

    /// Binds a test that needs more than one sample.
    ///
    /// # Errors
    /// The test does not fit the sources.
    fn other(&mut self, test: &RuleTest) -> Result<Self::Other, Self::Error>;

    /// Decides whether a comparison that causes this error is treated as unknown instead of
    /// invalid. Returns `Ok` if the result is unknown.
    ///
    /// # Errors
    /// Returns the error if the comparison is invalid.
    fn tolerate(&self, error: Self::Error) -> Result<(), Self::Error> {
        Err(error)
    }
}

/// The condition after binding. The bound condition reads values that the binder has returned.
type Bound<B> = Logic<Check<<B as Binder>::Value, <B as Binder>::Other>>;

/// The list to which the conditions in `any` or `all` apply.
struct ElementScope<V> {
    /// The position of the source, the path including the selection of elements, and a value of the
    /// list.
    list: Option<(usize, Box<str>, V)>,
    is_every_element: bool,
    is_explicit: bool,
}

/// A value with its dimension. The dimension is `None` for a number without a unit.
struct TypedTerm<V> {
    term: Term<V>,
    dimension: Option<Dimension>,
}

impl SampleCondition {
    /// Binds the condition to fields.
    ///
    /// # Errors
    /// A field does not exist, or a comparison is invalid.
    pub fn bind<B: Binder>(&self, binder: &mut B) -> Result<Bound<B>, B::Error> {
        let mut lowering = Lowering { condition: self, binder };
        self.root.try_map(&mut |test| lowering.test(test, None))
    }
}

struct Lowering<'c, B> {
    condition: &'c SampleCondition,
    binder: &'c mut B,
}

fn mismatch<E: From<ConditionError>>(part: &str, what: impl Into<String>) -> E {
    ConditionError::Mismatch { part: part.to_owned(), what: what.into() }.into()
}

impl<'c, B: Binder> Lowering<'c, B> {
    fn operand(&self, operand: usize) -> Result<&'c FieldOperand, B::Error> {
        self.condition.operands.get(operand).ok_or_else(|| mismatch("", "this field was not read"))
    }

    fn transforms(&self, operand: usize) -> &'c [Transform] {
        self.condition.operands.get(operand).map_or(&[], |operand| &operand.transforms)
    }

    fn test(
        &mut self,
        leaf: &Test,
        elements: Option<&mut ElementScope<B::Value>>,
    ) -> Result<Check<B::Value, B::Other>, B::Error> {
        match leaf {
            Test::Compare(compare) => {
                self.about_elements(&compare.text, elements, |own, scope| own.comparison(compare, scope))
            }
            Test::Changed { operand, text } => self.about_elements(text, elements, |own, scope| {
                let left = Term::Value(own.value(*operand, None, scope)?.0);
                let (text, sign) = (Arc::clone(text), CompareSign::Equal);
                // A changed value is read as 1, an unchanged value as 0, and the first sample as
                // absent. So `not changed(FIELD)` is unknown for the first sample, too.
                Ok(Comparison { text, left, sign, right: Term::Number(1.0), dimension: None })
            }),
            Test::Elements { is_every, inner, text } => {
                // The evaluation has only one current element, so an inner list would have no
                // current element.
                if elements.is_some() {
                    return Err(mismatch(
                        text,
                        "any() and all() do not stand in each other; name the elements of the outer list",
                    ));
                }
                let mut scope = ElementScope { list: None, is_every_element: true, is_explicit: true };
                let inner = inner.try_map(&mut |leaf| self.test(leaf, Some(&mut scope)))?;
                let Some((.., anchor)) = scope.list else {
                    return Err(mismatch(text, "no field in it is of a list; leave out any() or all()"));
                };
                // `all` is true for a list without elements, but an empty list must not make a rule
                // fire.
                let needs_element = *is_every || !scope.is_every_element;
                let (is_every, is_implicit) = (*is_every, false);
                Ok(Check::Elements(Box::new(ElementsCheck {
                    is_every,
                    is_implicit,
                    anchor,
                    needs_element,
                    inner,
                })))
            }
            Test::Rule(leaf) => self.binder.other(leaf).map(Check::Other),
        }
    }

    /// Binds a comparison. A comparison outside of `any` and `all` may refer to selected elements.
    /// Such a comparison holds if it is true for at least one of the selected elements.
    fn about_elements(
        &mut self,
        text: &Arc<str>,
        elements: Option<&mut ElementScope<B::Value>>,
        bind: impl FnOnce(&mut Self, &mut ElementScope<B::Value>) -> Result<Comparison<B::Value>, B::Error>,
    ) -> Result<Check<B::Value, B::Other>, B::Error> {
        let is_inside = elements.is_some();
        let mut own = ElementScope { list: None, is_every_element: true, is_explicit: false };
        let scope = elements.unwrap_or(&mut own);
        let comparison = match bind(self, scope) {
            Ok(comparison) => comparison,
            Err(error) => {
                self.binder.tolerate(error)?;
                // A comparison with NaN is unknown. The other comparisons of the condition then
                // determine the result, as if this field were absent in a sample.
                let (left, right) = (Term::Number(f64::NAN), Term::Number(f64::NAN));
                let (text, sign) = (Arc::clone(text), CompareSign::Equal);
                Comparison { text, left, sign, right, dimension: None }
            }
        };
        let inner = Check::Compare(comparison);
        let Some((.., anchor)) = own.list.filter(|_| !is_inside) else { return Ok(inner) };
        // `[*]` selects all elements on purpose. The choice between `any` and `all` determines how
        // often a rule fires, so the user has to write one of these words.
        if own.is_every_element && !B::IS_OF_ROWS {
            return Err(mismatch(
                text,
                "it is about several elements; write any(...) or all(...) around it, or pick one, such as [vda]",
            ));
        }
        Ok(Check::Elements(Box::new(ElementsCheck {
            is_every: false,
            is_implicit: true,
            anchor,
            needs_element: !own.is_every_element,
            inner: Logic::Leaf(inner),
        })))
    }

    fn comparison(
        &mut self,
        compare: &CompareClause,
        scope: &mut ElementScope<B::Value>,
    ) -> Result<Comparison<B::Value>, B::Error> {
        let (text, sign) = (Arc::clone(&compare.text), compare.operator);
        let refused = |what: String| mismatch(&compare.text, what);
        let (read_as, wanted) = match &compare.right {
            RightSide::Value(right) => {
                self.check_text(compare, right)?;
                let number = self.number_test(compare, right)?;
                if let Some((operand, passes, dimension)) = number {
                    let left = Term::Value(self.value(operand, Some(passes), scope)?.0);
                    let (sign, right, dimension) = (CompareSign::Equal, Term::Number(1.0), Some(dimension));
                    return Ok(Comparison { text, left, sign, right, dimension });
                }
                let left = self.term(&compare.left, &text, scope)?;
                let right = self.term(right, &text, scope)?;
                let dimension = common(&text, &left, &right)?;
                if sign == CompareSign::Matches {
                    return Err(refused("=~ compares a text with an expression in quotes".to_owned()));
                }
                return Ok(Comparison { text, left: left.term, sign, right: right.term, dimension });
            }
            RightSide::Text(wanted) => (Some(ValueTest(TestKind::Text(wanted.clone()))), true),
            RightSide::Expression(wanted) => (Some(ValueTest(TestKind::Expression(wanted.clone()))), true),
            RightSide::Truth(wanted) => (None, *wanted),
        };
        if sign.is_order() {
            return Err(refused("texts, true and false are compared with =, != or =~".to_owned()));
        }
        let ValueTerm::Field(operand) = &compare.left else {
            return Err(refused("a text, true or false is compared with one field".to_owned()));
        };
        let located = self.binder.locate(*operand)?;
        let expected = if read_as.is_some() { ColumnType::Text } else { ColumnType::Bool };
        // A comparison of different types would be unknown for every sample. An error now is better
        // than a rule that never fires.
        if located.column_type != expected {
            let with = match located.column_type {
                ColumnType::Text => "a text in quotes",
                ColumnType::Bool => "true or false",
                _ => "a number",
            };
            return Err(refused(format!(
                "{} is {}; compare it with {with}",
                located.path, located.type_name
            )));
        }
        if !self.transforms(*operand).is_empty() {
            let text = &self.operand(*operand)?.text;
            return Err(mismatch(text, "a text, true or false is compared without transforms"));
        }
        let left = Term::Value(self.value(*operand, read_as, scope)?.0);
        // A string is read as 1 if it equals the wanted string, and as 0 otherwise. So `!=` becomes
        // `= 0`, and the comparison with an absent string is unknown, not true.
        let is_equal = sign != CompareSign::NotEqual;
        let right = Term::Number(if wanted == is_equal { 1.0 } else { 0.0 });
        Ok(Comparison { text, left, sign: CompareSign::Equal, right, dimension: None })
    }

    /// Checks a comparison of a string or bool field. If the field is compared with an unquoted
    /// word or with a number, returns an error that shows what to write instead.
    fn check_text(&mut self, compare: &CompareClause, right: &ValueTerm) -> Result<(), B::Error> {
        let ValueTerm::Field(left) = &compare.left else { return Ok(()) };
        let right = match right {
            ValueTerm::Field(right) => &*self.operand(*right)?.text,
            ValueTerm::Number(number) => &number.text,
            _ => return Ok(()),
        };
        let located = self.binder.locate(*left)?;
        let is_changed = !self.transforms(*left).is_empty();
        if !matches!(located.column_type, ColumnType::Text | ColumnType::Bool) || is_changed {
            return Ok(());
        }
        let (path, sign) = (&self.operand(*left)?.text, compare.operator);
        let what = match located.column_type {
            ColumnType::Bool => format!("is true or false; write {path} = true"),
            _ if sign.is_order() => "is a text; compare it with =, != or =~ and a text in quotes".to_owned(),
            _ => {
                format!("is a text; compare it with a text in quotes: {path} {} \"{right}\"", sign.spelled())
            }
        };
        Err(mismatch(path, what))
    }

    /// For a comparison of a field with a number in a condition on rows, returns the operand, its
    /// test and its dimension. The number is converted to the unit of the field, so that no value
    /// of the field has to be rounded.
    fn number_test(
        &mut self,
        compare: &CompareClause,
        right: &ValueTerm,
    ) -> Result<Option<(usize, ValueTest, Dimension)>, B::Error> {
        let (operand, number, sign) = match (&compare.left, right) {
            (ValueTerm::Field(field), ValueTerm::Number(number)) => (*field, number, compare.operator),
            (ValueTerm::Number(number), ValueTerm::Field(field)) => {
                (*field, number, compare.operator.flipped())
            }
            _ => return Ok(None),
        };
        // The result of a transform is a 64-bit float in any case.
        if !self.transforms(operand).is_empty() {
            return Ok(None);
        }
        let located = self.binder.locate(operand)?;
        let dimension = self.binder.dimension(operand, &located)?;
        let unit = Unit::of_field(located.unit.as_deref());
        check_bare(compare, (number, &dimension), unit, B::IS_OF_ROWS)?;
        if !B::IS_OF_ROWS || matches!(located.column_type, ColumnType::Text | ColumnType::Bool) {
            return Ok(None);
        }
        let typed = |term, dimension| TypedTerm::<B::Value> { term, dimension };
        let field = typed(Term::Number(f64::NAN), Some(dimension.clone()));
        let written = typed(Term::Number(number.amount.float()), number.dimension.clone());
        common(&compare.text, &field, &written)?;
        let test = NumberTest { sign, threshold: number.amount.in_unit(unit) };
        Ok(Some((operand, ValueTest(TestKind::Number(test)), dimension)))
    }

    fn term(
        &mut self,
        term: &ValueTerm,
        text: &str,
        scope: &mut ElementScope<B::Value>,
    ) -> Result<TypedTerm<B::Value>, B::Error> {
        match term {
            ValueTerm::Number(NumberTerm { amount, dimension, .. }) => {
                Ok(TypedTerm { term: Term::Number(amount.float()), dimension: dimension.clone() })
            }
            ValueTerm::Field(operand) => {
                let (value, located) = self.value(*operand, None, scope)?;
                let dimension = Some(self.binder.dimension(*operand, &located)?);
                Ok(TypedTerm { term: Term::Value(value), dimension })
            }
            ValueTerm::Lateness(source) => {
                let term = Term::Value(self.binder.lateness(source)?);
                Ok(TypedTerm { term, dimension: Some(Dimension::SECONDS) })
            }
            ValueTerm::Pair(operation, pair) => {
                let left = self.term(&pair.0, text, scope)?;
                let right = self.term(&pair.1, text, scope)?;
                let dimension = computed(*operation, text, &left, &right)?;
                let term = Term::Pair(*operation, Box::new((left.term, right.term)));
                Ok(TypedTerm { term, dimension })
            }
        }
    }

    /// Returns the value of an operand. Without a `test`, the field must be a number.
    fn value(
        &mut self,
        number: usize,
        test: Option<ValueTest>,
        scope: &mut ElementScope<B::Value>,
    ) -> Result<(B::Value, LocatedField), B::Error> {
        let located = self.binder.locate(number)?;
        let operand = self.operand(number)?;
        let is_changed = operand.transforms.first() == Some(&Transform::Changed);
        if located.column_type == ColumnType::Text && test.is_none() && !is_changed {
            let what = if operand.transforms.is_empty() {
                "is a text; compare it with =, != or =~ and a text in quotes"
            } else {
                "is a text, which has no transforms"
            };
            return Err(mismatch(&operand.text, what));
        }
        let value = self.binder.value(number, &located, test, scope.is_explicit)?;
        if let Some(list) = &located.list {
            match &scope.list {
                None => scope.list = Some((located.source, list.clone(), value)),
                Some((source, known, _)) if (*source, known) == (located.source, list) => {}
                // Elements of different lists do not correspond to each other, so it is undefined
                // which two elements to compare.
                Some((_, known, _)) => {
                    return Err(mismatch(
                        &operand.text,
                        format!(
                            "its list {list} is another one than {known}; compare fields of one list with the same elements"
                        ),
                    ));
                }
            }
            scope.is_every_element &= located.is_every_element && !operand.is_alias;
        }
        Ok((value, located))
    }
}

/// Returns the common dimension of two values that are compared or added.
fn common<V>(
    text: &str,
    left: &TypedTerm<V>,
    right: &TypedTerm<V>,
) -> Result<Option<Dimension>, ConditionError> {
    // Zero is the same amount in each unit, so zero needs no unit.
    let is_zero = |value: &TypedTerm<V>| matches!(value.term, Term::Number(number) if number == 0.0);
    match (&left.dimension, &right.dimension) {
        (None, None) => Err(mismatch(text, "compares two numbers; one side must have a field")),
        (Some(one), None) if one.is_plain() || is_zero(right) => Ok(Some(one.clone())),
        (None, Some(other)) if other.is_plain() || is_zero(left) => Ok(Some(other.clone())),
        (Some(one), None) | (None, Some(one)) => Err(mismatch(
            text,
            format!("the value is in {one}; write the number with a unit, such as {}", one.example()),
        )),
        (Some(one), Some(other)) if one == other => Ok(Some(one.clone())),
        (Some(one), Some(other)) => {
            let name = |dimension: &Dimension| {
                let name = dimension.to_string();
                if name.is_empty() { "a plain number".to_owned() } else { name }
            };
            Err(mismatch(
                text,
                format!("{} is not {}; write a number such as {}", name(other), name(one), one.example()),
            ))
        }
    }
}

/// Returns the dimension of the result of an operation.
fn computed<V>(
    operation: Arithmetic,
    text: &str,
    left: &TypedTerm<V>,
    right: &TypedTerm<V>,
) -> Result<Option<Dimension>, ConditionError> {
    let none = || {
        mismatch(
            text,
            "the units of this product or quotient have no name; divide by a field of the same unit or by a count",
        )
    };
    match (operation, &left.dimension, &right.dimension) {
        (_, None, None) => Ok(None),
        // A number that multiplies or divides a value is a factor, and needs no unit. A number in a
        // sum needs a unit.
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

/// Checks whether a number without a unit is ambiguous. If the number is ambiguous, returns an
/// error that shows the unit to write.
fn check_bare(
    compare: &CompareClause,
    (number, dimension): (&NumberTerm, &Dimension),
    unit: Option<&Unit>,
    is_of_rows: bool,
) -> Result<(), ConditionError> {
    let Some(unit) = unit.filter(|_| number.dimension.is_none() && !number.amount.is_zero()) else {
        return Ok(());
    };
    // A rule reads a number without a unit as degrees, but `dump` prints values in the field's own
    // unit, such as millidegrees.
    let is_ambiguous = is_of_rows && unit.name != unit.base;
    if dimension.is_plain() && !is_ambiguous {
        return Ok(());
    }
    Err(mismatch(
        &compare.text,
        format!("write the number with a unit, such as {} {}", number.text, unit.name),
    ))
}
