//! Untrusted text on one line of a terminal or log, and the `Warning:` headers: messages of the API server for users.

use std::collections::HashSet;

use http::HeaderMap;
use parking_lot::Mutex;

/// Returns `text` as one line without control characters.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { ' ' } else { c }).collect()
}

/// Returns whether a terminal acts on the character: control characters, line separators, and those that change the
/// text direction (Unicode TR 9, "Trojan Source").
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Number of distinct warnings that are remembered. When it is reached, all are forgotten and can be logged again.
const REMEMBERED: usize = 128;
/// Longest logged part of a warning, in bytes.
const LONGEST: usize = 300;

/// Logs each warning once.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<HashSet<Box<str>>>);

// === impl Warnings ===

impl Warnings {
    pub(super) fn log(&self, headers: &HeaderMap) {
        for header in headers.get_all(http::header::WARNING) {
            if let Some(text) = self.fresh(header.as_bytes()) {
                tracing::warn!("the API server warns: {text}");
            }
        }
    }

    /// Returns the text of a header, if it is new.
    fn fresh(&self, header: &[u8]) -> Option<Box<str>> {
        let text = text(header)?;
        let mut known = self.0.lock();
        let is_new = known.insert(text.clone());
        if known.len() > REMEMBERED {
            known.clear();
        }
        is_new.then_some(text)
    }
}

/// Returns the text of `299 - "text"`; `None` for anything else. RFC 9111 has dropped the header, Kubernetes has
/// not.
fn text(header: &[u8]) -> Option<Box<str>> {
    let header = String::from_utf8_lossy(header);
    let (_, quoted) = header.strip_prefix("299 ")?.split_once(" \"")?;
    let text = one_line(&quoted.rsplit_once('"')?.0.replace("\\\"", "\""));
    let shown = &text[..text.floor_char_boundary(LONGEST)];
    Some(if shown.len() < text.len() { format!("{shown}…").into() } else { shown.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_once() {
        let warnings = Warnings::default();
        let header = br#"299 - "v1 Foo is \"old\"""#;
        assert_eq!(warnings.fresh(header).as_deref(), Some(r#"v1 Foo is "old""#));
        assert_eq!(warnings.fresh(header), None);
    }

    #[test]
    fn the_number_of_remembered_warnings_is_limited() {
        let warnings = Warnings::default();
        for i in 0..10 * REMEMBERED {
            warnings.fresh(format!("299 - \"{i}\"").as_bytes());
        }
        assert!(warnings.0.lock().len() <= REMEMBERED);
    }

    #[test]
    fn a_long_warning_is_cut_and_another_code_is_ignored() {
        let long = format!("299 kube \"{}\"", "x".repeat(5000));
        assert!(text(long.as_bytes()).unwrap().len() < 2 * LONGEST);
        assert_eq!(text(b"199 - \"x\""), None);
        assert_eq!(text(b"299"), None);
    }

    #[test]
    fn server_text_cannot_forge_line_breaks_or_text_direction() {
        let text = "a\nb\u{1b}[2Jc\u{202e}d\u{2066}e\u{2028}f";
        assert_eq!(one_line(text), "a b [2Jc d e f");
        assert_eq!(one_line("Grüße, 世界"), "Grüße, 世界");
    }
}
