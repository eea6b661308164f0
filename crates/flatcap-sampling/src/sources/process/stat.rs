//! Parses the files of one process: /proc/PID/stat, io and cgroup.

use crate::sources::text::{self, ABSENT};
use crate::{Incomplete, odd_text};

/// Maximum length of a name, including its terminating zero byte.
pub(super) const NAME_BYTES: usize = 64;

/// The recorded fields of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: [u8; NAME_BYTES],
    pub(super) state: u8,
    pub(super) parent: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) user_time: u64,
    pub(super) system_time: u64,
    pub(super) threads: u64,
    pub(super) start: u64,
    pub(super) virtual_size: u64,
    pub(super) resident_pages: u64,
    pub(super) io_delay: u64,
}

/// Indices of fields of `stat` after the name.
const PARENT: usize = 1;
const MINOR_FAULTS: usize = 7;
const MAJOR_FAULTS: usize = 9;
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const THREADS: usize = 17;
const START: usize = 19;
const VIRTUAL_SIZE: usize = 20;
const RESIDENT: usize = 21;
const IO_DELAY: usize = 39;

/// Parses `stat`. Returns `None` if not even the name can be parsed. If the text contains another
/// pid, the result is marked as incomplete.
pub(super) fn stat(content: &[u8], pid: u32) -> (Option<Stat>, Incomplete) {
    // A text without its newline may lack the last digits of a number.
    let Some(content) = content.strip_suffix(b"\n") else { return (None, Incomplete::CUT) };
    let open = content.iter().position(|byte| *byte == b'(');
    // A name may contain any characters, including closing parentheses. After the name there are
    // only a letter and numbers.
    let close = content.iter().rposition(|byte| *byte == b')');
    let (Some(open), Some(close)) = (open, close) else { return (None, Incomplete::CUT) };
    let number = content.get(..open).unwrap_or_default().strip_suffix(b" ").and_then(text::number);
    let name = content.get(open + 1..close).and_then(text::name::<NAME_BYTES>);
    let Some(name) = name else { return (None, odd_text::unreadable(content)) };

    let mut incomplete = Incomplete::NONE;
    if number != Some(pid.into()) {
        incomplete |= odd_text::unreadable(content);
    }
    let mut state = 0;
    let mut values = [ABSENT; IO_DELAY + 1];
    let mut found = 0;
    for (at, field) in
        text::fields(content.get(close + 1..).unwrap_or_default()).take(IO_DELAY + 1).enumerate()
    {
        found = at + 1;
        if at == 0 {
            match field {
                [letter] if letter.is_ascii_alphabetic() => state = *letter,
                _ => incomplete |= odd_text::unreadable(field),
            }
        } else if is_recorded(at)
            && let Some(place) = values.get_mut(at)
        {
            *place = text::value(Some(field), &mut incomplete);
        }
    }
    // A later kernel may append fields, which are skipped.
    incomplete |= Incomplete::CUT.unless(found == IO_DELAY + 1);
    let value = |at: usize| values.get(at).copied().unwrap_or(ABSENT);
    let stat = Stat {
        name,
        state,
        parent: value(PARENT),
        minor_faults: value(MINOR_FAULTS),
        major_faults: value(MAJOR_FAULTS),
        user_time: value(USER_TIME),
        system_time: value(SYSTEM_TIME),
        threads: value(THREADS),
        start: value(START),
        virtual_size: value(VIRTUAL_SIZE),
        resident_pages: value(RESIDENT),
        io_delay: value(IO_DELAY),
    };
    (Some(stat), incomplete)
}

/// Returns whether a field is recorded. Other fields are not needed or may be negative.
fn is_recorded(at: usize) -> bool {
    matches!(
        at,
        PARENT
            | MINOR_FAULTS
            | MAJOR_FAULTS
            | USER_TIME
            | SYSTEM_TIME
            | THREADS
            | START
            | VIRTUAL_SIZE
            | RESIDENT
            | IO_DELAY
    )
}

/// Names of the lines of `io`, in the order that the kernel and the schema share.
const IO_KEYS: [&[u8]; 7] =
    [b"rchar", b"wchar", b"syscr", b"syscw", b"read_bytes", b"write_bytes", b"cancelled_write_bytes"];

/// Parses `io`. Returns the values in the order of [`IO_KEYS`].
pub(super) fn io(content: &[u8]) -> ([u64; IO_KEYS.len()], Incomplete) {
    let mut values = [ABSENT; IO_KEYS.len()];
    let (lines, mut incomplete) = text::whole_lines(content);
    let mut found = 0;
    for (at, line) in lines.enumerate() {
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (halves.next().unwrap_or_default(), halves.next());
        // As long as the kernel keeps its order, a line costs one comparison.
        let index = IO_KEYS.get(at).filter(|key| **key == name).map(|_| at);
        let index = index.or_else(|| IO_KEYS.iter().position(|key| *key == name));
        if let Some(place) = index.and_then(|index| values.get_mut(index)) {
            *place =
                text::value(value.map(|value| value.strip_prefix(b" ").unwrap_or(value)), &mut incomplete);
            found += 1;
        }
    }
    incomplete |= Incomplete::CUT.unless(found == IO_KEYS.len());
    (values, incomplete)
}

/// Returns the time that a thread waited for a processor, from the thread's `schedstat`. The file
/// has the time on a processor, the time of waiting, and the number of timeslices. If all three are
/// 0, the kernel does not account for them, and the value is absent.
pub(super) fn wait_time(content: &[u8]) -> u64 {
    let Some(line) = content.strip_suffix(b"\n") else { return ABSENT };
    let mut values = text::fields(line).map(text::number);
    match (values.next(), values.next(), values.next(), values.next()) {
        (Some(Some(0)), Some(Some(0)), Some(Some(0)), None) => ABSENT,
        (Some(Some(_)), Some(Some(waited)), Some(Some(_)), None) => waited,
        _ => ABSENT,
    }
}

/// Returns the path in the unified tree, from the line `0::PATH`, or `None` if the process is in no
/// group.
pub(super) fn unified_group(content: &[u8]) -> (Option<&[u8]>, Incomplete) {
    let (mut lines, incomplete) = text::whole_lines(content);
    (lines.find_map(|line| line.strip_prefix(b"0::")), incomplete)
}

/// Returns the longest prefix of a text that fits with a terminating zero byte and does not split a
/// character.
pub(super) fn text_prefix<const BYTES: usize>(whole: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut length = whole.len().min(BYTES - 1);
    if length < whole.len() {
        // Continuation bytes of UTF-8 begin with the bits 10. Text in another encoding may be
        // truncated anywhere.
        let start = (length.saturating_sub(3)..=length)
            .rev()
            .find(|at| whole.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80));
        length = start.unwrap_or(length);
    }
    if let (Some(place), Some(text)) = (bytes.get_mut(..length), whole.get(..length)) {
        place.copy_from_slice(text);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture};

    /// Returns a line of `proc_pid_stat(5)` in which field N has the value N.
    fn line(name: &[u8]) -> Vec<u8> {
        let rest: Vec<String> = (4..=52).map(|at| at.to_string()).collect();
        [b"7 (", name, b") S ", rest.join(" ").as_bytes(), b"\n"].concat()
    }

    // Proves that every value ends up in its field, whatever the name contains.
    #[test]
    fn every_value_is_in_its_place() {
        let names: [&[u8]; 7] = [b"sh", b"", b"a b", b"a) R 1 2 (b", b"x\ny", b"((()))", b"\xFF\xFE) S 1"];
        for name in names {
            let (found, incomplete) = stat(&line(name), 7);
            let expected = Stat {
                name: text::name(name).unwrap(),
                state: b'S',
                parent: 4,
                minor_faults: 10,
                major_faults: 12,
                user_time: 14,
                system_time: 15,
                threads: 20,
                start: 22,
                virtual_size: 23,
                resident_pages: 24,
                io_delay: 42,
            };
            assert_eq!((found, incomplete), (Some(expected), Incomplete::NONE), "{name:?}");
        }
        assert_eq!(stat(&line(b"sh"), 8).1, Incomplete::UNREADABLE, "another process's text");
        assert_eq!(stat(&line(&[b'x'; 64]), 7), (None, Incomplete::UNREADABLE), "a name that does not fit");
        let content = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
            cancelled_write_bytes: 7\n";
        assert_eq!(io(content), ([1, 2, 3, 4, 5, 6, 7], Incomplete::NONE));
        let content = b"new: 9\nwchar: 2\nrchar: 1\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
            cancelled_write_bytes: 7\n";
        assert_eq!(io(content), ([1, 2, 3, 4, 5, 6, 7], Incomplete::NONE));
        assert_eq!(unified_group(b"9:cpu:/x\n0::/a/b:c\n"), (Some(&b"/a/b:c"[..]), Incomplete::NONE));
        assert_eq!(unified_group(b"9:cpu:/x\n"), (None, Incomplete::NONE));
    }

    // Proves that damaged text never causes a panic, that truncated text is always marked, and that
    // numbers that are too large are absent.
    #[test]
    fn damaged_text_is_marked() {
        for name in [&b"sh"[..], b"a) S 1 2\n("] {
            assert_damage_is_marked(&line(name), |content| {
                let (found, incomplete) = stat(content, 7);
                found.is_some() && incomplete.is_none()
            });
        }
        let content = b"rchar: 11\nwchar: 22\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
            cancelled_write_bytes: 7\n";
        assert_damage_is_marked(content, |content| io(content).1.is_none());
        let large = String::from_utf8(line(b"sh")).unwrap().replace(" 14 ", " 99999999999999999999 ");
        let (found, incomplete) = stat(large.as_bytes(), 7);
        assert_eq!((found.unwrap().user_time, incomplete), (ABSENT, Incomplete::UNREADABLE));
        let odd = String::from_utf8(line(b"sh")).unwrap().replace(") S ", ") SS ");
        assert_eq!(stat(odd.as_bytes(), 7).1, Incomplete::UNREADABLE);
    }

    // Proves that the wait time is read only from a complete line, and is absent on a kernel
    // without this accounting.
    #[test]
    fn the_wait_time_is_the_second_number() {
        assert_eq!(wait_time(b"11 22 33\n"), 22);
        for content in [&b""[..], b"11 22 33", b"11 22\n", b"11 x 33\n", b"11 22 33 44\n", b"0 0 0\n"] {
            assert_eq!(wait_time(content), ABSENT, "{content:?}");
        }
    }

    // Proves that a text is truncated between characters.
    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(text_prefix::<4>(b"ab"), *b"ab\0\0");
        assert_eq!(text_prefix::<4>(b"abcd"), *b"abc\0");
        assert_eq!(text_prefix::<4>("ab\u{e4}".as_bytes()), *b"ab\0\0");
        assert_eq!(text_prefix::<4>("a\u{20ac}".as_bytes()), *b"a\0\0\0");
        assert_eq!(text_prefix::<5>("a\u{20ac}".as_bytes()), *b"a\xE2\x82\xAC\0");
        assert_eq!(text_prefix::<4>(&[0x80; 9]), [0x80, 0x80, 0x80, 0]);
    }

    // Proves that captured processes are read completely, and that a naive parser finds the same
    // values.
    #[test]
    fn captured_processes_are_read() {
        for pid in [26231_u32, 26232, 584, 27079] {
            if let Some(content) = fixture(&format!("proc/{pid}/stat")) {
                let (found, incomplete) = stat(&content, pid);
                let text = String::from_utf8(content).unwrap();
                let words: Vec<&str> = text.rsplit_once(") ").unwrap().1.split_whitespace().collect();
                let found = found.unwrap();
                // Some captured processes were put together from the files of several processes.
                let is_own = text.starts_with(&format!("{pid} "));
                assert_eq!(incomplete, Incomplete::UNREADABLE.unless(is_own), "{text}");
                assert_eq!(found.start.to_string(), words[19]);
                assert_eq!(found.resident_pages.to_string(), words[21]);
                assert_eq!(char::from(found.state).to_string(), words[0]);
            }
        }
        if let Some(content) = fixture("proc/26231/io") {
            let (values, incomplete) = io(&content);
            let text = String::from_utf8(content).unwrap();
            // One of the captured counters is negative, which the kernel never prints.
            for (line, value) in text.lines().zip(values) {
                let expected = line.split_once(": ").unwrap().1.parse().unwrap_or(ABSENT);
                assert_eq!(value, expected, "{line}");
            }
            assert_eq!(incomplete, Incomplete::UNREADABLE.unless(!text.contains('-')));
        }
    }
}
