//! Captures that are whole, and those that are not.
