//! Which tables does a binary schema have?

use super::compile;
use super::error::SchemaError;

/// What a payload's root could be, by a binary schema.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Full names of all tables, as the schema sorts them: by name.
    pub names: Vec<String>,
    /// The one that the schema says payloads have (`root_type`), if it does.
    pub root: Option<String>,
}

impl Tables {
    /// Reads a binary schema (.bfbs).
    ///
    /// # Errors
    /// `TooLarge`, `NotSchema`, `Damaged`, `TooMany`.
    pub fn read(bfbs: &[u8]) -> Result<Self, SchemaError> {
        let schema = compile::open(bfbs)?;
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

    // Goal: tables are told, structs are not, and what is no schema is an error. Method: a schema of this program; text.
    #[test]
    fn tables_are_told() {
        let schema = std::fs::read("generated/segment.bfbs").unwrap();
        let tables = Tables::read(&schema).unwrap();
        assert!(tables.names.contains(&"flatcap.segment.Trailer".to_owned()), "{tables:?}");
        assert!(!tables.names.contains(&"flatcap.segment.Clocks".to_owned()), "{tables:?}");
        assert!(matches!(Tables::read(b"table A {}"), Err(SchemaError::NotSchema)));
    }
}
