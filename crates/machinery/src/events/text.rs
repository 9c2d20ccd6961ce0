//! Text for the API server and for terminals. Pure.

use crate::client::is_control;

/// Limit of `note` in bytes (k8s.io/kubernetes/pkg/apis/core/validation/events.go: NoteLengthLimit).
const NOTE: usize = 1_024;
/// Limit of `reportingInstance` in bytes (ibid.: ReportingInstanceLengthLimit).
const INSTANCE: usize = 128;
/// Limit of a DNS subdomain, such as an Event's name, in bytes.
const NAME: usize = 253;
/// Length of a name's suffix: `.`, 8 digits of the instance, 16 of the stamp.
const SUFFIX: usize = 25;
/// End of a text that was cut.
const CUT: &str = "…";

/// Returns `text` as a note: at most 1,024 bytes, cut between characters, without characters that move a terminal's
/// cursor, start a new line or change the reading direction.
pub(super) fn note(text: &str) -> String {
    harmless(text, NOTE)
}

/// Returns `text` as a reportingInstance; never empty, because the API server requires one.
pub(super) fn instance(text: &str) -> String {
    let instance = harmless(text, INSTANCE);
    if instance.is_empty() { "unknown".into() } else { instance }
}

fn harmless(text: &str, limit: usize) -> String {
    let mut kept = String::with_capacity(text.len().min(limit));
    for character in text.chars() {
        let character = if is_control(character) { ' ' } else { character };
        if kept.len() + character.len_utf8() > limit {
            while kept.len() + CUT.len() > limit {
                kept.pop();
            }
            kept.push_str(CUT);
            break;
        }
        kept.push(character);
    }
    kept
}

/// Returns the name of an Event about the object `regarding`. `stamp` must be new in this process; `instance`
/// distinguishes processes. The same arguments give the same name, so a create can be repeated.
pub(super) fn name(regarding: &str, instance: u32, stamp: u64) -> String {
    // The name of an object is not always a DNS subdomain: `system:node`, `Upper`.
    let name: String = regarding
        .chars()
        .take(NAME - SUFFIX)
        .map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '-' | '.') => c,
            _ => '-',
        })
        .collect();
    // A subdomain has no empty part between two dots, and no part that begins or ends with a dash.
    let mut name = name
        .split('.')
        .map(|part| part.trim_matches('-'))
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(".");
    if name.is_empty() {
        name.push_str("event");
    }
    format!("{name}.{instance:08x}{stamp:016x}")
}

/// Returns a 32-bit hash of `text`: FNV-1a, which is the same in every build.
pub(super) fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_note_is_bounded_and_has_no_control_characters(text in any::<String>(), times in 1usize..200) {
            let note = note(&text.repeat(times));
            prop_assert!(note.len() <= 1024);
            prop_assert!(!note.chars().any(char::is_control));
        }

        #[test]
        fn every_event_name_is_a_dns_subdomain(object in any::<String>(), stamp: u64) {
            let name = name(&object, 7, stamp);
            prop_assert!(name.len() <= 253, "{name}");
            for part in name.split('.') {
                let alphanumeric = |c: Option<char>| {
                    c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                };
                prop_assert!(alphanumeric(part.chars().next()), "{name}");
                prop_assert!(alphanumeric(part.chars().last()), "{name}");
            }
        }
    }

    #[test]
    fn a_long_note_is_truncated_between_characters_and_marked() {
        let cut = note(&"é".repeat(600));
        assert!(cut.ends_with("é…") && cut.len() > 1_020 && cut.len() <= 1_024, "{}", cut.len());
        assert_eq!(note(&"x".repeat(1_024)).len(), 1_024, "what fits is not cut");
    }

    #[test]
    fn a_note_cannot_begin_a_new_line() {
        assert_eq!(note("a\nWarning  Forged\x1b[2J\u{202e}b"), "a Warning  Forged [2J b");
    }

    #[test]
    fn an_empty_instance_gets_a_name() {
        assert_eq!(instance(""), "unknown");
        assert!(instance(&"h".repeat(300)).len() <= 128);
    }

    #[test]
    fn an_event_name_begins_with_the_objects_name() {
        assert_eq!(name("web", 0xab, 0x10), "web.000000ab0000000000000010");
        assert_eq!(name("system:node", 1, 1), "system-node.000000010000000000000001");
    }
}
