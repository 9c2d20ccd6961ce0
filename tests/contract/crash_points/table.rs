//! Results of the points: one row each, printed at once, and recorded so that a run can resume
//! where another was interrupted.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;

use super::Pair;

/// The result of a point.
#[derive(Debug, Clone)]
pub(super) enum Judgement {
    Passed(Duration),
    /// This run made no such write: how often the status is written depends on the timing of the
    /// pods, and in a pair the recovery comes to an end.
    NotMet,
    Failed(String),
}

/// All rows.
pub(super) struct Table {
    rows: Mutex<BTreeMap<(String, String), Judgement>>,
    journal: Option<PathBuf>,
}

impl Table {
    /// With the rows from the journal, if there is one.
    pub(super) fn open() -> Table {
        let journal = std::env::var_os("CRASH_JOURNAL").map(PathBuf::from);
        let text = journal.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let rows = text.unwrap_or_default().lines().filter_map(row).collect();
        Table { rows: Mutex::new(rows), journal }
    }

    pub(super) fn knows(&self, label: &str, pair: &Pair) -> bool {
        self.rows.lock().contains_key(&key(label, pair))
    }

    /// Returns whether the recovery had no such write.
    pub(super) fn ends(&self, label: &str, pair: &Pair) -> bool {
        matches!(self.rows.lock().get(&key(label, pair)), Some(Judgement::NotMet))
    }

    pub(super) fn note(&self, label: &str, pair: &Pair, judgement: Judgement) {
        println!("{label}\t{pair}\t{judgement}");
        if let Some(path) = &self.journal {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let mut file = file.expect("the journal can be written");
            // One line; a failure is recorded to be counted, and run again (`row`).
            let judgement = judgement.to_string();
            let judgement = judgement.lines().next().unwrap_or_default();
            writeln!(file, "{label}\t{pair}\t{judgement}").expect("the journal can be written");
        }
        self.rows.lock().insert(key(label, pair), judgement);
    }

    /// Prints the totals, and fails if a point failed.
    pub(super) fn report(&self) {
        let rows = self.rows.lock();
        let mut sums: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
        for ((label, point), judgement) in rows.iter() {
            let what = if point.contains(", then write") { "pairs" } else { "points" };
            sums.entry((label, what)).or_default().add(judgement);
        }
        for ((label, what), sum) in &sums {
            println!("{label}: {sum}", sum = sum.of(what));
        }
        let failed: usize = sums.values().map(|sum| sum.failed).sum();
        assert_eq!(failed, 0, "points failed: see above");
        let passed: usize = sums.values().map(|sum| sum.passed).sum();
        assert!(2 * passed > rows.len(), "most points are met, or this test tests nothing");
    }
}

#[derive(Default)]
struct Sums {
    passed: usize,
    not_met: usize,
    failed: usize,
    worst: Duration,
}

impl Sums {
    fn add(&mut self, judgement: &Judgement) {
        match judgement {
            Judgement::Passed(recovery) => {
                self.passed += 1;
                self.worst = self.worst.max(*recovery);
            }
            Judgement::NotMet => self.not_met += 1,
            Judgement::Failed(_) => self.failed += 1,
        }
    }

    fn of(&self, what: &str) -> String {
        let Sums { passed, not_met, failed, worst } = self;
        let all = passed + not_met + failed;
        format!(
            "{all} {what}, {passed} passed, {not_met} not met, {failed} failed, worst recovery \
             {worst:.1?}"
        )
    }
}

fn key(label: &str, pair: &Pair) -> (String, String) {
    (label.to_owned(), pair.to_string())
}

/// A line of the journal. An incomplete line is not a row, and neither is a failure.
fn row(line: &str) -> Option<((String, String), Judgement)> {
    let mut parts = line.split('\t');
    let key = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let judgement = match parts.next()? {
        "not met" => Judgement::NotMet,
        passed => {
            let seconds = passed.strip_prefix("passed, recovered in ")?.strip_suffix(" s")?;
            Judgement::Passed(Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)
        }
    };
    Some((key, judgement))
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Judgement::Passed(recovery) => {
                write!(f, "passed, recovered in {:.1} s", recovery.as_secs_f64())
            }
            Judgement::NotMet => write!(f, "not met"),
            Judgement::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}
