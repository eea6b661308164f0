//! What may be asked of the running agent, and how does it answer? Requests over HTTP on a Unix socket.
//!
//! Never: changes anything itself. A request goes to the daemon, which alone decides, and its answer goes back.

mod request;

pub use request::{Answer, Call, Caller, Calls, Refusal, RefusalKind, Request, calls};
