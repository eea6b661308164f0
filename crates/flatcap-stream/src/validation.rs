//! Validators check a payload before it is written, or before it is returned.

use std::fmt;

use flatbuffers::{InvalidFlatbuffer, Verifier, VerifierOptions};

use super::error::{Error, Result};

/// A rule that payloads must satisfy. A validator checks the bytes in place without a copy. The
/// validator allocates memory only when it rejects a payload, for the text of the reason.
pub trait Validator: Send + Sync {
    /// Accepts or rejects a payload.
    ///
    /// # Errors
    /// `ValidationFailed` with the name of the rule and the reason.
    fn validate(&self, payload: &[u8]) -> Result<()>;

    /// Returns the name of the rule for error messages.
    fn name(&self) -> &'static str;
}

/// Accepts every payload and generates no code.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct NoValidator;

impl Validator for NoValidator {
    #[inline]
    fn validate(&self, _payload: &[u8]) -> Result<()> {
        Ok(())
    }

    fn name(&self) -> &'static str {
        "NoValidator"
    }
}

/// Accepts payloads whose length is between two limits, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeValidator {
    min: usize,
    max: usize,
}

impl SizeValidator {
    /// Accepts `min_size` to `max_size` bytes.
    pub const fn new(min_size: usize, max_size: usize) -> Self {
        Self { min: min_size, max: max_size }
    }
}

impl Validator for SizeValidator {
    #[inline]
    fn validate(&self, payload: &[u8]) -> Result<()> {
        let size = payload.len();
        if (self.min..=self.max).contains(&size) {
            return Ok(());
        }
        let Self { min, max } = self;
        Err(Error::validation_failed(
            self.name(),
            format!("payload has {size} bytes, must have {min} to {max}"),
        ))
    }

    fn name(&self) -> &'static str {
        "SizeValidator"
    }
}

/// Accepts FlatBuffers whose root table lies within the payload. Needs no schema. Checks the root
/// table's offset, vtable and length, but not its fields. [`TypedValidator`] checks the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRootValidator {
    max_depth: usize,
    max_tables: usize,
}

impl TableRootValidator {
    /// Default limit on the nesting depth of tables.
    const DEPTH_MAX: usize = 64;
    /// Default limit on the number of tables.
    const TABLES_MAX: usize = 1_000_000;

    /// Creates a validator that allows 64 levels of nested tables and a million tables.
    pub const fn new() -> Self {
        Self::with_limits(Self::DEPTH_MAX, Self::TABLES_MAX)
    }

    /// Sets both limits.
    pub const fn with_limits(max_depth: usize, max_tables: usize) -> Self {
        Self { max_depth, max_tables }
    }

    /// Returns the error for a rejected payload. The error contains the verifier's message, or says
    /// that the payload is too short or that the table ends outside the payload.
    #[cold]
    fn refusal(&self, payload: &[u8]) -> Error {
        let Some(root) = payload.first_chunk::<4>() else {
            return Error::validation_failed(self.name(), "payload is too short for a FlatBuffer");
        };
        let options = limits(self.max_depth, self.max_tables);
        match Verifier::new(&options, payload).visit_table(u32::from_le_bytes(*root) as usize) {
            Ok(_) => Error::validation_failed(self.name(), "the root table ends past the end of the payload"),
            Err(error) => refused(self.name(), &error),
        }
    }
}

impl Default for TableRootValidator {
    fn default() -> Self {
        Self::new()
    }
}

impl Validator for TableRootValidator {
    #[inline]
    fn validate(&self, payload: &[u8]) -> Result<()> {
        // The verifier of the library takes three times as long, so it is used only for the error
        // message.
        if self.max_depth > 0 && self.max_tables > 0 && root_table_fits(payload) == Some(true) {
            return Ok(());
        }
        Err(self.refusal(payload))
    }

    fn name(&self) -> &'static str {
        "TableRootValidator"
    }
}

/// The function that verifies one root type, with the signature that flatc generates.
type Verify = fn(&VerifierOptions, &[u8]) -> std::result::Result<(), InvalidFlatbuffer>;

/// Accepts FlatBuffers of one type, which the type's generated verifier checks:
///
/// ```
/// use flatcap_stream::{TypedValidator, Validator};
///
/// // For a generated type:
/// // `|options, payload| root_as_event_with_opts(options, payload).map(|_| ())`.
/// let text = TypedValidator::from_verify_named("text", |options, payload| {
///     flatbuffers::root_with_opts::<&str>(options, payload).map(|_| ())
/// });
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let root = builder.create_string("intact");
/// builder.finish_minimal(root);
/// assert!(text.validate(builder.finished_data()).is_ok());
/// assert!(text.validate(b"no FlatBuffer at all").is_err());
/// ```
#[derive(Clone)]
pub struct TypedValidator {
    name: &'static str,
    options: VerifierOptions,
    verify: Verify,
}

impl TypedValidator {
    /// Creates a validator with the name `TypedValidator` and the verifier's default limits.
    pub fn from_verify(verify: Verify) -> Self {
        Self::from_verify_named("TypedValidator", verify)
    }

    /// Creates a validator with the given name and the verifier's default limits.
    pub fn from_verify_named(name: &'static str, verify: Verify) -> Self {
        Self { name, options: VerifierOptions::default(), verify }
    }

    /// Creates a validator with the name `TypedValidator` and the given limits.
    pub fn with_limits_from_verify(max_depth: usize, max_tables: usize, verify: Verify) -> Self {
        Self::with_limits_from_verify_named(max_depth, max_tables, "TypedValidator", verify)
    }

    /// Creates a validator with the given name and limits.
    pub fn with_limits_from_verify_named(
        max_depth: usize,
        max_tables: usize,
        name: &'static str,
        verify: Verify,
    ) -> Self {
        Self { name, options: limits(max_depth, max_tables), verify }
    }
}

impl Validator for TypedValidator {
    #[inline]
    fn validate(&self, payload: &[u8]) -> Result<()> {
        (self.verify)(&self.options, payload).map_err(|error| refused(self.name, &error))
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for TypedValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedValidator").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Accepts payloads that all of its validators accept. The validators run in the order in which
/// they were added, and the first rejection is returned. A composite without validators accepts
/// everything.
#[derive(Default)]
pub struct CompositeValidator {
    validators: Vec<Box<dyn Validator>>,
}

impl CompositeValidator {
    /// Creates a composite without validators.
    pub const fn new() -> Self {
        Self { validators: Vec::new() }
    }

    /// Adds `validator`.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "the name that users of flatstream know")]
    pub fn add<V: Validator + 'static>(mut self, validator: V) -> Self {
        self.validators.push(Box::new(validator));
        self
    }
}

impl Validator for CompositeValidator {
    #[inline]
    fn validate(&self, payload: &[u8]) -> Result<()> {
        self.validators.iter().try_for_each(|validator| validator.validate(payload))
    }

    fn name(&self) -> &'static str {
        "CompositeValidator"
    }
}

impl fmt::Debug for CompositeValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.validators.iter().map(|validator| validator.name())).finish()
    }
}

/// Returns whether the root table and its vtable are aligned and lie within the payload. Returns
/// `None` if one of the offsets or lengths lies outside the payload. The verifier of `flatbuffers`
/// makes the same checks, but does not check the end of the table.
#[inline]
fn root_table_fits(payload: &[u8]) -> Option<bool> {
    let table = u32::from_le_bytes(*payload.first_chunk()?) as usize;
    let to_vtable = i32::from_le_bytes(*payload.get(table..)?.first_chunk()?);
    let vtable = usize::try_from(i64::try_from(table).ok()? - i64::from(to_vtable)).ok()?;
    let &[vtable_low, vtable_high, table_low, table_high] = payload.get(vtable..)?.first_chunk::<4>()?;
    let vtable_bytes = usize::from(u16::from_le_bytes([vtable_low, vtable_high]));
    let table_bytes = usize::from(u16::from_le_bytes([table_low, table_high]));
    let is_aligned = table.is_multiple_of(4) && vtable.is_multiple_of(2) && vtable_bytes.is_multiple_of(2);
    // Both sums are at most the length of the payload plus 65,535, so they do not overflow.
    Some(is_aligned && vtable + vtable_bytes <= payload.len() && table + table_bytes <= payload.len())
}

/// Returns the verifier's message without the empty lines at its end.
#[cold]
fn refused(name: &'static str, error: &InvalidFlatbuffer) -> Error {
    Error::validation_failed(name, error.to_string().trim_end().to_owned())
}

fn limits(max_depth: usize, max_tables: usize) -> VerifierOptions {
    VerifierOptions { max_depth, max_tables, ..VerifierOptions::default() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn table() -> Vec<u8> {
        let mut builder = flatbuffers::FlatBufferBuilder::new();
        let start = builder.start_table();
        builder.push_slot_always(4, 7_u64);
        let root = builder.end_table(start);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }

    // Proves that both limits are inclusive and that the error names both limits.
    #[test]
    fn sizes() {
        let sizes = SizeValidator::new(2, 4);
        let accepted: Vec<usize> = (0..7).filter(|&size| sizes.validate(&vec![0; size]).is_ok()).collect();
        assert_eq!(accepted, [2, 3, 4]);
        let error = sizes.validate(b"12345").unwrap_err();
        assert_eq!(
            error.to_string(),
            "rejected by validator SizeValidator: payload has 5 bytes, must have 2 to 4"
        );
    }

    // Proves that a table is accepted, that the table truncated at any byte is rejected, and that
    // bytes that are not a table are rejected.
    #[test]
    fn table_roots() {
        let table = table();
        TableRootValidator::new().validate(&table).unwrap();
        for cut in 0..table.len() {
            assert!(TableRootValidator::new().validate(&table[..cut]).is_err(), "cut at {cut}");
        }
        assert!(TableRootValidator::new().validate(b"\xff\xff\xff\xff and more").is_err());
        assert!(TableRootValidator::with_limits(1, 0).validate(&table).is_err());
    }

    // Proves that a payload is accepted if and only if the verifier of the library accepts its root
    // and the table ends within the payload. Method: random small numbers are used as offsets and
    // lengths, so that some of the payloads are accepted.
    #[test]
    fn table_roots_are_those_of_the_verifier() {
        let word = prop_oneof![4 => Just(0_u16), 4 => 0_u16..24, 1 => any::<u16>()];
        let words = proptest::collection::vec(word, 0..14);
        let accepted = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(ProptestConfig::with_cases(4_000));
        let checked = runner.run(&(0_u32..20, words), |(root, words)| {
            let words = words.into_iter().flat_map(u16::to_le_bytes);
            let payload: Vec<u8> = root.to_le_bytes().into_iter().chain(words).collect();
            let is_accepted = TableRootValidator::new().validate(&payload).is_ok();
            accepted.set(accepted.get() + u32::from(is_accepted));
            prop_assert_eq!(is_accepted, is_verified_table(&payload, root as usize));
            Ok(())
        });
        assert_eq!(checked, Ok(()));
        assert!((100..3_900).contains(&accepted.get()), "{} of 4,000", accepted.get());
    }

    /// Checks the payload with the verifier of `flatbuffers`, and takes the end of the table from
    /// the vtable.
    fn is_verified_table(payload: &[u8], table: usize) -> bool {
        let options = limits(64, 1_000_000);
        if Verifier::new(&options, payload).visit_table(table).is_err() {
            return false;
        }
        let to_vtable = i32::from_le_bytes(*payload[table..].first_chunk().unwrap());
        let vtable = table.checked_add_signed(-to_vtable as isize).unwrap();
        let length = payload.get(vtable + 2..).and_then(<[u8]>::first_chunk);
        length.is_some_and(|length| table + usize::from(u16::from_le_bytes(*length)) <= payload.len())
    }

    // Proves that the first rejection is returned and that an empty composite accepts everything.
    #[test]
    fn composites() {
        assert!(CompositeValidator::new().validate(b"").is_ok());
        let both = CompositeValidator::new().add(SizeValidator::new(8, 99)).add(TableRootValidator::new());
        assert!(both.validate(&table()).is_ok());
        assert!(both.validate(b"").unwrap_err().to_string().contains("SizeValidator"));
        assert!(
            both.validate(b"\xff\xff\xff\xffffff").unwrap_err().to_string().contains("TableRootValidator")
        );
        assert_eq!(format!("{both:?}"), r#"["SizeValidator", "TableRootValidator"]"#);
    }
}
