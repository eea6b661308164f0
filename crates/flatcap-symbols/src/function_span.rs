//! The addresses, rank and name of a function.

/// The rank of functions of Go. Go functions need no other ranks, because no two of them have the
/// same address.
pub(crate) const GO_RANK: u8 = 0;

/// The range of addresses of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionSpan {
    pub(crate) begin: u64,
    /// The rank of the function. Of several functions at one address, the function with the lowest
    /// rank is shown.
    pub(crate) rank: u8,
    /// Offset of the function's name.
    pub(crate) name: u32,
    /// The address after the last byte of the function. If the file does not state the function's
    /// length, this is the end of its section, or the beginning of the next function.
    pub(crate) end: u64,
}
