//! A function by its addresses.

/// The rank of functions of Go: no two have one address.
pub(crate) const GO_RANK: u8 = 0;

/// The range of addresses of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionSpan {
    pub(crate) begin: u64,
    /// The rank of the function: of several functions at one address, the first one is shown.
    pub(crate) rank: u8,
    /// Offset of the function's name.
    pub(crate) name: u32,
    /// If the file does not state its length: the end of its section, or the next function's begin.
    pub(crate) end: u64,
}
