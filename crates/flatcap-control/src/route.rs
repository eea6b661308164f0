//! Routing and permissions. Maps methods and paths to requests, and decides who may send them. Does
//! not use sockets.

use std::time::Duration;

use flatcap_os::local_socket::PeerCredentials;
use flatcap_text::quantity::duration_argument;
use hyper::{Method, StatusCode};

use super::request::{ControlRequest, Refusal, RefusalKind, SnapshotWindow};

/// Maximum size of the text of a mark, in bytes.
pub const MARK_BYTES_MAX: usize = 4096;
/// Maximum size of the reason of a snapshot, in bytes.
const REASON_BYTES_MAX: usize = 1024;
/// Maximum size of a log filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 1024;

/// The list of requests that the control socket accepts. It is also a part of the answer to an
/// unknown path.
const INDEX: &str = "flatcap's control socket:\n\
    GET /status       the recorder's state, as JSON\n\
    GET /metrics      every counter, as OpenMetrics text\n\
    POST /rotate      seal the open segment and begin the next one\n\
    POST /mark        write the body, one line of text, into the recording\n\
    POST /reload      reload the configuration and apply what has changed\n\
    POST /snapshot    keep what the ring holds; the body: {\"last\":\"30s\",\"after\":\"5s\",\"reason\":\"TEXT\"}\n\
    POST /flush       write and sync all samples taken so far\n\
    PUT /log-level    set the log filter to the body\n";
/// The list of requests that the TCP listener accepts.
const INDEX_TCP: &str = "flatcap's metrics:\nGET /metrics      every counter, as OpenMetrics text\n";

/// The origin of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientOrigin {
    /// The control socket.
    Local(PeerCredentials),
    /// TCP, over which only metrics can be read.
    Network,
}

/// The target of a request.
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
    Snapshot,
}

/// A refusal that the server sends without asking the daemon.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    /// The methods that the path allows, for the `Allow` header.
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
    const ALL: [(&str, &str, Self); 9] = [
        ("/", "GET, HEAD", Self::Index),
        ("/metrics", "GET, HEAD", Self::Metrics),
        ("/status", "GET, HEAD", Self::Status),
        ("/rotate", "POST", Self::Rotate),
        ("/mark", "POST", Self::Mark),
        ("/reload", "POST", Self::Reload),
        ("/flush", "POST", Self::Flush),
        ("/log-level", "PUT", Self::LogLevel),
        ("/snapshot", "POST", Self::Snapshot),
    ];

    /// Returns the route of a method and path.
    pub(super) fn find(method: &Method, path: &str, origin: &ClientOrigin) -> Result<Self, Rejection> {
        let is_there =
            |route: Self| *origin != ClientOrigin::Network || matches!(route, Self::Index | Self::Metrics);
        let found = Self::ALL.iter().find(|(known, _, route)| *known == path && is_there(*route));
        let Some((_, allowed, route)) = found else {
            let index = if *origin == ClientOrigin::Network { INDEX_TCP } else { INDEX };
            return Err(Rejection::new(StatusCode::NOT_FOUND, format!("no such path; {index}")));
        };
        if allowed.split(", ").any(|allowed| allowed == method.as_str()) {
            return Ok(*route);
        }
        Err(Rejection {
            status: StatusCode::METHOD_NOT_ALLOWED,
            allow: Some(allowed),
            text: format!("{path} supports only {allowed}"),
        })
    }

    /// Returns whether the route changes something.
    pub(super) fn is_change(self) -> bool {
        !matches!(self, Self::Index | Self::Metrics | Self::Status)
    }

    /// Returns the list of requests that clients of this origin may send.
    pub(super) fn index(origin: &ClientOrigin) -> &'static str {
        if *origin == ClientOrigin::Network { INDEX_TCP } else { INDEX }
    }

    /// Returns the request for the daemon; `None` for a route that does not need the daemon.
    pub(super) fn request(self, body: &[u8]) -> Result<Option<ControlRequest>, Rejection> {
        let request = match self {
            Self::Index | Self::Metrics => return Ok(None),
            Self::Status => ControlRequest::Status,
            Self::Rotate => ControlRequest::Rotate,
            Self::Reload => ControlRequest::Reload,
            Self::Flush => ControlRequest::Flush,
            Self::Mark => ControlRequest::Mark(text_line("a mark", body, MARK_BYTES_MAX)?),
            Self::Snapshot => ControlRequest::Snapshot(snapshot_window(body)?),
            Self::LogLevel => ControlRequest::Log(text_line("a log filter", body, FILTER_BYTES_MAX)?),
        };
        Ok(Some(request))
    }
}

/// Maximum length of the time after the request that a snapshot can cover. Until this time has
/// passed, the snapshot is incomplete, and further requests join it. It equals the length of the
/// longest episode of a rule.
const SNAPSHOT_AFTER_MAX: Duration = Duration::from_secs(600);

/// The body of a request for a snapshot.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotBody {
    pub(super) last: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

fn snapshot_window(body: &[u8]) -> Result<SnapshotWindow, Rejection> {
    let invalid = |why: String| Rejection::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    let body: SnapshotBody = serde_json::from_slice(body)
        .map_err(|error| invalid(format!("the body must be like {{\"last\":\"30s\"}}: {error}")))?;
    let length = |key: &str, text: &str| {
        duration_argument(text).map_err(|error| invalid(format!("{key} = \"{text}\": {error}")))
    };
    let reason = if body.reason.is_empty() {
        String::new()
    } else {
        text_line("a reason", body.reason.as_bytes(), REASON_BYTES_MAX)?
    };
    let after = body.after.as_deref().map(|after| length("after", after)).transpose()?;
    if after.is_some_and(|after| after > SNAPSHOT_AFTER_MAX) {
        return Err(invalid(format!("after may be {} s at most", SNAPSHOT_AFTER_MAX.as_secs())));
    }
    Ok(SnapshotWindow { last: length("last", &body.last)?, after: after.unwrap_or_default(), reason })
}

/// Returns a body as one line of text, without the line end that tools append.
fn text_line(what: &str, body: &[u8], bytes_max: usize) -> Result<String, Rejection> {
    let invalid = |why: &str| {
        Rejection::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{what} must be one line of text: {why}"))
    };
    let text = std::str::from_utf8(body).map_err(|_| invalid("it is not UTF-8"))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    if text.trim().is_empty() {
        return Err(invalid("it is empty"));
    }
    if text.len() > bytes_max {
        return Err(invalid(&format!("it has {} bytes, the limit is {bytes_max}", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid("it has control characters, such as a line end or a tab"));
    }
    Ok(text.to_owned())
}

/// Checks whether a client may change something. Root, the recorder's account and members of the
/// recorder's group may change something.
pub(super) fn may_change(origin: &ClientOrigin, (user, group): (u32, u32)) -> Result<(), Rejection> {
    match origin {
        ClientOrigin::Local(peer)
            if peer.user == 0 || peer.user == user || peer.group == group || peer.groups.contains(&group) =>
        {
            Ok(())
        }
        _ => Err(Rejection::new(
            StatusCode::FORBIDDEN,
            format!("only root, user {user} and members of group {group} may do this; others may only read"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: u32, group: u32, groups: &[u32]) -> ClientOrigin {
        ClientOrigin::Local(PeerCredentials { user, group, groups: groups.to_vec(), process: Some(1) })
    }

    // Proves that each path accepts its methods, that the answer to any other method lists the
    // accepted methods, and that TCP serves only metrics.
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
            let over_tcp = Route::find(&Method::GET, path, &ClientOrigin::Network);
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

    // Proves that a mark must be one line of text within the limit.
    #[test]
    fn marks_are_one_line() {
        let mark = |body: &[u8]| Route::Mark.request(body);
        let text = |body: &[u8]| match mark(body) {
            Ok(Some(ControlRequest::Mark(text))) => text,
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
        assert_eq!(Route::Rotate.request(b"whatever").unwrap(), Some(ControlRequest::Rotate));
    }

    // Proves that only root, the recorder's account and its group may change something.
    #[test]
    fn changes_need_permission() {
        let own = (990, 980);
        for may in [peer(0, 5, &[]), peer(990, 5, &[]), peer(1000, 980, &[]), peer(1000, 5, &[4, 980])] {
            assert!(may_change(&may, own).is_ok(), "{may:?}");
        }
        for may_not in [peer(1000, 1000, &[27]), ClientOrigin::Network] {
            let rejection = may_change(&may_not, own).unwrap_err();
            assert!(rejection.status == StatusCode::FORBIDDEN && rejection.text.contains("group 980"));
        }
        let reads = Route::ALL.map(|(_, _, route)| route).into_iter().filter(|route| !route.is_change());
        assert_eq!(reads.count(), 3);
    }
}
