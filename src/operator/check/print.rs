//! Findings for people and for machines.

use std::io::Write;

use serde_json::json;

use super::args::Output;
use super::finding::{Finding, Outcome};

pub(super) fn print(findings: &[Finding], output: Output) -> std::io::Result<()> {
    let text = match output {
        Output::Json => as_json(findings),
        Output::Table => as_table(findings, false),
        Output::Wide => as_table(findings, true),
    };
    std::io::stdout().write_all(text.as_bytes())
}

fn as_table(findings: &[Finding], wide: bool) -> String {
    let width = findings.iter().map(|f| f.check.title.chars().count()).max().unwrap_or_default();
    let mut text = format!("{:<6} {:<width$}  {:<6}  DETAIL\n", "ID", "CHECK", "RESULT");
    for Finding { check, outcome, detail } in findings {
        let detail = one_line(detail);
        let line =
            format!("{:<6} {:<width$}  {:<6}  {detail}", check.id, check.title, word(*outcome));
        text.push_str(line.trim_end());
        text.push('\n');
        let wrong = matches!(outcome, Outcome::Warn | Outcome::Fail);
        if wrong {
            text.push_str(&format!("         fix: {}\n", check.hint));
        }
        if wide {
            text.push_str(&format!("         why: otherwise {}\n", check.why));
        }
    }
    let [ok, warn, fail, skip] = counts(findings);
    text.push_str(&format!("       {ok} ok  {warn} warn  {fail} fail  {skip} skipped\n"));
    text
}

fn as_json(findings: &[Finding]) -> String {
    let checks: Vec<_> = findings
        .iter()
        .map(|Finding { check, outcome, detail }| {
            json!({"id": check.id, "check": check.title, "result": outcome, "detail": detail,
                "hint": check.hint, "why": check.why})
        })
        .collect();
    let [ok, warn, fail, skip] = counts(findings);
    let summary = json!({"ok": ok, "warn": warn, "fail": fail, "skip": skip});
    format!("{:#}\n", json!({"checks": checks, "summary": summary}))
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Warn => "warn",
        Outcome::Fail => "FAIL",
        Outcome::Skip => "skip",
    }
}

fn counts(findings: &[Finding]) -> [usize; 4] {
    [Outcome::Ok, Outcome::Warn, Outcome::Fail, Outcome::Skip]
        .map(|outcome| findings.iter().filter(|finding| finding.outcome == outcome).count())
}

/// Messages of the API server may have several lines and contain anything.
pub(in crate::operator) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::check::finding::{C003, K001};

    #[test]
    fn what_is_wrong_says_what_to_do_and_nothing_breaks_the_table() {
        let findings = [K001.ok("v1"), C003.warn("two\nlines\u{1b}[2J")];
        let text = as_table(&findings, false);
        assert_eq!(text.matches("fix:").count(), 1);
        assert!(text.contains("two lines [2J"), "{text}");
        assert!(text.ends_with("1 ok  1 warn  0 fail  0 skipped\n"), "{text}");
    }
}
