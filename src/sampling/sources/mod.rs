//! One file a source: what it reads, how it parses, how it fills its schema (schemas/host/).
