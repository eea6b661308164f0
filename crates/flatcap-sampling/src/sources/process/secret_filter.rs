//! Removes secrets from command lines. No rule can find every secret, so a part that may be one is
//! removed. A command line that shows too little is better than a recording with a password.
//!
//! These parts are replaced by `***`:
//!
//! - Values of options and variables that have the name of a secret (`--db-password x`,
//!   `API_KEY=x`). In a script, all text after such a name.
//!
//! - User information in URLs and in `user:password@host`.
//!
//! - Passwords that follow a user name (`-u name:password`, `-U name%password`).
//!
//! - Values of the options with which known programs take a secret (`sshpass -p x`).
//!
//! - Long strings that look random, such as tokens and keys.

use super::secret_names::{PROGRAM_RULES, RuleSecret, ends_with_name, first_name_end};
use super::secret_shapes::{
    is_base64, is_like_password, is_mixed, is_random, is_strong_password, user_information,
};
use super::texts::TEXT_BYTES;

/// The text that replaces a removed part.
const MARK: &[u8] = b"***";
/// Size of the filtered text. It is larger than the recorded text, so that the recorded text can
/// end between two characters.
const FILTERED_BYTES: usize = TEXT_BYTES + 8;
/// Options whose value may be a user name and a password.
const USER_OPTIONS: &[&[u8]] = &[
    b"-u",
    b"-U",
    b"--user",
    b"-user",
    b"--username",
    b"--login",
    b"--proxy-user",
    b"--proxy-username",
    b"--cert",
    b"--proxy-cert",
    b"--ftp-user",
    b"--http-user",
];
/// Separators of a user name and a password.
const USER_SEPARATORS: &[u8] = b":%";
/// Characters around a word of a script that do not belong to the word.
const QUOTES: &[u8] = b"\"'`$(){}[]<>;|&,\\";
/// Words between the name of a secret and the secret.
const SCHEMES: &[&[u8]] = &[b"bearer", b"basic", b"token", b"digest", b"negotiate", b"apikey", b"is", b"to"];
/// Strings after which all may be secret: begins of here-documents, here-strings and PEM keys.
const TEXT_BEGINS: &[&[u8]] = &[b"<<", b"-----BEGIN"];
/// Parts of URLs before a secret path.
const HOOKS: &[&[u8]] = &[b"hooks.slack.com/", b"/webhooks/", b"/webhook/", b"api.telegram.org/bot"];
/// Short options that often have a password.
const PASSWORD_OPTIONS: &[u8] = b"pPwWak";

/// The role of the next word, as the words before it state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextWord {
    Ordinary,
    /// It is a secret.
    Secret,
    /// It is a secret, unless it is an option.
    SecretUnlessOption,
    /// It is a user name, and a password may follow in the same word.
    User,
    /// It is the value of an unknown short option.
    Value,
    /// It is the value of a short option that often has a password.
    LikelyPassword,
}

/// The result of writing a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Whole,
    /// A secret in the word was replaced.
    Replaced,
    /// All that follows is secret.
    RestIsSecret,
}

/// The filtered text.
#[derive(Debug)]
pub(super) struct FilteredText {
    bytes: [u8; FILTERED_BYTES],
    length: usize,
}

#[derive(Debug)]
struct SecretFilter {
    text: FilteredText,
    next: NextWord,
    /// Letters of short options whose values are secret, one bit per letter.
    letters: u64,
    /// The rules whose program is in an earlier word, one bit per rule.
    programs: u128,
}

const _: () = assert!(PROGRAM_RULES.len() <= 128);

/// Returns the begin of a command line without secrets, and with spaces between the arguments,
/// which end with zero bytes. `is_cut` states whether the command line continues after `line`. The
/// work ends as soon as the text is full.
pub(super) fn scrubbed(line: &[u8], is_cut: bool) -> FilteredText {
    let text = FilteredText { bytes: [0; FILTERED_BYTES], length: 0 };
    let mut filter = SecretFilter { text, next: NextWord::Ordinary, letters: 0, programs: 0 };
    // The last word of a command line that continues is not complete. Its part could look ordinary.
    let end = line.iter().rposition(|byte| *byte == 0 || byte.is_ascii_whitespace());
    let line = if is_cut { line.get(..end.unwrap_or(0)).unwrap_or_default() } else { line };
    for (number, argument) in line.split(|byte| *byte == 0).enumerate() {
        if filter.text.is_full() {
            break;
        }
        if number > 0 {
            filter.text.push(b" ");
        }
        if filter.argument(argument, number == 0) == Written::RestIsSecret {
            filter.text.push(b" ");
            filter.text.push(MARK);
            return filter.text;
        }
    }
    if is_cut {
        filter.text.push(b" ");
        filter.text.push(MARK);
    }
    filter.text
}

impl FilteredText {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn is_full(&self) -> bool {
        self.length == FILTERED_BYTES
    }

    /// Appends the part that fits.
    fn push(&mut self, part: &[u8]) {
        let free = self.bytes.get_mut(self.length..).unwrap_or_default();
        let length = part.len().min(free.len());
        if let (Some(place), Some(part)) = (free.get_mut(..length), part.get(..length)) {
            place.copy_from_slice(part);
            self.length += length;
        }
    }
}

impl SecretFilter {
    fn argument(&mut self, argument: &[u8], is_first: bool) -> Written {
        match self.next {
            NextWord::Secret => return self.secret(argument),
            // The secret may consist of several words.
            NextWord::SecretUnlessOption if !argument.starts_with(b"-") => return self.secret(argument),
            _ => {}
        }
        if argument.iter().any(u8::is_ascii_whitespace) {
            self.script(argument, is_first)
        } else {
            self.word(argument, is_first)
        }
    }

    /// Writes an argument in the place of a secret.
    fn secret(&mut self, argument: &[u8]) -> Written {
        let is_separator = argument.iter().all(|byte| b"=:\"'".contains(byte));
        let bare = trimmed(argument).trim_ascii();
        if is_separator || SCHEMES.iter().any(|scheme| bare.eq_ignore_ascii_case(scheme)) {
            self.text.push(argument);
            return Written::Whole;
        }
        // A word in the place of a secret may be the name of another secret.
        let is_name = ends_with_name(bare) || (bare.starts_with(b"-") && first_name_end(bare).is_some());
        self.next = if is_name { NextWord::Secret } else { NextWord::Ordinary };
        self.text.push(MARK);
        Written::Replaced
    }

    /// Writes an argument of several words, such as a script or the title of a process. It is not
    /// known where a secret in it ends, so nothing after it is written.
    fn script(&mut self, script: &[u8], is_first: bool) -> Written {
        let mut rest = script;
        let mut is_first = is_first;
        while !rest.is_empty() && !self.text.is_full() {
            let blanks = rest.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(rest.len());
            let (blank, after) = rest.split_at_checked(blanks).unwrap_or((rest, b""));
            self.text.push(blank);
            let end = after.iter().position(u8::is_ascii_whitespace).unwrap_or(after.len());
            let (word, after) = after.split_at_checked(end).unwrap_or((after, b""));
            rest = after;
            if word.is_empty() {
                break;
            }
            let is_secret = match self.next {
                NextWord::Secret => true,
                NextWord::SecretUnlessOption => !trimmed(word).starts_with(b"-"),
                _ => false,
            };
            if is_secret {
                self.next = NextWord::Ordinary;
                self.text.push(MARK);
                return Written::Replaced;
            }
            let end_of = |begin: &&[u8]| {
                word.windows(begin.len()).position(|part| part == *begin).map(|at| at + begin.len())
            };
            if let Some(end) = TEXT_BEGINS.iter().find_map(end_of) {
                return self.replaced(word.get(..end).unwrap_or_default());
            }
            let written = self.word(word, is_first);
            is_first = false;
            if written != Written::Whole {
                return written;
            }
            if feeds_pipe(word, rest) {
                self.text.push(b" ");
                self.text.push(MARK);
                return Written::Replaced;
            }
        }
        Written::Whole
    }

    /// Writes a word without blanks.
    fn word(&mut self, word: &[u8], is_first: bool) -> Written {
        let next = std::mem::replace(&mut self.next, NextWord::Ordinary);
        let bare = trimmed(word);
        let written = if next == NextWord::User && !bare.starts_with(b"-") {
            self.user(word)
        } else if (next == NextWord::Value && is_like_password(bare))
            || (next == NextWord::LikelyPassword && is_mixed(bare))
        {
            Some(self.replaced(b""))
        } else {
            None
        };
        let written =
            written.or_else(|| self.option(word, bare)).unwrap_or_else(|| self.value(word, is_first));
        if self.applies_rule(bare) { Written::RestIsSecret } else { written }
    }

    /// Writes a part of a word, and the mark after it.
    fn replaced(&mut self, before: &[u8]) -> Written {
        self.plain(before);
        self.text.push(MARK);
        Written::Replaced
    }

    /// Writes a user name without the password that follows. Returns `None` without a password.
    fn user(&mut self, word: &[u8]) -> Option<Written> {
        let at = word.iter().position(|byte| USER_SEPARATORS.contains(byte))?;
        let (user, password) = word.split_at_checked(at + 1)?;
        // Some services accept a token as the user name, and no password.
        let is_token = [&b""[..], b"x", b"x-oauth-basic", b"api_token"].contains(&trimmed(password));
        Some(self.replaced(if is_token { b"" } else { user }))
    }

    /// Writes a short option that has a secret, or a user name with a password. Returns `None` for
    /// other words.
    fn option(&mut self, word: &[u8], bare: &[u8]) -> Option<Written> {
        if matches!(bare, b"/p" | b"/P") {
            self.next = NextWord::SecretUnlessOption;
            self.text.push(word);
            return Some(Written::Whole);
        }
        if let Some(rest) = bare.strip_prefix(b"/p:").or_else(|| bare.strip_prefix(b"/P:"))
            && first_name_end(rest).is_none()
        {
            return Some(self.replaced(b"/p:"));
        }
        let (head, value) = bare.split_at_checked(2)?;
        if let [b'-', letter] = head
            && self.has_letter(*letter)
        {
            self.text.push(head);
            // The word may also be a long option, as `-password`.
            if trimmed(value).is_empty() || first_name_end(bare).is_some() {
                self.next = NextWord::Secret;
            }
            if trimmed(value).is_empty() {
                return Some(Written::Whole);
            }
            self.text.push(MARK);
            return Some(Written::Replaced);
        }
        if USER_OPTIONS.contains(&bare) {
            self.next = NextWord::User;
            self.text.push(word);
            return Some(Written::Whole);
        }
        if let Some(value) = USER_OPTIONS.iter().find_map(|option| attached_value(bare, option))
            && value.iter().any(|byte| USER_SEPARATORS.contains(byte))
        {
            let begin = bare.len() - value.len();
            self.text.push(bare.get(..begin).unwrap_or_default());
            return self.user(value);
        }
        let [b'-', letter] = head else { return None };
        if !letter.is_ascii_alphabetic() {
            return None;
        }
        let last = value.last().copied().unwrap_or_default();
        if value.is_empty() {
            let is_likely = PASSWORD_OPTIONS.contains(letter);
            self.next = if is_likely { NextWord::LikelyPassword } else { NextWord::Value };
        } else if value.len() < 6 && value.iter().all(u8::is_ascii_alphabetic) && self.has_letter(last) {
            self.next = NextWord::Secret;
        } else if PASSWORD_OPTIONS.contains(letter) && is_like_password(trimmed(value)) {
            self.text.push(head);
            self.text.push(MARK);
            return Some(Written::Replaced);
        } else {
            return None;
        }
        self.text.push(word);
        Some(Written::Whole)
    }

    fn has_letter(&self, letter: u8) -> bool {
        letter.is_ascii_alphabetic() && self.letters & (1 << (letter - b'A')) != 0
    }

    /// Writes a word that is no short option: a value, a long option, or a variable.
    fn value(&mut self, word: &[u8], is_first: bool) -> Written {
        let mut rest = word;
        while let Some((begin, end)) = user_information(rest) {
            let before = rest.get(..begin).unwrap_or_default();
            if first_name_end(before).is_some() {
                break;
            }
            self.replaced(before);
            // The rest may contain another URL.
            rest = rest.get(end..).unwrap_or_default();
        }
        let hook_end = HOOKS.iter().find_map(|hook| {
            rest.windows(hook.len()).position(|part| part == *hook).map(|at| at + hook.len())
        });
        if let Some(before) = hook_end.and_then(|end| rest.get(..end)) {
            return self.replaced(before);
        }
        self.named(rest, is_first && rest.len() == word.len()).unwrap_or_else(|| {
            self.plain(rest);
            Written::Whole
        })
    }

    /// Writes a word that contains the name of a secret. Returns `None` for other words.
    fn named(&mut self, word: &[u8], is_first: bool) -> Option<Written> {
        let name_end = first_name_end(word)?;
        let (name, rest) = word.split_at_checked(name_end)?;
        // Random letters may contain a name.
        let run_end = rest.iter().position(|byte| !is_in_run(*byte)).unwrap_or(rest.len()) + name_end;
        let run_begin = name.iter().rposition(|byte| !is_in_run(*byte)).map_or(0, |at| at + 1);
        if is_random(word.get(run_begin..run_end)?) {
            self.plain(word.get(..run_end)?);
            return Some(self.value(word.get(run_end..)?, is_first));
        }
        let bare = trimmed(word);
        let is_option = bare.starts_with(b"-");
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        let mut after = rest.iter().position(|byte| !is_name(byte));
        if after.and_then(|at| rest.get(at)) == Some(&b'/') {
            // A path. It has a value only after a separator.
            after = rest.iter().position(|byte| b"=:".contains(byte));
        }
        let Some(at) = after else {
            // `/password` may be an option, and `//host/:_authToken` a setting.
            let is_path = bare.get(1..).is_some_and(|rest| rest.contains(&b'/'))
                && !bare.iter().any(|byte| b":=".contains(byte))
                || bare.starts_with(b"~")
                || bare.ends_with(b".key");
            if !is_option && (is_path || is_first || !ends_with_name(bare)) {
                return None;
            }
            self.next = if is_option { NextWord::Secret } else { NextWord::SecretUnlessOption };
            self.plain(word);
            return Some(Written::Whole);
        };
        let (more, value) = rest.split_at_checked(at)?;
        let separators = value.iter().position(|byte| !b"=:\"' ".contains(byte)).unwrap_or(value.len());
        let (separator, value) = value.split_at_checked(separators)?;
        self.plain(name);
        self.plain(more);
        if trimmed(value).is_empty() {
            self.text.push(separator);
            self.text.push(value);
            if !is_first || !separator.is_empty() {
                self.next = NextWord::Secret;
            }
            return Some(Written::Whole);
        }
        self.text.push(separator);
        self.text.push(MARK);
        Some(Written::Replaced)
    }

    /// Writes a part without random strings.
    fn plain(&mut self, part: &[u8]) {
        if is_strong_password(trimmed(part)) {
            self.text.push(MARK);
            return;
        }
        let is_inside = |byte: &u8| is_in_run(*byte) || *byte == b'/';
        let mut rest = part;
        while !rest.is_empty() && !self.text.is_full() {
            let length = rest.iter().position(|byte| !is_inside(byte)).unwrap_or(rest.len());
            let (run, after) = rest.split_at_checked(length).unwrap_or((rest, b""));
            if is_base64(run) {
                self.text.push(MARK);
            } else {
                for (number, segment) in run.split(|byte| *byte == b'/').enumerate() {
                    if number > 0 {
                        self.text.push(b"/");
                    }
                    self.text.push(if is_random(segment) { MARK } else { segment });
                }
            }
            let (separator, after) = after.split_at_checked(1).unwrap_or((after, b""));
            self.text.push(separator);
            rest = after;
        }
    }

    /// Applies the rules of a program that a word names, and the rules that apply after a word.
    /// Returns whether all that follows is secret.
    fn applies_rule(&mut self, bare: &[u8]) -> bool {
        // `kubectl create secret` and similar commands take secrets in any argument.
        if matches!(bare, b"secret" | b"secrets" | b"user-secrets") {
            return true;
        }
        let begin = bare.iter().rposition(|byte| b"/;|&(\"'`=".contains(byte)).map_or(0, |at| at + 1);
        let program = bare.get(begin..).unwrap_or_default();
        let mut is_rest = false;
        for (number, rule) in PROGRAM_RULES.iter().enumerate() {
            let is_known = self.programs & (1 << number) != 0;
            let applies = if is_known {
                rule.applies_after(Some(bare))
            } else if rule.is_of(program) {
                self.programs |= 1 << number;
                rule.applies_after(None)
            } else {
                false
            };
            match rule.secret {
                RuleSecret::Rest => is_rest |= applies,
                RuleSecret::Options(letters) if applies => {
                    for letter in letters {
                        self.letters |= 1 << (letter - b'A');
                    }
                }
                RuleSecret::Options(_) => {}
            }
        }
        is_rest
    }
}

/// Returns whether a character may be a part of a random string.
fn is_in_run(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+_-.~".contains(&byte)
}

/// Returns the value that is a part of an option: `-uVALUE` or `--user=VALUE`.
fn attached_value<'w>(word: &'w [u8], option: &[u8]) -> Option<&'w [u8]> {
    let value = word.strip_prefix(option)?;
    if option.len() == 2 { Some(value) } else { value.strip_prefix(b"=") }
}

/// Returns a word without the quotes around it.
fn trimmed(word: &[u8]) -> &[u8] {
    let is_inside = |byte: &u8| !QUOTES.contains(byte);
    let begin = word.iter().position(is_inside).unwrap_or(word.len());
    let end = word.iter().rposition(is_inside).map_or(begin, |at| at + 1);
    word.get(begin..end).unwrap_or_default()
}

/// Returns whether a command prints its arguments to another program, which may read a secret.
fn feeds_pipe(word: &[u8], rest: &[u8]) -> bool {
    let is_printing = [&b"echo"[..], b"printf", b"print"].iter().any(|name| trimmed(word).ends_with(name));
    is_printing && rest.contains(&b'|')
}
