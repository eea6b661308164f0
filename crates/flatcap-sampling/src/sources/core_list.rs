//! The list of cores that are online.

use super::text;

/// The kernel's file with the list.
pub(super) const ONLINE: &str = "sys/devices/system/cpu/online";
/// Maximum number of cores. Linux does not support more cores.
const CORES_MAX: usize = 8192;

/// Parses a list such as `0-3,5,7-8`. Returns false if the list is invalid or names more cores than
/// Linux supports. In this case `numbers` contains the valid cores before the error.
pub(super) fn parse_core_list(content: &[u8], numbers: &mut Vec<u32>) -> bool {
    numbers.clear();
    let (mut lines, cut) = text::whole_lines(content);
    let number = |text: &[u8]| text::number(text).and_then(|number| u32::try_from(number).ok());
    for range in lines.next().unwrap_or_default().split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let Some(first) = ends.next().and_then(number) else { return false };
        let last = match ends.next() {
            Some(last) => number(last),
            None => Some(first),
        };
        let next = numbers.last().map_or(0, |last| last + 1);
        let Some(last) = last.filter(|last| first >= next && *last >= first) else { return false };
        if last as usize >= CORES_MAX {
            return false;
        }
        numbers.extend(first..=last);
    }
    cut.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that lists of cores are read exactly and limited in length, including damaged and
    // hostile lists.
    #[test]
    fn lists_of_cores_are_read() {
        let mut numbers = Vec::new();
        assert!(parse_core_list(b"0-2,5,7-8\n", &mut numbers));
        assert_eq!(numbers, [0, 1, 2, 5, 7, 8]);
        assert!(parse_core_list(b"3\n", &mut numbers) && numbers == [3]);
        for wrong in
            [&b""[..], b"\n", b"0-", b"x\n", b"2-1\n", b"1,1\n", b"0-99999999\n", b"0-1", b"4294967296\n"]
        {
            assert!(!parse_core_list(wrong, &mut numbers), "{wrong:?}");
            assert!(numbers.len() <= 2);
        }
    }
}
