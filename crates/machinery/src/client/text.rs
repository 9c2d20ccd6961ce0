//! Untrusted text on one line of a terminal or log.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_cannot_forge_line_breaks_or_text_direction() {
        let text = "a\nb\u{1b}[2Jc\u{202e}d\u{2066}e\u{2028}f";
        assert_eq!(one_line(text), "a b [2Jc d e f");
        assert_eq!(one_line("Grüße, 世界"), "Grüße, 世界");
    }
}
