//! Lists the tables of a binary schema.

use super::compile;
use super::error::SchemaError;

/// The tables of a binary schema that may be the root of a payload.
#[derive(Debug, Clone)]
pub struct SchemaTables {
    /// Full names of all tables, sorted by name as in the schema.
    pub names: Vec<String>,
    /// The root table that the schema declares (`root_type`), if any.
    pub root: Option<String>,
}

impl SchemaTables {
    /// Reads a binary schema (.bfbs).
    ///
    /// # Errors
    /// Returns `TooLarge`, `NotSchema`, `Damaged` or `TooMany`.
    pub fn read(bfbs: &[u8]) -> Result<Self, SchemaError> {
        let schema = compile::open(bfbs)?;
        // A payload begins with the offset of a table, so a struct cannot be its root.
        let tables = schema.objects().iter().filter(|object| !object.is_struct());
        Ok(Self {
            names: tables.map(|object| object.name().to_owned()).collect(),
            root: schema.root_table().map(|root| root.name().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that tables are listed, that structs are not listed, and that bytes that are not a
    // schema are rejected.
    #[test]
    fn tables_are_listed() {
        let schema = std::fs::read("generated/segment.bfbs").unwrap();
        let tables = SchemaTables::read(&schema).unwrap();
        assert!(tables.names.contains(&"flatcap.segment.Trailer".to_owned()), "{tables:?}");
        assert!(!tables.names.contains(&"flatcap.segment.Clocks".to_owned()), "{tables:?}");
        assert!(matches!(SchemaTables::read(b"table A {}"), Err(SchemaError::NotSchema)));
    }
}
