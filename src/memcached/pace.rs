//! The pace of new images: how many Memcacheds get the administrator's new image at a time.
//!
//! Guarantees
//! - A bounded number of Memcacheds, at least 1, gets the administrator's new image at a time, in the order of
//!   namespace and name. Each keeps its turn until all of its pods run the image and are available. If the image
//!   crashes or cannot be pulled, it keeps the turn until that is solved, so such an image reaches only these.
//! - No Memcached can stop the others. A turn ends with the deadline of its Deployment if its pods fail for another
//!   reason, or if a user has changed its spec since. A turn that is not used, or whose write is refused, passes to
//!   the next Memcached.
//! - The others keep the images of their Deployment and name those that have the turns. The rest of their spec
//!   applies at once.
//! - The bound holds for concurrent reconciles and after a restart: the Deployments show the rollouts.
//! - A Memcached without a cache to lose takes no turn: a new one, one without pods, and one that had a problem
//!   before. The same applies if its user replaces the pods by adding or removing the exporter, and to an image of
//!   its own. A Memcached whose own rollout is in progress waits until it is complete.
//! - A Memcached on which an image of the administrator's has failed gets the next image immediately. The others wait
//!   until its pods are available.
//! - A paused Memcached takes no turn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pod::EXPORTER;
use super::{Images, MEMCACHED, Memcached, Settings, Spec, desired};
use crate::controller::{Action, ReconcileError};
use crate::manager::Context;
use crate::object::{InternedStr, Object, ObjectKey};
use crate::workload::custom_resource::is_paused;
use crate::workload::health::Health;
use crate::workload::labels::are_of_same;
use crate::workload::progress::reported;
use crate::workload::sentence::{counted, join};
use crate::workload::{ChildCondition, Deployment};

/// Time until a waiting Memcached is reconciled again.
const AGAIN: Duration = Duration::from_secs(5);
/// The same time for a Memcached with many others ahead of it.
const LATER: Duration = Duration::from_secs(60);
/// Time for which a Memcached whose Deployment could not be written gets a turn only if no other wants it.
const REFUSED: Duration = Duration::from_secs(300);
/// Maximum time between two scans of all Memcacheds while some wait.
const LOOK: Duration = Duration::from_secs(1);
/// Time without a scan after which the turns are derived from the Deployments again: nobody waited, or another
/// process led.
const OUTDATED: Duration = Duration::from_secs(30);
/// Time after which a turn that a Memcached has not taken passes to the next one.
const UNCLAIMED: Duration = Duration::from_secs(30);
/// Kubernetes' default of `progressDeadlineSeconds`.
const DEADLINE: u64 = 600;
/// Maximum number of names in a message.
const NAMED: usize = 3;
/// Number of waiting Memcacheds that name those with a turn.
const NEAR: usize = 10;

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
    /// True if no Memcached waits.
    is_unlimited: bool,
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

/// State of a Memcached that runs an image of the administrator's.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It needs no turn.
    Idle,
    /// It has the images, and the rollout of its Deployment is in progress.
    Rolling(Rolling),
    /// It needs a turn, and keeps these images until then.
    Waiting(Images),
    /// It keeps these images until its own rollout is complete, and then needs a turn.
    Unready(Images),
}

/// A rollout of an image of the administrator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rolling {
    /// The generation of the Memcached.
    generation: i64,
    /// True if the status names a container that crashes or cannot be pulled with such an image.
    fails: bool,
    /// True if the Deployment's deadline has passed.
    late: bool,
    /// The longest time of the rollout: a deadline for each pod.
    longest: Duration,
}

/// The turn of a Memcached.
#[derive(Debug)]
struct Turn {
    since: Instant,
    /// The rollout, once it is seen.
    rolling: Option<Rolling>,
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
    waiting: BTreeSet<ObjectKey>,
    granted: BTreeMap<ObjectKey, Turn>,
    /// Memcacheds whose objects could not be written, with the time until which the others come first.
    refused: HashMap<ObjectKey, Instant>,
    /// Waiting Memcacheds that were next and have not asked for their turn since this time.
    unclaimed: HashMap<ObjectKey, Instant>,
    admitted: HashMap<ObjectKey, Admitted>,
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

    /// Returns a pace that makes no Memcached wait.
    pub fn unlimited() -> Pace {
        Pace { is_unlimited: true, ..Pace::default() }
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
    ) -> Result<Given, ReconcileError> {
        let (memcached, key, at) = (cx.object(), cx.key(), Instant::now());
        let now = |images| Ok(Given { images, waits: None });
        if self.is_unlimited {
            return now(wanted);
        }
        {
            let mut turns = self.turns.lock();
            // Before this process changes a Deployment, which others would take for a rollout with a turn.
            if turns.looked.is_none() {
                turns.look(cx, settings, at)?;
            }
        }
        let there = cx.get::<Deployment>(key)?.filter(|there| is_of(there, memcached, &wanted));
        let Some(there) = there else { return now(wanted) };
        let standing = {
            let turns = self.turns.lock();
            Standing::of(memcached, Some(&there), settings, turns.admitted.get(key))
        };
        let (kept, is_unready) = match standing {
            Some(Standing::Waiting(kept)) => (kept, false),
            Some(Standing::Unready(kept)) => (kept, true),
            _ => return now(wanted),
        };
        // Admission changed the images when they were applied.
        if desired(memcached, &wanted).deployment.is_ensured(cx, &there)? {
            self.applied(key, &wanted, &there);
            return now(wanted);
        }
        let mut turns = self.turns.lock();
        let is_recent = turns.looked.is_some_and(|looked| at.duration_since(looked) < LOOK);
        if !is_recent || !is_unready && !turns.waiting.contains(key) {
            turns.look(cx, settings, at)?;
        }
        let to = kept.differences(&wanted);
        let (image, wait) = match &to[..] {
            [one] => (format!("image {one}"), "waits"),
            more => (format!("images {}", more.join(" and ")), "wait"),
        };
        if is_unready {
            let waits = format!("{image} {wait} until the current rollout is complete");
            return Ok(Given { images: kept, waits: Some((waits, AGAIN)) });
        }
        if turns.grant(key, self.limit, at) {
            return now(wanted);
        }
        let limit = self.limit.of(turns.all);
        let ahead = turns.waiting.range(..key).count();
        let again = if ahead < 10 * limit { AGAIN } else { LATER };
        // The names change with each turn, and each change is a status. Those far behind name nobody.
        let holders = if ahead < NEAR { turns.holders() } else { String::new() };
        let most = counted(limit, "Memcached changes", "Memcacheds change");
        let waits = format!("{image} {wait}: at most {most} at a time{holders}");
        Ok(Given { images: kept, waits: Some((waits, again)) })
    }

    /// Records that an object of a Memcached could not be written. It returns its turn, and the others come first for a
    /// while.
    pub(super) fn refused(&self, key: &ObjectKey) {
        let mut turns = self.turns.lock();
        if turns.granted.remove(key).is_some() || turns.waiting.contains(key) {
            turns.refused.insert(key.clone(), Instant::now() + REFUSED);
        }
    }

    /// Forgets a Memcached that is being deleted.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.turns.lock().admitted.remove(key);
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
        // A message that is kept from the former status reports the former wait.
        let message = without_wait(&health.message);
        let message = match &self.waits {
            Some((waits, _)) if health.trouble().is_none() => join(message, waits),
            _ => message.to_owned(),
        };
        Health { message, ..health }
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

/// Returns a message without the part that reports a wait.
fn without_wait(message: &str) -> &str {
    let begin = |start: &str| message.find(start).filter(|at| message[*at..].contains(" wait"));
    let at = ["; image ", "; images ", " Image ", " Images "].into_iter().filter_map(begin).min();
    at.map_or(message, |at| &message[..at])
}

// === impl Turns ===

impl Turns {
    /// Scans all Memcacheds.
    fn look(
        &mut self,
        cx: &Context<Memcached>,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), ReconcileError> {
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
        self.update(found, now);
        Ok(())
    }

    /// Records all Memcacheds that run an image of the administrator's.
    fn update(&mut self, found: Vec<(ObjectKey, Standing)>, now: Instant) {
        let is_outdated = self.looked.is_none_or(|looked| now.duration_since(looked) > OUTDATED);
        self.looked = Some(now);
        self.all = found.len();
        self.waiting.clear();
        let mut before = std::mem::take(&mut self.granted);
        for (key, standing) in found {
            let turn = before.remove(&key);
            let turn = match standing {
                Standing::Idle => None,
                // A turn begins before the Deployment has the images.
                Standing::Unready(_) => turn.filter(|turn| !turn.is_over(now)),
                Standing::Waiting(_) => {
                    self.waiting.insert(key.clone());
                    turn.filter(|turn| !turn.is_over(now))
                }
                Standing::Rolling(rolling) => turn
                    .or_else(|| is_outdated.then_some(Turn { since: now, rolling: None }))
                    .and_then(|turn| turn.rolls(&rolling, now)),
            };
            self.granted.extend(turn.map(|turn| (key, turn)));
        }
        self.unclaimed.retain(|key, _| self.waiting.contains(key));
    }

    /// Returns whether this Memcached has a turn. If it is next and a turn is free, it gets the turn.
    fn grant(&mut self, key: &ObjectKey, limit: Limit, now: Instant) -> bool {
        let free = limit.of(self.all).saturating_sub(self.granted.len());
        self.refused.retain(|_, until| now < *until);
        self.unclaimed.remove(key);
        let is_silent = |key: &ObjectKey| {
            let since = self.unclaimed.get(key);
            since.is_some_and(|since| now.duration_since(*since) >= UNCLAIMED)
        };
        let may_have_one = |key: &&ObjectKey| {
            let has_one = self.granted.contains_key(*key);
            !has_one && !self.refused.contains_key(*key) && !is_silent(key)
        };
        let next: Vec<ObjectKey> =
            self.waiting.iter().filter(may_have_one).take(free).cloned().collect();
        // If no other wants the turn, one that was refused tries again with its own backoff, and says why.
        let tries_again = next.len() < free
            && self.waiting.contains(key)
            && self.refused.contains_key(key)
            && !self.granted.contains_key(key);
        if next.contains(key) || tries_again {
            self.granted.insert(key.clone(), Turn { since: now, rolling: None });
        } else {
            for key in next {
                self.unclaimed.entry(key).or_insert(now);
            }
        }
        self.granted.contains_key(key)
    }

    /// Returns the Memcacheds that have the turns, as the end of a sentence.
    fn holders(&self) -> String {
        let names: Vec<String> = self.granted.keys().take(NAMED).map(ToString::to_string).collect();
        let more = if self.granted.len() > NAMED { ", …" } else { "" };
        if names.is_empty() { String::new() } else { format!(", now {}{more}", names.join(", ")) }
    }
}

// === impl Turn ===

impl Turn {
    /// Returns the turn of a Memcached with this rollout, unless it is over.
    fn rolls(self, rolling: &Rolling, now: Instant) -> Option<Turn> {
        let former = self.rolling.as_ref();
        let is_changed = former.is_some_and(|former| former.generation != rolling.generation);
        let generation = former.map_or(rolling.generation, |former| former.generation);
        // Once the image has failed, the status can name another cause for a moment.
        let fails = !is_changed && (rolling.fails || former.is_some_and(|former| former.fails));
        let late = rolling.late;
        let rolling = Some(Rolling { generation, fails, ..*rolling });
        let turn = Turn { rolling, ..self };
        (fails || !late && !turn.is_over(now)).then_some(turn)
    }

    /// Returns whether the turn has taken longer than any rollout.
    fn is_over(&self, now: Instant) -> bool {
        let default = Duration::from_secs(DEADLINE);
        let longest = self.rolling.as_ref().map_or(default, |rolling| rolling.longest);
        now.duration_since(self.since) >= longest
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
        if !spec.own_image().is_empty() && !has_administrators_exporter(spec) {
            return None;
        }
        let there = deployment.filter(|there| is_of(there, memcached, &wanted));
        let Some((there, runs)) = there.and_then(|there| Some((there, running(there)?))) else {
            return Some(Standing::Idle);
        };
        let has_no_cache = spec.size == 0 || there.spec.replicas == 0;
        let changes_pods = runs.exporter.is_some() != wanted.exporter.is_some();
        if is_paused(meta) || meta.is_terminating || has_no_cache || changes_pods {
            return Some(Standing::Idle);
        }
        let is_admitted =
            admitted.is_some_and(|(applied, made)| *applied == wanted && *made == runs);
        let fails = has_failed(memcached, &[&wanted, &runs]);
        let kept = kept(spec, &wanted, runs);
        let has_a_problem = || reported(memcached).is_some_and(|health| health.trouble().is_some());
        let rolling = |fails, late| {
            let seconds = there.spec.progress_deadline_seconds;
            let seconds =
                seconds.map_or(DEADLINE, |seconds| u64::try_from(seconds).unwrap_or(DEADLINE));
            let pods = there.spec.replicas.max(1).unsigned_abs();
            let longest = Duration::from_secs(seconds) * pods;
            Standing::Rolling(Rolling { generation: meta.generation, fails, late, longest })
        };
        Some(match kept == wanted || is_admitted {
            false if is_complete(there) || !there.is_observed() => Standing::Waiting(kept),
            // The former image has emptied its cache. It gets the next one now, and the others wait for it.
            false if fails => rolling(false, false),
            false if has_a_problem() => Standing::Idle,
            false => Standing::Unready(kept),
            // The first template is not a change of an image.
            true if there.meta.generation > 1 && is_rolling(there) => {
                rolling(fails, is_late(there))
            }
            true => Standing::Idle,
        })
    }
}

/// Returns whether the status names a container that crashes, cannot be started or cannot be pulled, with one of
/// these images of the administrator's.
fn has_failed(memcached: &Memcached, images: &[&Images]) -> bool {
    let Some(health) = reported(memcached).filter(|health| health.trouble().is_some()) else {
        return false;
    };
    let spec = &memcached.spec;
    let names = |what: &str| {
        health.message.split_once(what).is_some_and(|(_, rest)| {
            !rest
                .starts_with(|next: char| next.is_alphanumeric() || ['-', '_', '/'].contains(&next))
        })
    };
    let fails = |container: &str, image: Option<&InternedStr>| {
        names(&format!("crashes: container {container}"))
            || names(&format!("cannot start container {container}"))
            || image.is_some_and(|image| names(&format!("cannot pull image {image}")))
    };
    images.iter().any(|images| {
        spec.own_image().is_empty() && fails(MEMCACHED, Some(&images.memcached))
            || has_administrators_exporter(spec) && fails(EXPORTER, images.exporter.as_ref())
    })
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

/// Returns the images of a stored Deployment, and those of the spec. They apply while an administrator's image is not
/// configured.
pub(super) fn stored(spec: &Spec, there: &Deployment) -> Option<Images> {
    let runs = running(there)?;
    let own = |image: &InternedStr| Some(image.clone()).filter(|image| !image.is_empty());
    let exporter = spec.exporter.as_ref();
    Some(Images {
        memcached: own(&spec.own_image()).unwrap_or(runs.memcached),
        exporter: exporter
            .and_then(|exporter| own(&spec.own_exporter_image(exporter)).or(runs.exporter)),
    })
}

fn has_administrators_exporter(spec: &Spec) -> bool {
    spec.exporter.as_ref().is_some_and(|it| spec.own_exporter_image(it).is_empty())
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
        memcached: if spec.own_image().is_empty() { runs.memcached } else { memcached },
        exporter: if has_administrators_exporter(spec) { runs.exporter } else { exporter },
    }
}

/// Returns whether a rollout of the newest template is in progress. After it has completed once, missing pods are
/// not a rollout.
fn is_rolling(deployment: &Deployment) -> bool {
    let status = &deployment.status;
    let completed = status
        .condition("Progressing")
        .is_some_and(|condition| condition.reason == "NewReplicaSetAvailable");
    let is_over = completed && status.updated_replicas >= status.replicas;
    !deployment.is_observed() || !is_complete(deployment) && !is_over
}

/// Returns whether the Deployment controller reports that the rollout has passed its deadline.
fn is_late(deployment: &Deployment) -> bool {
    let progressing = deployment.status.condition("Progressing");
    let is = |condition: &ChildCondition| condition.reason == "ProgressDeadlineExceeded";
    deployment.is_observed() && progressing.is_some_and(is)
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
