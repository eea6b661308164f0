//! The shapes of secrets: strings that look random, such as tokens and keys, and user information
//! in URLs.

/// Minimum length of a string of letters and digits that may be random.
const RANDOM_BYTES_MIN: usize = 16;
/// Length from which fewer irregular pairs are enough, because few names are that long.
const LONG_BYTES_MIN: usize = 20;
/// Minimum length of a random string with separators, such as base64.
const JOINED_BYTES_MIN: usize = 24;
/// Minimum number of different characters of a random string.
const DIFFERENT_MIN: usize = 8;
/// Minimum number of digits of a hexadecimal string, with or without separators.
const HEXADECIMAL_MIN: usize = 32;
/// Minimum length of a string of letters of one case. No word is that long.
const ONE_CASE_BYTES_MIN: usize = 32;
/// Minimum number of characters after the prefix of a token.
const AFTER_PREFIX_MIN: usize = 8;
/// Prefixes of tokens that well-known services issue.
const TOKEN_PREFIXES: &[&[u8]] = &[
    b"ghp_",
    b"gho_",
    b"ghs_",
    b"ghu_",
    b"ghr_",
    b"github_pat_",
    b"glpat-",
    b"gldt-",
    b"glrt-",
    b"sk-",
    b"sk_live_",
    b"sk_test_",
    b"rk_live_",
    b"pk_live_",
    b"xoxb-",
    b"xoxp-",
    b"xoxa-",
    b"xoxs-",
    b"xapp-",
    b"AKIA",
    b"ASIA",
    b"AIza",
    b"ya29.",
    b"eyJ",
    b"hvs.",
    b"hvb.",
    b"SG.",
    b"dop_v1_",
    b"npm_",
    b"pypi-",
    b"shpat_",
    b"sq0",
    b"whsec_",
    b"NRAK-",
    b"AGE-SECRET-",
    b"hf_",
    b"tskey-",
    b"dckr_pat_",
];
/// Lengths of passwords that are recognized by their characters.
const PASSWORD_BYTES_MIN: usize = 6;
const PASSWORD_BYTES_MAX: usize = 64;

/// Returns whether a string is a token of a well-known service, or looks random.
pub(super) fn is_random(text: &[u8]) -> bool {
    is_token(text) || looks_random(text)
}

/// Returns whether a string with slashes is base64 and not a path.
pub(super) fn is_base64(text: &[u8]) -> bool {
    let has_own = text.iter().any(|byte| b"/+".contains(byte));
    let is_possible = text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/+".contains(byte));
    has_own && is_possible && text.len() >= JOINED_BYTES_MIN && irregular_pairs(text) * 10 >= 3 * text.len()
}

/// Returns whether a word consists of characters as in generated passwords.
pub(super) fn is_like_password(word: &[u8]) -> bool {
    if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&word.len())
        || word.iter().any(|byte| b"/=:,@\"'`()[]{}<>|\\;".contains(byte))
    {
        return false;
    }
    let has = |test: fn(&u8) -> bool| word.iter().any(test);
    let (lower, upper, digit) =
        (has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase), has(u8::is_ascii_digit));
    let has_special = word.iter().any(|byte| b"!$%^&*#?~+".contains(byte) || !byte.is_ascii());
    let is_name = word.contains(&b'.') && !has_special;
    !is_name && digit && (lower || upper) && (has_special || (lower && upper))
}

/// Returns whether a word has letters and digits, and is no path, address or setting.
pub(super) fn is_mixed(word: &[u8]) -> bool {
    (PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&word.len())
        && word.iter().any(u8::is_ascii_alphabetic)
        && word.iter().any(u8::is_ascii_digit)
        && !word.iter().any(|byte| b"/=:.,".contains(byte))
}

/// Returns whether a word at any place has the characters of a strong password.
pub(super) fn is_strong_password(word: &[u8]) -> bool {
    let has = |test: fn(&u8) -> bool| word.iter().any(test);
    is_like_password(word)
        && word.len() > PASSWORD_BYTES_MIN
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && word.iter().any(|byte| b"!$^&*#".contains(byte))
}

/// Returns the begin and the end of user information, which ends before an `@`.
pub(super) fn user_information(word: &[u8]) -> Option<(usize, usize)> {
    let last_at = word.iter().rposition(|byte| *byte == b'@')?;
    let mut schemes = word.windows(3).enumerate().filter(|(_, part)| *part == b"://").map(|(at, _)| at + 3);
    if let Some(found) = schemes.find_map(|begin| in_url(word, begin, last_at)) {
        return Some(found);
    }
    let begin = match word.iter().take(last_at).position(|byte| b"=:".contains(byte)) {
        Some(at) if word.get(at) == Some(&b'=') => at + 1,
        _ => 0,
    };
    let user = word.get(begin..last_at)?;
    if word.windows(3).any(|part| part == b"://") {
        return None;
    }
    let has_password = user.iter().position(|byte| *byte == b':').is_some_and(|at| at + 1 < user.len());
    (has_password || is_oracle_login(user, word.get(last_at + 1..)?)).then_some((begin, last_at))
}

/// Returns the user information of the URL whose scheme ends at `begin`.
fn in_url(word: &[u8], begin: usize, last_at: usize) -> Option<(usize, usize)> {
    let rest = word.get(begin..)?;
    // User information should have no such characters, but some programs do not escape passwords.
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let authority = rest.get(..end)?;
    if let Some(at) = authority.iter().rposition(|byte| *byte == b'@') {
        return Some((begin, begin + at));
    }
    let user = word.get(begin..last_at)?;
    let is_password = if let Some(colon) = authority.iter().position(|byte| *byte == b':') {
        // The text after the colon is a port, or the begin of a password with a slash.
        !is_port(authority.get(colon + 1..)?)
    } else {
        // A path may contain an `@` before a name or a version, and a query before a host.
        let after = word.get(last_at + 1..)?;
        let is_host = !is_version(after) && after.iter().any(|byte| b".:/".contains(byte));
        is_host && !user.ends_with(b"/") && !user.contains(&b'?')
    };
    is_password.then_some((begin, last_at))
}

fn is_port(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_digit)
        && text.iter().all(|byte| byte.is_ascii_digit() || b"\"'])},;".contains(byte))
}

/// Returns whether this is the version of an image, an action or a package.
fn is_version(text: &[u8]) -> bool {
    match text {
        [b'v', next, ..] => next.is_ascii_digit(),
        [first, ..] => first.is_ascii_digit() || text.starts_with(b"sha256:"),
        [] => true,
    }
}

/// Returns whether this is `user/password` before the name of a database. The names of images and
/// packages have a version after the `@`.
fn is_oracle_login(user: &[u8], after: &[u8]) -> bool {
    let mut parts = user.split(|byte| *byte == b'/');
    let (Some(name), Some(password), None) = (parts.next(), parts.next(), parts.next()) else { return false };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$#\"".contains(byte);
    !name.is_empty() && name.iter().all(is_name) && !password.is_empty() && !is_version(after)
}

fn is_token(text: &[u8]) -> bool {
    let begins = (0..text.len()).filter(|at| {
        at.checked_sub(1).and_then(|before| text.get(before)).is_none_or(|byte| !byte.is_ascii_alphanumeric())
    });
    begins.filter_map(|at| text.get(at..)).any(|rest| {
        let is_of = |prefix: &&&[u8]| rest.starts_with(prefix);
        let is_short = |prefix: &&[u8]| {
            // A short prefix could be the begin of a word.
            let least = if prefix.len() < 4 { 2 * AFTER_PREFIX_MIN } else { AFTER_PREFIX_MIN };
            rest.len() < prefix.len() + least
        };
        TOKEN_PREFIXES.iter().find(is_of).is_some_and(|prefix| !is_short(prefix))
    })
}

fn looks_random(text: &[u8]) -> bool {
    let pieces = || text.split(|byte| !byte.is_ascii_alphanumeric());
    let length: usize = pieces().map(<[u8]>::len).sum();
    if length < RANDOM_BYTES_MIN {
        return false;
    }
    if length >= HEXADECIMAL_MIN && pieces().all(|piece| piece.iter().all(u8::is_ascii_hexdigit)) {
        return true;
    }
    let irregular: usize = pieces().map(irregular_pairs).sum();
    (length >= JOINED_BYTES_MIN && irregular * 10 > 3 * length) || pieces().any(is_random_piece)
}

fn is_random_piece(piece: &[u8]) -> bool {
    let is_long = piece.len() >= ONE_CASE_BYTES_MIN;
    if is_long && (piece.iter().all(u8::is_ascii_lowercase) || piece.iter().all(u8::is_ascii_uppercase)) {
        return true;
    }
    // Random letters and digits have such a pair at every second place, and names at every tenth.
    // Letters alone may be a name with abbreviations.
    let factor = match piece.len() {
        _ if piece.iter().all(u8::is_ascii_alphabetic) => 4,
        RANDOM_BYTES_MIN..LONG_BYTES_MIN => 5,
        _ => 7,
    };
    piece.len() >= RANDOM_BYTES_MIN
        && irregular_pairs(piece) * factor >= piece.len()
        && different(piece) >= DIFFERENT_MIN
}

/// Returns the number of neighbours that are rare in names: a letter and a digit, two capitals in a
/// word with small letters, and each second capital after a small letter.
fn irregular_pairs(piece: &[u8]) -> usize {
    let has_lower = piece.iter().any(u8::is_ascii_lowercase);
    let (mut pairs, mut humps) = (0, 0);
    for pair in piece.windows(2) {
        let [one, next] = pair else { continue };
        let (letter, next_letter) = (one.is_ascii_alphabetic(), next.is_ascii_alphabetic());
        let is_mixed = (letter && next.is_ascii_digit()) || (one.is_ascii_digit() && next_letter);
        let are_capitals = has_lower && one.is_ascii_uppercase() && next.is_ascii_uppercase();
        if is_mixed || are_capitals {
            pairs += 1;
        } else if one.is_ascii_lowercase() && next.is_ascii_uppercase() {
            humps += 1;
        }
    }
    pairs + humps / 2
}

fn different(piece: &[u8]) -> usize {
    let mut seen = [false; 256];
    for byte in piece {
        if let Some(place) = seen.get_mut(usize::from(*byte)) {
            *place = true;
        }
    }
    seen.iter().filter(|seen| **seen).count()
}

#[cfg(test)]
mod tests {
    use proptest::strategy::{Strategy as _, ValueTree as _};

    use super::*;

    // Proves that keys and tokens look random, and that names, versions and times do not.
    #[test]
    fn random_strings_are_recognized() {
        for text in [
            "x7Gh2Kq9LmPz4RtY",
            "5d41402abc4b2a76b9719d911017c592",
            "550e8400-e29b-41d4-a716-446655440000",
            "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "JBSWY3DPEHPK3PXPJBSWY3DP",
            "ghp_abcdefgh12",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_g",
        ] {
            assert!(is_random(text.as_bytes()), "{text}");
        }
        for text in [
            "AbstractAutowireCapableBeanFactory",
            "app-1.24.0-SNAPSHOT.jar",
            "3.10.0-1160.el7.x86_64",
            "20231114T231320Z",
            "nginx-deployment-66b6c48dd5-7xk2p",
            "systemd-networkd-wait-online",
            "qemu-system-x86_64",
            "ip-10-0-0-1.eu-west-1.compute.internal",
            "SomeHTTPServerExample",
            "sk-learn-tests",
        ] {
            assert!(!is_random(text.as_bytes()), "{text}");
        }
        assert!(is_base64(b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"));
        assert!(!is_base64(b"/usr/lib/jvm/java/bin/Server/Main") && !is_base64(b"a/b+c"));
    }

    // Proves that nearly all random strings of each alphabet are recognized, from 20 characters on.
    #[test]
    fn random_strings_of_each_alphabet_are_recognized() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let alphabets = [
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 20),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 32),
            ("abcdefghijklmnopqrstuvwxyz0123456789", 20),
            ("0123456789abcdef", 24),
        ];
        for (alphabet, length) in alphabets {
            let letter = proptest::sample::select(alphabet.as_bytes());
            let strategy = proptest::collection::vec(letter, length..64);
            let found = (0..1000).filter(|_| is_random(&strategy.new_tree(&mut runner).unwrap().current()));
            let count = found.count();
            assert!(count >= 990, "{alphabet}: {count}");
        }
    }

    // Proves that user information is found in URLs and logins, and not in addresses and images.
    #[test]
    fn user_information_is_found() {
        for (word, user) in [
            ("https://bob:x@h/a", "bob:x"),
            ("redis://:x@h:6379/0", ":x"),
            ("https://token@github.com/a.git", "token"),
            ("mysql://u:a/b@h/db", "u:a/b"),
            ("u:p@tcp(h:3306)/db", "u:p"),
            ("scott/tiger@db", "scott/tiger"),
            ("--dsn=u:p@h", "u:p"),
            ("http://a/b,amqp://u:p@h", "u:p"),
            ("u:p@ss@h", "u:p@ss"),
        ] {
            let found = user_information(word.as_bytes()).map(|(begin, end)| &word[begin..end]);
            assert_eq!(found, Some(user), "{word}");
        }
        for word in [
            "git+https://github.com/a/b.git@v1.0",
            "https://github.com/a/b@main",
            "git@github.com:a/b",
            "https://h/@user/x",
            "http://h:80/?mail=a@b.c",
            "actions/checkout@v4",
            "@scope/pkg@1.2",
            "bob@example.com",
            "root@h:/srv",
        ] {
            assert_eq!(user_information(word.as_bytes()), None, "{word}");
        }
    }
}
