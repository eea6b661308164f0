//! Formats descriptions of the programs that push.

use std::collections::BTreeMap;

use flatcap_control::SenderStatus;
use flatcap_explain::sender_text;
use flatcap_format::segment::SourceSender;

use super::human;

/// Maximum number of programs that are listed. It is also the maximum number of source names that
/// are listed per program.
const NAMES_MAX: usize = 8;

/// Returns a line for each program, with the names of the sources that it has pushed. An example is
/// `pushed by shop (user 1000, /usr/bin/shop): orders (16 sources), trades`.
pub(super) fn sender_lines<'s>(sources: impl Iterator<Item = (SourceSender, &'s str)>) -> Vec<String> {
    let mut senders: BTreeMap<SourceSender, BTreeMap<&str, usize>> = BTreeMap::new();
    for (sender, name) in sources {
        *senders.entry(sender).or_default().entry(name).or_default() += 1;
    }
    let line = |(sender, names): (SourceSender, BTreeMap<&str, usize>)| {
        let counted = |(name, count): (&&str, &usize)| match count {
            1 => human::escaped(name).into_owned(),
            count => format!("{} ({count} sources)", human::escaped(name)),
        };
        let mut shown: Vec<String> = names.iter().take(NAMES_MAX).map(counted).collect();
        if names.len() > NAMES_MAX {
            shown.push(format!("{} more", names.len() - NAMES_MAX));
        }
        format!("pushed by {}: {}", sender_text(&sender), shown.join(", "))
    };
    senders.into_iter().map(line).collect()
}

/// Returns a line of `status` for each application that pushes, up to a limit.
pub(super) fn pushing_lines(senders: &[SenderStatus]) -> Vec<String> {
    let line = |status: &SenderStatus| {
        let SenderStatus { client, user, program, sources, recorded, lost, .. } = status.clone();
        let sender = sender_text(&SourceSender { client, user, program });
        let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
        format!("         pushed by {sender}: {sources} sources, {recorded} frames{lost}")
    };
    let mut lines: Vec<String> = senders.iter().take(NAMES_MAX).map(line).collect();
    if senders.len() > NAMES_MAX {
        lines.push(format!("         and {} more; --json lists them", senders.len() - NAMES_MAX));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each program has one line with its user, its path and its sources. Also proves
    // that names are escaped, and that the number of names is bounded.
    #[test]
    fn programs_are_listed_with_their_sources() {
        let sender = |client: &str, program: Option<&str>| SourceSender {
            client: client.to_owned(),
            user: Some("7".to_owned()),
            program: program.map(str::to_owned),
        };
        let (shop, other) = (sender("shop", Some("/usr/bin/shop")), sender("a\u{1b}[1m", None));
        let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
        let sources = [(&shop, "orders"), (&shop, "trades"), (&shop, "orders")];
        let all = sources.into_iter().chain(names.iter().map(|name| (&other, name.as_str())));
        let lines = sender_lines(all.map(|(sender, name)| (sender.clone(), name)));
        let many = "pushed by a\\u{1b}[1m (user 7): s00, s01, s02, s03, s04, s05, s06, s07, 12 more";
        let few = "pushed by shop (user 7, /usr/bin/shop): orders (2 sources), trades";
        assert_eq!(lines, [many, few]);
    }
}
