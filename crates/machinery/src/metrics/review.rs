//! Who may read the metrics. The API server is asked as controller-runtime's metrics server does:
//! a TokenReview says whose a token is, a SubjectAccessReview whether they have the right.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client::{Client, Error};
use crate::object::Kind;

/// Time for which an answer is trusted. A revoked token keeps working for up to that long.
const BELIEVED: Duration = Duration::from_secs(60);
/// Number of answers that are remembered.
const REMEMBERED: usize = 256;
/// Concurrent questions about tokens that were not admitted before. More are refused at once: whoever tries tokens
/// keeps neither the API server busy nor all connections.
const ASKING: usize = 4;

const TOKEN: Kind =
    Kind::cluster_scoped("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
const ACCESS: Kind = Kind::cluster_scoped(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
);

/// Who may read the metrics. Health is for everybody: the kubelet has no token.
#[derive(Debug, Clone)]
pub enum Access {
    /// Everybody: on a loopback address, or behind something else that decides.
    Open,
    /// Whoever the API server admits.
    Reviews(Arc<Reviews>),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// No token, or an invalid one.
    #[error("Unauthorized")]
    Unauthenticated,
    /// A valid token, but its bearer may not.
    #[error("Forbidden")]
    Forbidden,
    /// The answer cannot be determined now.
    #[error("the API server cannot be asked")]
    Unknown,
}

/// Admits whoever the API server says may `get` the path `/metrics`.
///
/// Needs the rights to create `tokenreviews.authentication.k8s.io` and
/// `subjectaccessreviews.authorization.k8s.io`. Answers are trusted for a minute.
pub struct Reviews {
    client: Client,
    /// By the hash of the token: no token is kept. Two hashes with random keys, so that a second token
    /// with the same hashes cannot be found.
    known: Mutex<HashMap<(u64, u64), Answer>>,
    hashers: [RandomState; 2],
    asking: Semaphore,
    /// It was logged that the right to ask is missing.
    is_reported: AtomicBool,
}

/// Time of an answer, and the answer.
type Answer = (Instant, Result<(), Refusal>);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Identity {
    authenticated: bool,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Permission {
    allowed: bool,
}

// === impl Access ===

impl Access {
    /// May the bearer of this token read the metrics? `bearer` is what follows `Authorization: Bearer`.
    pub(super) async fn admit(&self, bearer: Option<&str>) -> Result<(), Refusal> {
        match self {
            Access::Open => Ok(()),
            Access::Reviews(reviews) => reviews.admit(bearer).await,
        }
    }
}

// === impl Reviews ===

impl Reviews {
    /// Asks through `client`, bypassing its gate: a standby's metrics are read, too.
    pub fn new(client: Client) -> Reviews {
        Reviews {
            client,
            known: Mutex::default(),
            hashers: [RandomState::new(), RandomState::new()],
            asking: Semaphore::new(ASKING),
            is_reported: AtomicBool::new(false),
        }
    }

    async fn admit(&self, bearer: Option<&str>) -> Result<(), Refusal> {
        let token = bearer.filter(|token| !token.is_empty()).ok_or(Refusal::Unauthenticated)?;
        let key = self.key(token);
        let known = self.known.lock().get(&key).copied();
        if let Some((_, answer)) = known.filter(|(at, _)| at.elapsed() < BELIEVED) {
            return answer;
        }
        // Whoever was admitted is asked about in any case.
        let _turn = match known {
            Some((_, Ok(()))) => None,
            _ => Some(self.asking.try_acquire().map_err(|_| Refusal::Unknown)?),
        };
        let answer = self.ask(token).await;
        // An answer that is not known now may be known in a moment.
        if answer != Err(Refusal::Unknown) {
            self.remember(key, answer);
        }
        answer
    }

    fn key(&self, token: &str) -> (u64, u64) {
        (self.hashers[0].hash_one(token), self.hashers[1].hash_one(token))
    }

    async fn ask(&self, token: &str) -> Result<(), Refusal> {
        let Identity { authenticated, user } =
            self.review(&TOKEN, &json!({ "token": token })).await?;
        if !authenticated || user.username.is_empty() {
            return Err(Refusal::Unauthenticated);
        }
        let attributes = json!({"path": "/metrics", "verb": "get"});
        let spec = json!({"user": user.username, "uid": user.uid, "groups": user.groups,
            "extra": user.extra, "nonResourceAttributes": attributes});
        let Permission { allowed } = self.review(&ACCESS, &spec).await?;
        self.is_reported.store(false, Ordering::Relaxed);
        if allowed { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    async fn review<S: DeserializeOwned>(&self, kind: &Kind, spec: &Value) -> Result<S, Refusal> {
        self.client.review(kind, spec).await.map_err(|error| {
            // The error itself is not logged: the API server's answer quotes the token.
            let resource = kind.resource();
            let is_forbidden = matches!(error, Error::Api { code: 403, .. });
            if is_forbidden && !self.is_reported.swap(true, Ordering::Relaxed) {
                let remedy = self.client.identity().remedies().reviews;
                tracing::error!(resource, "Cannot ask who may read metrics: {remedy}");
            } else {
                let code = error.code();
                tracing::debug!(resource, code, "Could not ask who may read metrics");
            }
            Refusal::Unknown
        })
    }

    fn remember(&self, key: (u64, u64), answer: Result<(), Refusal>) {
        let mut known = self.known.lock();
        let is_fresh = |at: Instant| at.elapsed() < BELIEVED;
        if !known.contains_key(&key) && known.len() >= REMEMBERED {
            // Refusals give way to whoever is admitted, who stays known for longer than the answer is trusted.
            known.retain(|_, (at, known)| known.is_ok() || answer.is_err() && is_fresh(*at));
            if answer.is_ok() && known.len() >= REMEMBERED {
                known.retain(|_, (at, _)| is_fresh(*at));
            }
            // If it is still full of fresh ones, somebody is trying tokens. Those are asked about each
            // time.
            if known.len() >= REMEMBERED {
                return;
            }
        }
        known.insert(key, (Instant::now(), answer));
    }
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
