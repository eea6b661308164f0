//! The settings for messages about shipped segments. The settings are in the table `nats` of the
//! configuration.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Default subject, without the token of the host.
const SUBJECT: &str = "flatcap.segments";
/// Default directory of the outbox. It is in the state directory of the unit flatcap-ship.service.
const OUTBOX: &str = "/var/lib/flatcap-ship/outbox";
/// Maximum length of a subject without the token of the host, in bytes.
// Servers accept about 4000 bytes in total.
const SUBJECT_BYTES_MAX: usize = 200;
/// Maximum number of servers in a URL.
// Clusters have fewer servers.
const SERVERS_MAX: usize = 16;
/// The error for a configuration with the table `nats` in a program that was built without support
/// for messages.
pub(crate) const NOT_BUILT_IN: &str = "this flatcap-ship is built without messages: build it with \
    `cargo build --release -p flatcap-ship --features nats`, or remove `nats`";

/// The checked settings for messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NatsSettings {
    /// The URLs of the servers, separated by commas. The URLs contain no credentials.
    pub(crate) url: String,
    /// The subject without the token of the host.
    pub(crate) subject: String,
    /// The file with the credentials. The settings never contain the credentials themselves.
    pub(crate) credentials: Option<PathBuf>,
    /// The directory with the names of unsent messages.
    pub(crate) outbox: PathBuf,
}

/// The table `nats` as it is written in a configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NatsTable {
    #[serde(deserialize_with = "servers")]
    url: String,
    #[serde(default = "default_subject", deserialize_with = "subject")]
    subject: String,
    #[serde(default)]
    credentials: PathBuf,
    #[serde(default)]
    outbox: PathBuf,
}

/// Reads the table `nats` of a configuration file. An empty URL in a later configuration file
/// cancels the table `nats` of an earlier file.
#[expect(clippy::option_option, reason = "as in FileSettings")]
pub(crate) fn nats<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<NatsSettings>>, D::Error> {
    let NatsTable { url, subject, credentials, outbox } = NatsTable::deserialize(deserializer)?;
    if url.is_empty() {
        return Ok(Some(None));
    }
    if cfg!(not(feature = "nats")) {
        return Err(de::Error::custom(NOT_BUILT_IN));
    }
    let path = |path: PathBuf| Some(path).filter(|path| !path.as_os_str().is_empty());
    let outbox = path(outbox).unwrap_or_else(|| PathBuf::from(OUTBOX));
    Ok(Some(Some(NatsSettings { url, subject, credentials: path(credentials), outbox })))
}

/// Returns the last token of a host's subject, which is made of the host's identity. `_` replaces
/// all characters other than letters, digits, `_` and `-`, for example the dots that separate
/// tokens. If a character is replaced, a checksum is added, so that the tokens of two hosts differ.
pub(crate) fn host_token(identity: &str) -> String {
    let token: String = identity.chars().map(|c| if is_of_token(c) { c } else { '_' }).collect();
    if token == identity && !token.is_empty() {
        token
    } else {
        format!("{token}-{:08x}", crc32fast::hash(identity.as_bytes()))
    }
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn default_subject() -> String {
    SUBJECT.to_owned()
}

fn subject<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_token = |token: &str| !token.is_empty() && token.chars().all(is_of_token);
    if text.len() > SUBJECT_BYTES_MAX || !text.split('.').all(is_token) {
        return Err(de::Error::custom(format!(
            "not a subject: tokens of letters, digits, `_` and `-`, separated by dots, at most {SUBJECT_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.contains('@') {
        // Leave the URL out of the error, because it contains a password.
        return Err(de::Error::custom("credentials do not belong in a URL: name a file as `credentials`"));
    }
    if !text.is_empty() && (text.split(',').count() > SERVERS_MAX || !text.split(',').all(is_server)) {
        return Err(de::Error::custom(format!(
            "{text:?}: servers are nats://host:port or tls://host:port, at most {SERVERS_MAX}, separated by commas"
        )));
    }
    Ok(text)
}

/// Returns whether a string is the URL of a server.
fn is_server(text: &str) -> bool {
    let Some(address) = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")) else {
        return false;
    };
    let (host, port) = match address.rsplit_once(':') {
        // The last colon may be part of an IPv6 address.
        Some((host, port)) if !port.contains(']') => (host, port.parse::<u16>().is_ok_and(|port| port > 0)),
        _ => (address, true),
    };
    let is_of_name = |c: char| is_of_token(c) || c == '.';
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_of_name),
    };
    is_host && port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_files::FileSettings;

    fn table(text: &str) -> Result<NatsTable, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    // Proves that mistakes in the table are refused with the valid values, and that no error
    // contains a password.
    #[test]
    fn mistakes_are_named() {
        for url in [
            "",
            "nats://bus",
            "tls://bus.example.com:4222",
            "nats://a:1,tls://[::1]:4222,nats://[::1]",
            "nats://127.0.0.1:4222",
        ] {
            assert_eq!(table(&format!("url = {url:?}")).unwrap().url, url);
        }
        let servers = vec!["nats://a"; SERVERS_MAX + 1].join(",");
        for url in [
            "bus",
            "ws://bus",
            "nats://",
            "nats://a:x",
            "nats://a:0",
            "nats://a/b",
            "nats://a b",
            "nats://a,",
            "nats://[::1",
            "nats://::1",
            "tls://a?x=y",
            &servers,
        ] {
            let error = table(&format!("url = {url:?}")).unwrap_err();
            assert!(error.contains("nats://host:port"), "{url}: {error}");
        }
        for url in ["nats://me:hunter2@bus:4222", "hunter2@bus"] {
            let error = table(&format!("url = {url:?}")).unwrap_err();
            assert!(error.contains("`credentials`") && !error.contains("hunter2"), "{error}");
        }
        for subject in
            ["", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\tb", "\u{e4}", "$JS.API", &"a".repeat(201)]
        {
            let error = table(&format!("url = \"\"\nsubject = {subject:?}")).unwrap_err();
            assert!(error.contains("not a subject"), "{subject}: {error}");
        }
        assert!(table("url = \"\"\npassword = \"hunter2\"").unwrap_err().contains("unknown field"));
        assert!(table("subject = \"a\"").unwrap_err().contains("missing field"));
    }

    // Proves that the defaults match docs/LAKE.md and that an empty URL disables the table. A
    // program that is built without support for messages refuses the table. The error has the line
    // of the table, and the command that builds a program with messages.
    #[test]
    fn the_table_is_read() {
        let read = |text: &str| FileSettings::parse(text).map(|settings| settings.nats);
        let text = include_str!("../../../docs/LAKE.md");
        let (_, example) = text.split_once("```toml\n[ship.nats]\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        assert_eq!(read("[ship.nats]\nurl = \"\"\n").unwrap(), Some(None));
        assert_eq!(read("[ship]\n").unwrap(), None);
        let written = read(&format!("[ship.nats]\n{example}"));
        let short = read("ship.nats = { url = \"nats://bus\" }");
        if cfg!(feature = "nats") {
            let (written, short) = (written.unwrap().unwrap().unwrap(), short.unwrap().unwrap().unwrap());
            assert_eq!((&short.subject, &short.outbox), (&written.subject, &written.outbox));
            assert_eq!((short.subject.as_str(), short.outbox.to_str()), (SUBJECT, Some(OUTBOX)));
            assert!(short.credentials.is_none() && written.credentials.is_some());
        } else {
            let error = written.unwrap_err().to_string();
            assert!(error.contains("line 1") && error.contains("--features nats"), "{error}");
            assert!(short.is_err());
        }
    }

    // Proves that no identity changes the structure of a subject, and that two identities never
    // have the same token.
    #[test]
    fn hosts_are_one_token() {
        let plain = "0123456789abcdef0123456789abcdef";
        assert_eq!((host_token(plain).as_str(), host_token("web-1").as_str()), (plain, "web-1"));
        assert_eq!(host_token("web-1.example.com"), "web-1_example_com-a8652cfc");
        let hostile = ["", ".", "a.b", "a_b", "a*", "a>", "a b", "a\r\nPUB x", "\u{e4}", "a\0", "*", ">"];
        let tokens: std::collections::BTreeSet<String> =
            hostile.iter().map(|host| host_token(host)).collect();
        assert_eq!(tokens.len(), hostile.len(), "{tokens:?}");
        assert!(tokens.iter().all(|token| !token.is_empty() && token.chars().all(is_of_token)), "{tokens:?}");
    }
}
