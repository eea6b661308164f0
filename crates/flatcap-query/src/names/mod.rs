//! The names of sources, fields, columns and elements, and the fields to which paths lead.

pub(crate) mod column_meaning;
pub(crate) mod column_names;
pub(crate) mod elements;
pub(crate) mod label_rules;
pub(crate) mod located_field;
pub(crate) mod namesakes;
pub(crate) mod path;
pub(crate) mod path_text;
pub(crate) mod resolve;
pub(crate) mod shared_paths;
