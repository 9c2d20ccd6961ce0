//! The pace of new images: how many Memcacheds get the administrator's new image at a time.
//!
//! Guarantees
//! - A bounded number of Memcacheds, at least 1, gets the administrator's new image at a time, in the order of
//!   namespace and name. Each counts until all of its pods run the image and are available, so an image that
//!   does not start reaches only these. A Memcached whose Deployment cannot be written returns its turn.
//! - The others keep the images of their Deployment and report this. The rest of their spec applies at once.
//! - The bound holds for concurrent reconciles and after a restart: the Deployments show the rollouts.
//! - A Memcached without a cache to lose does not wait: a new one, and one without pods. The same applies if
//!   its user replaces the pods by adding or removing the exporter, and to an image of its own.
//! - A paused Memcached takes no turn.

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

/// Time until a waiting Memcached is reconciled again.
const AGAIN: Duration = Duration::from_secs(5);
/// The same time for a Memcached with many others ahead of it.
const LATER: Duration = Duration::from_secs(60);
/// Time without a turn for a Memcached whose Deployment could not be written.
const REFUSED: Duration = Duration::from_secs(300);
/// Maximum time between two scans of all Memcacheds while some wait.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of Memcacheds that get new images at a time (`--max-image-rollouts`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A number.
    Number(usize),
    /// A percentage of the Memcacheds that run an image of the administrator's.
    Percentage(usize),
}

/// Grants turns to Memcacheds. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    limit: Limit,
    /// True if no Memcached waits, and the turns are only recorded.
    plans: bool,
    turns: Arc<Mutex<Turns>>,
}

/// Images for a reconcile.
#[derive(Debug)]
pub(super) struct Given {
    /// The images that the pods should run now.
    pub(super) images: Images,
    /// The message while the Memcached waits for its turn, and the time until its next reconcile.
    waits: Option<(String, Duration)>,
}

/// The order in which Memcacheds get new images.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rollouts {
    /// The new images.
    pub images: BTreeSet<InternedStr>,
    /// The Memcacheds, in this order.
    pub order: Vec<ObjectKey>,
    /// Maximum number of them at a time.
    pub at_a_time: usize,
}

/// State of a Memcached that runs an image of the administrator's.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It needs no turn.
    Idle,
    /// It has the images, but not all of its pods run them.
    Rolling,
    /// It needs a turn, and keeps these images until then.
    Waiting(Images),
}

/// Images that were applied, and the images after admission.
type Admitted = (Images, Images);

/// Granted and awaited turns.
#[derive(Debug, Default)]
struct Turns {
    /// Time of the last scan of all Memcacheds.
    looked: Option<Instant>,
    /// Number of Memcacheds that run an image of the administrator's.
    all: usize,
    rolling: usize,
    waiting: BTreeSet<ObjectKey>,
    /// Waiting Memcacheds that have a turn.
    granted: BTreeSet<ObjectKey>,
    /// Memcacheds whose Deployment could not be written, with the time until which they get no turn.
    refused: HashMap<ObjectKey, Instant>,
    admitted: HashMap<ObjectKey, Admitted>,
    /// New images of the Memcacheds that need a turn, for a plan.
    planned: BTreeMap<ObjectKey, Vec<InternedStr>>,
}

// === impl Limit ===

impl Default for Limit {
    fn default() -> Limit {
        Limit::Percentage(5)
    }
}

impl Limit {
    /// Returns the number of turns at a time, for this number of Memcacheds.
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
        .ok_or_else(|| format!("'{text}' must be a number of 1 or more, or 1% to 100%"))
    }
}

// === impl Pace ===

impl Pace {
    /// Returns a pace with this limit.
    pub fn new(limit: Limit) -> Pace {
        Pace { limit, ..Pace::default() }
    }

    /// Returns a pace that makes no Memcached wait, and records which ones would.
    pub fn plan(limit: Limit) -> Pace {
        Pace { limit, plans: true, ..Pace::default() }
    }

    /// Returns the recorded turns, if there are any.
    pub fn planned(&self) -> Option<Rollouts> {
        let turns = self.turns.lock();
        let images = turns.planned.values().flatten().cloned().collect();
        let order: Vec<ObjectKey> = turns.planned.keys().cloned().collect();
        let at_a_time = self.limit.of(turns.all);
        (!order.is_empty()).then_some(Rollouts { images, order, at_a_time })
    }

    /// Returns the images for a reconcile: the `wanted` ones or, until its turn, the current ones.
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
        let waits = format!("it runs {from} until it can change to {to} (--max-image-rollouts)");
        Ok(Given { images: kept, waits: Some((waits, again)) })
    }

    /// Records that the Deployment of a Memcached with a turn could not be written.
    pub(super) fn refused(&self, key: &ObjectKey) {
        let mut turns = self.turns.lock();
        if turns.granted.remove(key) {
            turns.refused.insert(key.clone(), Instant::now() + REFUSED);
        }
    }

    /// Records the Deployment that a reconcile with these images has applied.
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
    /// Returns the health. Unless there is a problem, its message reports the wait.
    pub(super) fn with_wait(&self, health: Health) -> Health {
        match &self.waits {
            Some((waits, _)) if health.trouble().is_none() => {
                Health { message: format!("{}; {waits}", health.message), ..health }
            }
            _ => health,
        }
    }

    /// Returns when to reconcile again.
    pub(super) fn again(&self) -> Action {
        self.waits.as_ref().map_or(Action::Done, |(_, again)| Action::RequeueAfter(*again))
    }

    /// Returns whether the images are the wanted ones.
    pub(super) fn is_final(&self) -> bool {
        self.waits.is_none()
    }
}

// === impl Turns ===

impl Turns {
    /// Scans all Memcacheds.
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

    /// Records all Memcacheds that run an image of the administrator's.
    fn update(&mut self, found: Vec<(ObjectKey, Standing)>) {
        self.all = found.len();
        self.rolling = found.iter().filter(|(_, is)| *is == Standing::Rolling).count();
        let waiting = found.into_iter().filter(|(_, is)| matches!(is, Standing::Waiting(_)));
        self.waiting = waiting.map(|(key, _)| key).collect();
        // A turn ends when the Deployment has the images. From then on it is rolling.
        self.granted.retain(|key| self.waiting.contains(key));
    }

    /// Returns whether this Memcached has a turn. If it is next and a turn is free, it gets the turn.
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
    /// Returns the standing of a Memcached with this Deployment; `None` if no image is the administrator's.
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
            return Some(Standing::Idle);
        };
        let has_no_cache = spec.size == 0 || there.spec.replicas == 0;
        let changes_pods = runs.exporter.is_some() != wanted.exporter.is_some();
        if is_paused(meta) || meta.deleting || has_no_cache || changes_pods {
            return Some(Standing::Idle);
        }
        let is_admitted =
            admitted.is_some_and(|(applied, made)| *applied == wanted && *made == runs);
        let kept = kept(spec, &wanted, runs);
        Some(match kept == wanted || is_admitted {
            false => Standing::Waiting(kept),
            // The first template is not a change of an image.
            true if there.meta.generation > 1 && !is_complete(there) => Standing::Rolling,
            true => Standing::Idle,
        })
    }
}

/// Returns whether the Memcached controls a Deployment or is about to adopt it. In both cases its pods run.
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

/// Returns the images of a Deployment's template.
fn running(deployment: &Deployment) -> Option<Images> {
    let containers = &deployment.spec.template.spec.containers;
    let of = |name| containers.iter().find(|one| one.name == name).map(|one| one.image.clone());
    Some(Images { memcached: of(MEMCACHED)?, exporter: of(EXPORTER) })
}

/// Returns the current images. An image of its own comes from the spec.
fn kept(spec: &Spec, wanted: &Images, runs: Images) -> Images {
    let (memcached, exporter) = (wanted.memcached.clone(), wanted.exporter.clone());
    Images {
        memcached: if spec.image.is_empty() { runs.memcached } else { memcached },
        exporter: if has_administrators_exporter(spec) { runs.exporter } else { exporter },
    }
}

/// Returns whether all pods have the newest template and are available.
fn is_complete(deployment: &Deployment) -> bool {
    let (status, wanted) = (&deployment.status, deployment.spec.replicas);
    deployment.is_observed()
        && status.updated_replicas >= wanted
        && status.replicas <= status.updated_replicas
        && status.available_replicas >= wanted
}

#[cfg(test)]
mod tests;
