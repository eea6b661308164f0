//! Which request a path and a method are, and who may ask for it: decisions without a socket.

use hyper::{Method, StatusCode};

use super::request::{Refusal, RefusalKind, Request};
use crate::os::local_socket::Peer;

/// Bytes of a mark's text.
pub const MARK_BYTES_MAX: usize = 4096;
/// Bytes of a log filter.
pub const FILTER_BYTES_MAX: usize = 1024;

/// What there is, for a client that asks for something else.
const INDEX: &str = "flatcap's control socket:\n\
    GET /status       the agent's state, as JSON\n\
    GET /metrics      every counter, as OpenMetrics text\n\
    POST /rotate      close the open segment and begin the next one\n\
    POST /mark        write the body, one line of text, into the recording\n\
    POST /reload      read the configuration again, and change what has changed\n\
    POST /flush       write and sync what has been sampled\n\
    PUT /log-level    log by the filter in the body from now on\n";
/// The same for those who come over TCP.
const INDEX_TCP: &str = "flatcap's metrics:\nGET /metrics      every counter, as OpenMetrics text\n";

/// By which way a client has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// Over the control socket.
    Local(Peer),
    /// Over TCP: it reads metrics, and nothing else.
    Network,
}

/// What a request line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Index,
    Metrics,
    Status,
    Rotate,
    Mark,
    Reload,
    Flush,
    LogLevel,
}

/// An answer that needs nobody else.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    /// Methods that there are, for `Allow`.
    pub(super) allow: Option<&'static str>,
    pub(super) text: String,
}

impl Rejection {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, allow: None, text: text.into() }
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            RefusalKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, refusal.message)
    }
}

impl Route {
    const ALL: [(&str, &str, Self); 8] = [
        ("/", "GET, HEAD", Self::Index),
        ("/metrics", "GET, HEAD", Self::Metrics),
        ("/status", "GET, HEAD", Self::Status),
        ("/rotate", "POST", Self::Rotate),
        ("/mark", "POST", Self::Mark),
        ("/reload", "POST", Self::Reload),
        ("/flush", "POST", Self::Flush),
        ("/log-level", "PUT", Self::LogLevel),
    ];

    /// What this method on this path asks for.
    pub(super) fn find(method: &Method, path: &str, origin: &Origin) -> Result<Self, Rejection> {
        let is_there =
            |route: Self| *origin != Origin::Network || matches!(route, Self::Index | Self::Metrics);
        let found = Self::ALL.iter().find(|(known, _, route)| *known == path && is_there(*route));
        let Some((_, allowed, route)) = found else {
            let there_is = if *origin == Origin::Network { INDEX_TCP } else { INDEX };
            return Err(Rejection::new(StatusCode::NOT_FOUND, format!("there is no such path; {there_is}")));
        };
        if allowed.split(", ").any(|allowed| allowed == method.as_str()) {
            return Ok(*route);
        }
        Err(Rejection {
            status: StatusCode::METHOD_NOT_ALLOWED,
            allow: Some(allowed),
            text: format!("{path} takes {allowed}"),
        })
    }

    /// Whether it changes something.
    pub(super) fn changes(self) -> bool {
        !matches!(self, Self::Index | Self::Metrics | Self::Status)
    }

    /// What there is.
    pub(super) fn index(origin: &Origin) -> &'static str {
        if *origin == Origin::Network { INDEX_TCP } else { INDEX }
    }

    /// What the daemon is to be asked; none for what needs no daemon.
    pub(super) fn request(self, body: &[u8]) -> Result<Option<Request>, Rejection> {
        let request = match self {
            Self::Index | Self::Metrics => return Ok(None),
            Self::Status => Request::Status,
            Self::Rotate => Request::Rotate,
            Self::Reload => Request::Reload,
            Self::Flush => Request::Flush,
            Self::Mark => Request::Mark(line("a mark", body, MARK_BYTES_MAX)?),
            Self::LogLevel => Request::Log(line("a log filter", body, FILTER_BYTES_MAX)?),
        };
        Ok(Some(request))
    }
}

/// A body as one line of text. An end of line behind it, as tools append it, does not count.
fn line(what: &str, body: &[u8], bytes_max: usize) -> Result<String, Rejection> {
    let invalid = |why: &str| {
        Rejection::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{what} is one line of text: {why}"))
    };
    let text = std::str::from_utf8(body).map_err(|_| invalid("this is not UTF-8"))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    if text.trim().is_empty() {
        return Err(invalid("this is empty"));
    }
    if text.len() > bytes_max {
        return Err(invalid(&format!("this has {} bytes; it may have {bytes_max}", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid("this has control characters, such as an end of line or a tab"));
    }
    Ok(text.to_owned())
}

/// Whether a client may change something: root, the account that records, and members of its group.
pub(super) fn may_change(origin: &Origin, (user, group): (u32, u32)) -> Result<(), Rejection> {
    match origin {
        Origin::Local(peer)
            if peer.user == 0 || peer.user == user || peer.group == group || peer.groups.contains(&group) =>
        {
            Ok(())
        }
        _ => Err(Rejection::new(
            StatusCode::FORBIDDEN,
            format!(
                "this is for root, for user {user} and for members of group {group}; everybody else may read"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: u32, group: u32, groups: &[u32]) -> Origin {
        Origin::Local(Peer { user, group, groups: groups.to_vec(), process: Some(1) })
    }

    // Goal: each path takes its method and says so where it is another; over TCP there are metrics alone. Method: all of them.
    #[test]
    fn paths_take_their_methods() {
        let local = peer(0, 0, &[]);
        for (path, allowed, route) in Route::ALL {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "BREW"] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                match Route::find(&method, path, &local) {
                    Ok(found) => assert!(found == route && allowed.contains(method.as_str())),
                    Err(rejection) => {
                        assert!(!allowed.contains(method.as_str()));
                        let said = (rejection.status, rejection.allow);
                        assert_eq!(said, (StatusCode::METHOD_NOT_ALLOWED, Some(allowed)));
                    }
                }
            }
            assert!(Route::index(&local).contains(path));
            let over_tcp = Route::find(&Method::GET, path, &Origin::Network);
            match route {
                Route::Index | Route::Metrics => assert_eq!(over_tcp.unwrap(), route),
                _ => assert_eq!(over_tcp.unwrap_err().status, StatusCode::NOT_FOUND),
            }
        }
        for path in ["/statuss", "//status", "/status/", "/../etc/passwd", ""] {
            let rejection = Route::find(&Method::GET, path, &local).unwrap_err();
            assert!(
                rejection.status == StatusCode::NOT_FOUND && rejection.text.contains("GET /status"),
                "{path}"
            );
        }
    }

    // Goal: a mark is one line of text within its limit. Method: both sides of each rule.
    #[test]
    fn marks_are_one_line() {
        let mark = |body: &[u8]| Route::Mark.request(body);
        let text = |body: &[u8]| match mark(body) {
            Ok(Some(Request::Mark(text))) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(b"deploy 42 begins\n"), "deploy 42 begins");
        assert_eq!(text("Gr\u{fc}sse\r\n".as_bytes()), "Gr\u{fc}sse");
        assert_eq!(text(&[b'x'; MARK_BYTES_MAX]).len(), MARK_BYTES_MAX);
        for (body, why) in [
            (&b""[..], "empty"),
            (b" \n", "empty"),
            (b"a\nb", "control"),
            (b"a\n\n", "control"),
            (b"\x1b[2J", "control"),
            (b"a\0", "control"),
            (b"\xff", "UTF-8"),
            (&[b'x'; MARK_BYTES_MAX + 1], "4097 bytes"),
        ] {
            let rejection = mark(body).unwrap_err();
            assert_eq!(rejection.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(rejection.text.contains(why), "{rejection:?}");
        }
        assert_eq!(Route::Rotate.request(b"whatever").unwrap(), Some(Request::Rotate));
    }

    // Goal: only those who may change anything. Method: each way to have the right, and without one.
    #[test]
    fn changes_are_for_few() {
        let own = (990, 980);
        for may in [peer(0, 5, &[]), peer(990, 5, &[]), peer(1000, 980, &[]), peer(1000, 5, &[4, 980])] {
            assert!(may_change(&may, own).is_ok(), "{may:?}");
        }
        for may_not in [peer(1000, 1000, &[27]), Origin::Network] {
            let rejection = may_change(&may_not, own).unwrap_err();
            assert!(rejection.status == StatusCode::FORBIDDEN && rejection.text.contains("group 980"));
        }
        let reads = Route::ALL.map(|(_, _, route)| route).into_iter().filter(|route| !route.changes());
        assert_eq!(reads.count(), 3);
    }
}
