//! Limits of Events: a budget for each object, and a bound on the distinct notes of a group.

use std::sync::Arc;

use tokio::time::Instant;

use crate::events::{BURST, DISTINCT_NOTES, REFILL, WINDOW, text};

/// The start of a note that stands for several Events (as in client-go).
const COMBINED: &str = "(combined from similar events): ";

/// The distinct notes of one group.
pub(super) struct Notes {
    distinct: u32,
    last_new: Instant,
    /// The note that the surplus shares, and since when.
    combined: Option<(Arc<str>, Instant)>,
}

/// A token bucket.
pub(super) struct Budget {
    tokens: f64,
    at: Instant,
}

impl Notes {
    pub(super) fn new(now: Instant) -> Notes {
        Notes { distinct: 0, last_new: now, combined: None }
    }

    /// The note to share, if the group has had enough of new notes such as `note`.
    pub(super) fn surplus(&mut self, note: &str, now: Instant) -> Option<Arc<str>> {
        if now.duration_since(self.last_new) > WINDOW {
            *self = Notes::new(now);
        }
        self.last_new = now;
        if self.distinct < DISTINCT_NOTES {
            self.distinct += 1;
            return None;
        }
        let current =
            self.combined.as_ref().filter(|(_, since)| now.duration_since(*since) <= WINDOW);
        if current.is_none() {
            let note = text::note(&format!("{COMBINED}{note}"));
            self.combined = Some((note.into(), now));
        }
        self.combined.as_ref().map(|(note, _)| note.clone())
    }
}

impl Budget {
    /// A full one.
    pub(super) fn new(now: Instant) -> Budget {
        Budget { tokens: f64::from(BURST), at: now }
    }

    /// Takes one token, if at least `least` are left.
    pub(super) fn take(&mut self, least: u32, now: Instant) -> bool {
        let earned = now.duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        self.tokens = (self.tokens + earned).min(f64::from(BURST));
        self.at = now;
        let enough = self.tokens >= f64::from(least);
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}
