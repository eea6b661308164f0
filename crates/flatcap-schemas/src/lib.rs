//! Schemas of the payloads that this program writes: bindings generated from schemas/.

mod generated;

pub use generated::host;

/// Metrics of the recorder itself (schemas/agent.fbs).
pub mod agent {
    pub use super::generated::agent::flatcap::agent::*;
}

/// Market data recordings and feeds (schemas/market/).
pub mod market {
    /// IEX DEEP and TOPS (schemas/market/iex.fbs).
    pub mod iex {
        pub use super::super::generated::iex::flatcap::market::iex::*;
    }

    /// Messages and order books of LOBSTER (schemas/market/lobster.fbs).
    pub mod lobster {
        pub use super::super::generated::lobster::flatcap::market::lobster::*;
    }
}

/// Synthetic values (schemas/synthetic.fbs).
pub mod synthetic {
    pub use super::generated::synthetic::flatcap::synthetic::*;
}
