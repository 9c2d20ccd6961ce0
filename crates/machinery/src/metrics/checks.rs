//! Named health checks.

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::one_line;

/// Health checks by name, in the order they were added. Cheap to clone.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Mutex<Vec<Arc<Entry>>>>);

struct Entry {
    name: String,
    check: Box<dyn Fn() -> Result<String, String> + Send + Sync>,
    /// Time of the first failure since the last success.
    wrong_since: Mutex<Option<Instant>>,
}

/// Report of the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// True if no check failed, except excluded ones.
    pub ok: bool,
    /// One line per check, like Kubernetes' own `?verbose`.
    pub text: String,
}

// === impl HealthChecks ===

impl HealthChecks {
    /// Adds a check. It returns `Ok` with the state (can be empty), or `Err` with the problem. It is called at every
    /// probe and must not block. The name is part of a path: letters, digits, `-`, `.` and `_`. If the name exists, a
    /// number is appended.
    pub fn add(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) {
        let (wanted, mut entries) = (name.into(), self.0.lock());
        let is_taken = |name: &str| entries.iter().any(|entry| entry.name == name);
        let numbered = (2..).map(|number| format!("{wanted}-{number}"));
        let name = std::iter::once(wanted.clone()).chain(numbered).find(|name| !is_taken(name));
        let name = name.expect("one of infinitely many is free");
        let (check, wrong_since) = (Box::new(check), Mutex::default());
        entries.push(Arc::new(Entry { name, check, wrong_since }));
    }

    /// Runs all checks but the excluded ones. The last line of the report begins with `title`
    /// (`readyz check passed`).
    pub fn report(&self, title: &str, exclude: &[&str]) -> Report {
        let now = Instant::now();
        let (mut ok, mut text) = (true, String::new());
        for entry in self.entries() {
            if exclude.contains(&entry.name.as_str()) {
                let _ = writeln!(text, "[+]{} excluded: ok", entry.name);
                continue;
            }
            match entry.ask(now) {
                Ok(how) if how.is_empty() => drop(writeln!(text, "[+]{} ok", entry.name)),
                Ok(how) => drop(writeln!(text, "[+]{} ok: {}", entry.name, one_line(&how))),
                Err(what) => {
                    ok = false;
                    let _ = writeln!(text, "[-]{} failed: {}", entry.name, one_line(&what));
                }
            }
        }
        let verdict = if ok { "passed" } else { "failed" };
        let _ = writeln!(text, "{title} check {verdict}");
        Report { ok, text }
    }

    /// Runs the check of this name; `None` if there is no such check.
    pub fn one(&self, name: &str) -> Option<Report> {
        let entry = self.entries().into_iter().find(|entry| entry.name == name)?;
        Some(match entry.ask(Instant::now()) {
            Ok(_) => Report { ok: true, text: "ok".into() },
            Err(what) => Report { ok: false, text: format!("failed: {}\n", one_line(&what)) },
        })
    }

    /// Returns a copy: checks run without the lock, because they can use these checks themselves.
    fn entries(&self) -> Vec<Arc<Entry>> {
        self.0.lock().clone()
    }
}

impl Entry {
    fn ask(&self, now: Instant) -> Result<String, String> {
        let said = (self.check)();
        let mut wrong_since = self.wrong_since.lock();
        if said.is_ok() {
            *wrong_since = None;
        }
        said.map_err(|what| {
            let since = *wrong_since.get_or_insert(now);
            let seconds = now.duration_since(since).as_secs();
            if seconds == 0 { what } else { format!("{what} (for {seconds} s)") }
        })
    }
}

impl std::fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries().iter().map(|entry| &entry.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn checks() -> (HealthChecks, Arc<Mutex<bool>>) {
        let (checks, broken) = (HealthChecks::default(), Arc::new(Mutex::new(true)));
        let seen = broken.clone();
        checks.add("ping", || Ok(String::new()));
        checks.add("informer-deployments.apps", move || match *seen.lock() {
            true => Err("Forbidden: cannot list\n[+]forged".into()),
            false => Ok("Live".into()),
        });
        (checks, broken)
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_names_failures_and_their_duration() {
        let (checks, broken) = checks();
        checks.report("readyz", &[]);
        tokio::time::advance(Duration::from_secs(34)).await;
        let report = checks.report("readyz", &[]);
        assert!(!report.ok);
        assert_eq!(
            report.text,
            "[+]ping ok\n\
             [-]informer-deployments.apps failed: Forbidden: cannot list [+]forged (for 34 s)\n\
             readyz check failed\n"
        );
        *broken.lock() = false;
        assert!(
            checks.report("readyz", &[]).text.contains("[+]informer-deployments.apps ok: Live")
        );
        *broken.lock() = true;
        assert!(!checks.report("readyz", &[]).text.contains("(for"), "counted anew");
    }

    #[test]
    fn an_excluded_check_is_not_run() {
        let (checks, _) = checks();
        let report = checks.report("readyz", &["informer-deployments.apps"]);
        assert!(report.ok);
        assert!(report.text.contains("[+]informer-deployments.apps excluded: ok"));
    }

    #[test]
    fn a_single_check_can_be_run() {
        let (checks, _) = checks();
        assert_eq!(checks.one("ping"), Some(Report { ok: true, text: "ok".into() }));
        assert!(!checks.one("informer-deployments.apps").unwrap().ok);
        assert_eq!(checks.one("nothing"), None);
    }

    #[test]
    fn a_check_can_use_its_own_checks() {
        let checks = HealthChecks::default();
        let all = checks.clone();
        checks.add("one", move || Ok(format!("of {}", all.entries().len())));
        checks.add("adds", {
            let all = checks.clone();
            move || {
                all.add("late", || Ok(String::new()));
                Ok(String::new())
            }
        });
        assert!(checks.report("readyz", &[]).text.contains("[+]one ok: of 2"));
        assert!(checks.one("late").is_some());
    }
}
