//! Access control. Only pages of this origin may send requests, and requests for recorded data need
//! the token.

use std::cell::RefCell;
use std::io;

use flatcap_os::host::random_u64;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{StatusCode, Uri};

use super::api_error::ApiError;

/// The host names with which a browser on this host can reach this server.
// A page with another host name that resolves to 127.0.0.1 (DNS rebinding) sends this other name.
const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The secrets that a request must present.
#[derive(Debug)]
pub(super) struct PageAccess {
    token: String,
    /// A one-time secret that can be exchanged for the token.
    ticket: RefCell<Option<String>>,
}

impl PageAccess {
    /// Requires `token` for recorded data. The first request that presents `ticket` receives the
    /// token.
    pub(super) fn new(token: String, ticket: Option<String>) -> Self {
        Self { token, ticket: RefCell::new(ticket) }
    }

    /// Checks that a request was sent to a name of this host, and that no page of another origin
    /// sent it.
    pub(super) fn check_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        // The port is not compared, because it may be forwarded.
        let host = only(headers, &HOST).unwrap_or_default();
        // If the request line has an absolute URL, its host must equal the header `Host`.
        if !is_loopback(host) || uri.authority().is_some_and(|authority| authority.as_str() != host) {
            return Err(ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "the header Host must name this host itself, as 127.0.0.1 or localhost",
            ));
        }
        // Clients other than browsers send no Origin.
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, &ORIGIN).unwrap_or_default();
        // The page has no TLS, so its own origin begins with `http`.
        if origin.strip_prefix("http://") == Some(host) {
            return Ok(());
        }
        Err(ApiError::new(StatusCode::FORBIDDEN, "a page of another origin may not ask"))
    }

    /// Checks the token of a request.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if shows(headers, &self.token) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "the header Authorization must be Bearer and the token; flatcap view --web prints it in its address",
        ))
    }

    /// Returns the token to the first request that presents the ticket.
    pub(super) fn take_ticket(&self, headers: &HeaderMap) -> Result<String, ApiError> {
        // The ticket is valid only once, because another user may have seen it on a command line.
        let mut ticket = self.ticket.borrow_mut();
        if ticket.take_if(|ticket| shows(headers, ticket)).is_some() {
            return Ok(self.token.clone());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "the header Authorization must be Bearer and a ticket that was not used; flatcap view --web --open makes one",
        ))
    }
}

/// Returns whether a request presents this secret.
fn shows(headers: &HeaderMap, secret: &str) -> bool {
    let shown = only(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let (shown, secret) = (shown.unwrap_or_default().as_bytes(), secret.as_bytes());
    // This comparison takes constant time, so that a wrong byte takes as long as a correct byte.
    let difference = shown.iter().zip(secret).fold(0, |sum, (one, other)| sum | (one ^ other));
    // The time of the comparison reveals only the length, which is no secret.
    shown.len() == secret.len() && difference == 0
}

/// Returns a new token of 128 random bits.
///
/// # Errors
/// Fails with any error of getrandom(2).
pub(super) fn new_token() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random_u64()?, random_u64()?))
}

/// Returns the value of a header that occurs exactly once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    // If there are two values, another program might have checked the other value.
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok()).flatten()
}

fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    LOOPBACK_NAMES.iter().any(|name| {
        let rest = host.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name));
        rest.and_then(|_| host.get(name.len()..))
            .is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut map = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    // Proves that names of this host are accepted with any port, and that all other names are
    // refused, also in a second header or in the target. A page of another origin is refused.
    #[test]
    fn only_pages_of_this_host_may_ask() {
        let uri = Uri::from_static("/api/v1/sources");
        for host in ["127.0.0.1:80", "localhost:9000", "LocalHost", "[::1]:7"] {
            assert!(PageAccess::check_origin(&headers(&[(HOST, host)]), &uri).is_ok(), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.", "127.0.0.1:x", "", "[::1]7"] {
            let error = PageAccess::check_origin(&headers(&[(HOST, host)]), &uri).unwrap_err();
            assert_eq!(error.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
        let twice = headers(&[(HOST, "localhost"), (HOST, "evil.example")]);
        assert!(PageAccess::check_origin(&twice, &uri).is_err());
        assert!(PageAccess::check_origin(&HeaderMap::new(), &uri).is_err());
        let absolute = Uri::from_static("http://evil.example/");
        assert!(PageAccess::check_origin(&headers(&[(HOST, "localhost")]), &absolute).is_err());
        for (origin, is_own) in [
            ("http://localhost:1", true),
            ("http://localhost:2", false),
            ("null", false),
            ("https://localhost:1", false),
        ] {
            let sent = headers(&[(HOST, "localhost:1"), (ORIGIN, origin)]);
            assert_eq!(PageAccess::check_origin(&sent, &uri).is_ok(), is_own, "{origin}");
        }
    }

    // Proves that only the token gives access to the data, and that tokens differ.
    #[test]
    fn the_token_opens() {
        let access = PageAccess::new("0123abcd".to_owned(), None);
        for (value, is_open) in [
            ("Bearer 0123abcd", true),
            ("Bearer 0123abce", false),
            ("Bearer 0123abc", false),
            ("Bearer 0123abcdd", false),
            ("0123abcd", false),
            ("Bearer ", false),
        ] {
            let sent = headers(&[(AUTHORIZATION, value)]);
            assert_eq!(access.check_token(&sent).is_ok(), is_open, "{value}");
        }
        assert!(access.check_token(&HeaderMap::new()).is_err());
        let tokens = (new_token().unwrap(), new_token().unwrap());
        assert!(tokens.0 != tokens.1 && tokens.0.len() == 32);
    }
}
