//! The pace of new images: how many Memcacheds get one of the administrator's at a time.
//!
//! Guarantees
//! - A new image of the administrator's goes to a bounded number of Memcacheds at a time, at least 1, in the order
//!   of namespace and name. Each counts until all of its pods run the image and are available: an image that does
//!   not start goes no further than the bound. One whose Deployment cannot be written gives its turn back.
//! - The others keep the images that their Deployment runs, and say so. All else in their spec applies at once.
//! - The bound holds for reconciles side by side, and after a restart: the Deployments tell who rolls out.
//! - Nothing waits that has no cache to lose, or whose pods its user replaces: a new Memcached, one without pods,
//!   one that adds or removes its exporter. Neither does an image of its own.
//! - One that is paused takes no turn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pod::EXPORTER;
use super::{Images, MEMCACHED, Memcached, Settings, Spec, desired};
use crate::controller::{Action, Problem};
use crate::manager::Context;
use crate::object::{InternedStr, Object, ObjectKey};
use crate::workload::Deployment;
use crate::workload::custom_resource::is_paused;
use crate::workload::health::Health;
use crate::workload::labels::are_of_same;

/// The pause before one that waits asks again.
const AGAIN: Duration = Duration::from_secs(5);
/// The pause of one that has many before it.
const LATER: Duration = Duration::from_secs(60);
/// Time for which one whose Deployment could not be written gets no other turn.
const REFUSED: Duration = Duration::from_secs(300);
/// The longest time between two looks at all Memcacheds while some ask.
const LOOK: Duration = Duration::from_secs(1);

/// The most Memcacheds that get new images at a time (`--max-image-rollouts`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// This many.
    Number(usize),
    /// A percentage of those that run an image of the administrator's.
    Percentage(usize),
}

/// Gives Memcacheds their turns. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    limit: Limit,
    /// True if nothing waits, and the turns are only noted.
    plans: bool,
    turns: Arc<Mutex<Turns>>,
}

/// Images for a reconcile.
#[derive(Debug)]
pub(super) struct Given {
    /// Those that the pods are to run now.
    pub(super) images: Images,
    /// What it says while it waits for others.
    waits: Option<(String, Duration)>,
}

/// The order in which Memcacheds get new images.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rollouts {
    /// The new images.
    pub images: BTreeSet<InternedStr>,
    /// The Memcacheds, in order.
    pub order: Vec<ObjectKey>,
    /// The most of them at a time.
    pub at_a_time: usize,
}

/// State of a Memcached that runs an image of the administrator's.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It needs no turn.
    Settled,
    /// It has the images, and not all of its pods run them.
    Rolling,
    /// It needs a turn; until then it keeps these images.
    Waiting(Images),
}

/// Images that were applied, and what admission made of them.
type Admitted = (Images, Images);

/// Turns given and awaited.
#[derive(Debug, Default)]
struct Turns {
    /// Time of the last look at all Memcacheds.
    looked: Option<Instant>,
    /// Number of those that run an image of the administrator's.
    all: usize,
    rolling: usize,
    waiting: BTreeSet<ObjectKey>,
    /// Those of the waiting whose turn it is.
    granted: BTreeSet<ObjectKey>,
    /// Those whose Deployment could not be written, until when they get no turn.
    refused: HashMap<ObjectKey, Instant>,
    admitted: HashMap<ObjectKey, Admitted>,
    /// The new images of those that asked, for a plan.
    planned: BTreeMap<ObjectKey, Vec<InternedStr>>,
}

// === impl Limit ===

impl Default for Limit {
    fn default() -> Limit {
        Limit::Percentage(5)
    }
}

impl Limit {
    /// The number of turns at a time, of so many Memcacheds.
    fn of(self, all: usize) -> usize {
        match self {
            Limit::Number(number) => number.max(1),
            Limit::Percentage(share) => (all.saturating_mul(share) / 100).max(1),
        }
    }
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = |digits: &str| digits.parse().ok().filter(|n| *n > 0 && is_digits(digits));
        match text.strip_suffix('%') {
            Some(share) => number(share).filter(|share| *share <= 100).map(Limit::Percentage),
            None => number(text).map(Limit::Number),
        }
        .ok_or_else(|| format!("'{text}' has to be a number of 1 or more, or 1% to 100%"))
    }
}

// === impl Pace ===

impl Pace {
    /// Gives so many turns at a time.
    pub fn new(limit: Limit) -> Pace {
        Pace { limit, ..Pace::default() }
    }

    /// Makes nobody wait, and notes who would.
    pub fn plan(limit: Limit) -> Pace {
        Pace { limit, plans: true, ..Pace::default() }
    }

    /// The turns that were noted, if there were any.
    pub fn planned(&self) -> Option<Rollouts> {
        let turns = self.turns.lock();
        let images = turns.planned.values().flatten().cloned().collect();
        let order: Vec<ObjectKey> = turns.planned.keys().cloned().collect();
        let at_a_time = self.limit.of(turns.all);
        (!order.is_empty()).then_some(Rollouts { images, order, at_a_time })
    }

    /// The images for a reconcile: those that are `wanted` or, until its turn, those that it has.
    ///
    /// # Errors
    /// If the controller does not declare Memcacheds and their Deployments.
    pub(super) fn give(
        &self,
        cx: &Context<Memcached>,
        settings: &Settings,
        wanted: Images,
    ) -> Result<Given, Problem> {
        let (memcached, key) = (cx.object(), cx.key());
        let now = |images| Ok(Given { images, waits: None });
        let there = cx.get::<Deployment>(key)?.filter(|there| is_of(there, memcached, &wanted));
        let Some(there) = there else { return now(wanted) };
        let standing = {
            let turns = self.turns.lock();
            Standing::of(memcached, Some(&there), settings, turns.admitted.get(key))
        };
        let Some(Standing::Waiting(kept)) = standing else { return now(wanted) };
        // Admission changed the images when they were applied.
        if desired(memcached, &wanted).deployment.is_ensured(cx, &there)? {
            self.applied(key, &wanted, &there);
            return now(wanted);
        }
        let mut turns = self.turns.lock();
        let at = Instant::now();
        let is_recent = turns.looked.is_some_and(|looked| at.duration_since(looked) < LOOK);
        if !is_recent || !turns.waiting.contains(key) {
            turns.look(cx, settings)?;
            turns.looked = Some(at);
        }
        let (from, to) = kept.differences(&wanted);
        if self.plans {
            turns.planned.insert(key.clone(), to);
            return now(wanted);
        }
        if turns.grant(key, self.limit, at) {
            return now(wanted);
        }
        let is_next = turns.waiting.range(..key).count() < 10 * self.limit.of(turns.all);
        let again = if is_next { AGAIN } else { LATER };
        let (from, to) = (from.join(" and "), to.join(" and "));
        let waits = format!("it keeps {from} until its turn to run {to} (--max-image-rollouts)");
        Ok(Given { images: kept, waits: Some((waits, again)) })
    }

    /// Notes that the Deployment of one that was given images could not be written.
    pub(super) fn refused(&self, key: &ObjectKey) {
        let mut turns = self.turns.lock();
        if turns.granted.remove(key) {
            turns.refused.insert(key.clone(), Instant::now() + REFUSED);
        }
    }

    /// Notes the Deployment that a reconcile with these images has made.
    pub(super) fn applied(&self, key: &ObjectKey, images: &Images, there: &Deployment) {
        let mut turns = self.turns.lock();
        match running(there).filter(|runs| runs != images) {
            Some(runs) => drop(turns.admitted.insert(key.clone(), (images.clone(), runs))),
            None => drop(turns.admitted.remove(key)),
        }
    }
}

// === impl Given ===

impl Given {
    /// The health, which says what it waits for unless something is wrong.
    pub(super) fn told(&self, health: Health) -> Health {
        match &self.waits {
            Some((waits, _)) if health.trouble().is_none() => {
                Health { message: format!("{}; {waits}", health.message), ..health }
            }
            _ => health,
        }
    }

    /// The next time to ask.
    pub(super) fn again(&self) -> Action {
        self.waits.as_ref().map_or(Action::Done, |(_, again)| Action::RequeueAfter(*again))
    }

    /// Returns whether the images are those that are wanted.
    pub(super) fn is_final(&self) -> bool {
        self.waits.is_none()
    }
}

// === impl Turns ===

impl Turns {
    /// Looks at all Memcacheds.
    fn look(&mut self, cx: &Context<Memcached>, settings: &Settings) -> Result<(), Problem> {
        let deployments = cx.store::<Deployment>()?;
        let all = cx.store::<Memcached>()?.list();
        self.admitted.retain(|key, _| deployments.contains(key));
        let mut found = Vec::with_capacity(all.len());
        for memcached in &all {
            let key = memcached.key();
            let there = deployments.get(key);
            let admitted = self.admitted.get(key);
            let standing = Standing::of(memcached, there.as_deref(), settings, admitted);
            found.extend(standing.map(|standing| (key.clone(), standing)));
        }
        self.update(found);
        Ok(())
    }

    /// Takes note of all that run an image of the administrator's.
    fn update(&mut self, found: Vec<(ObjectKey, Standing)>) {
        self.all = found.len();
        self.rolling = found.iter().filter(|(_, is)| *is == Standing::Rolling).count();
        let waiting = found.into_iter().filter(|(_, is)| matches!(is, Standing::Waiting(_)));
        self.waiting = waiting.map(|(key, _)| key).collect();
        // A turn is over once the Deployment has the images, from when on it is rolling.
        self.granted.retain(|key| self.waiting.contains(key));
    }

    /// Returns whether it is this one's turn, which is then taken.
    fn grant(&mut self, key: &ObjectKey, limit: Limit, now: Instant) -> bool {
        let taken = self.rolling + self.granted.len();
        let free = limit.of(self.all).saturating_sub(taken);
        self.refused.retain(|_, until| now < *until);
        let may_have_one =
            |key: &&ObjectKey| !self.granted.contains(*key) && !self.refused.contains_key(*key);
        let mut next = self.waiting.iter().filter(may_have_one).take(free);
        if next.any(|next| next == key) {
            self.granted.insert(key.clone());
        }
        self.granted.contains(key)
    }
}

// === impl Standing ===

impl Standing {
    /// The standing of a Memcached with this Deployment; `None` if no image is the administrator's.
    fn of(
        memcached: &Memcached,
        deployment: Option<&Deployment>,
        settings: &Settings,
        admitted: Option<&Admitted>,
    ) -> Option<Standing> {
        let (meta, spec) = (&memcached.meta, &memcached.spec);
        let wanted = Images::chosen(spec, settings).ok()?;
        if !spec.image.is_empty() && !has_administrators_exporter(spec) {
            return None;
        }
        let there = deployment.filter(|there| is_of(there, memcached, &wanted));
        let Some((there, runs)) = there.and_then(|there| Some((there, running(there)?))) else {
            return Some(Standing::Settled);
        };
        let has_no_cache = spec.size == 0 || there.spec.replicas == 0;
        let changes_pods = runs.exporter.is_some() != wanted.exporter.is_some();
        if is_paused(meta) || meta.deleting || has_no_cache || changes_pods {
            return Some(Standing::Settled);
        }
        let is_admitted =
            admitted.is_some_and(|(applied, made)| *applied == wanted && *made == runs);
        let kept = kept(spec, &wanted, runs);
        Some(match kept == wanted || is_admitted {
            false => Standing::Waiting(kept),
            // The first template of all is no change of an image.
            true if there.meta.generation > 1 && !is_complete(there) => Standing::Rolling,
            true => Standing::Settled,
        })
    }
}

/// Returns whether the Memcached controls a Deployment, or is about to adopt it: its pods run.
fn is_of(deployment: &Deployment, memcached: &Memcached, wanted: &Images) -> bool {
    let meta = &deployment.meta;
    let is_orphan = || {
        let labels = desired(memcached, wanted).deployment.labels;
        meta.owner.is_none() && are_of_same(&meta.labels, &labels)
    };
    meta.is_controlled_by(memcached.meta.uid) || is_orphan()
}

fn has_administrators_exporter(spec: &Spec) -> bool {
    spec.exporter.as_ref().is_some_and(|exporter| exporter.image.is_empty())
}

/// The images of a Deployment's template.
fn running(deployment: &Deployment) -> Option<Images> {
    let containers = &deployment.spec.template.spec.containers;
    let of = |name| containers.iter().find(|one| one.name == name).map(|one| one.image.clone());
    Some(Images { memcached: of(MEMCACHED)?, exporter: of(EXPORTER) })
}

/// The images that it has, but for those of its own.
fn kept(spec: &Spec, wanted: &Images, runs: Images) -> Images {
    let (memcached, exporter) = (wanted.memcached.clone(), wanted.exporter.clone());
    Images {
        memcached: if spec.image.is_empty() { runs.memcached } else { memcached },
        exporter: if has_administrators_exporter(spec) { runs.exporter } else { exporter },
    }
}

/// Returns whether all pods are of the newest template, and available.
fn is_complete(deployment: &Deployment) -> bool {
    let (status, wanted) = (&deployment.status, deployment.spec.replicas);
    deployment.is_observed()
        && status.updated_replicas >= wanted
        && status.replicas <= status.updated_replicas
        && status.available_replicas >= wanted
}

#[cfg(test)]
mod tests;
