//! Asks the API server who may read the metrics, as controller-runtime's metrics server does:
//! a TokenReview says whose a token is, a SubjectAccessReview whether they have the right.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::guard::{Guard, Refusal};
use crate::client::{Client, Error};
use crate::object::Kind;

/// Time for which an answer is trusted. A revoked token keeps working for up to that long.
const BELIEVED: Duration = Duration::from_secs(60);
/// Number of answers that are remembered: of tokens that are admitted, and as many of others.
const REMEMBERED: usize = 128;
/// Concurrent questions: sending bad tokens does not get the API server asked any faster.
const ASKING: usize = 2;
/// Requests that may wait for that. More are refused at once: they would take the connections of a probe
/// on the same address.
const WAITING: usize = 8;

const TOKEN: Kind =
    Kind::cluster_scoped("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
const ACCESS: Kind = Kind::cluster_scoped(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
);

/// Admits whoever the API server says may `get` the path `/metrics`.
///
/// Needs the rights to create `tokenreviews.authentication.k8s.io` and
/// `subjectaccessreviews.authorization.k8s.io`. Answers are trusted for a minute.
pub struct Reviews {
    client: Client,
    /// By the hash of token and question: no token is kept. Two hashes with random keys, so that
    /// a second token with the same hashes cannot be found.
    known: Mutex<Known>,
    hashers: [RandomState; 2],
    asking: Semaphore,
    waiting: Semaphore,
    /// For those who were admitted before: whoever tries tokens does not keep them from being asked about.
    renewing: Semaphore,
}

/// The answers to questions. Those who are admitted have a map of their own: whoever tries tokens cannot
/// push them out.
#[derive(Default)]
struct Known {
    admitted: HashMap<(u64, u64), Answer>,
    refused: HashMap<(u64, u64), Answer>,
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
struct Access {
    allowed: bool,
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
            waiting: Semaphore::new(WAITING),
            renewing: Semaphore::new(WAITING),
        }
    }

    async fn decide(&self, token: &str, verb: &str, path: &str) -> Result<(), Refusal> {
        let question = (token, verb, path);
        let key = (self.hashers[0].hash_one(question), self.hashers[1].hash_one(question));
        if let Some(answer) = self.recall(key) {
            return answer;
        }
        let was_admitted = self.known.lock().admitted.contains_key(&key);
        let places = if was_admitted { &self.renewing } else { &self.waiting };
        let Ok(_waiting) = places.try_acquire() else { return Err(Refusal::Unknown) };
        // The semaphore is never closed.
        let _turn = self.asking.acquire().await;
        if let Some(answer) = self.recall(key) {
            return answer;
        }
        let answer = self.ask(token, verb, path).await;
        // An answer that is not known now may be known in a moment.
        if answer != Err(Refusal::Unknown) {
            self.remember(key, answer);
        }
        answer
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<(), Refusal> {
        let Identity { authenticated, user } =
            self.review(&TOKEN, &json!({ "token": token })).await?;
        if !authenticated || user.username.is_empty() {
            return Err(Refusal::Unauthenticated);
        }
        let attributes = json!({"path": path, "verb": verb});
        let spec = json!({"user": user.username, "uid": user.uid, "groups": user.groups,
            "extra": user.extra, "nonResourceAttributes": attributes});
        let Access { allowed } = self.review(&ACCESS, &spec).await?;
        if allowed { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    async fn review<S: DeserializeOwned>(&self, kind: &Kind, spec: &Value) -> Result<S, Refusal> {
        self.client.review(kind, spec).await.map_err(|error| {
            // The error itself is not logged: the API server's answer quotes the token.
            let resource = kind.resource();
            match error {
                Error::Api { code: 403, .. } => {
                    tracing::error!(
                        resource,
                        "Cannot ask who may read metrics: {}",
                        self.client.identity().remedies().reviews
                    );
                }
                _ => tracing::debug!(
                    resource,
                    code = error.code(),
                    "Could not ask who may read metrics"
                ),
            }
            Refusal::Unknown
        })
    }

    fn recall(&self, key: (u64, u64)) -> Option<Result<(), Refusal>> {
        let known = self.known.lock();
        let fresh = |(at, _): &&Answer| at.elapsed() < BELIEVED;
        let admitted = known.admitted.get(&key).filter(fresh);
        admitted.or_else(|| known.refused.get(&key).filter(fresh)).map(|(_, answer)| *answer)
    }

    fn remember(&self, key: (u64, u64), answer: Result<(), Refusal>) {
        let mut known = self.known.lock();
        let Known { admitted, refused } = &mut *known;
        let (known, other) = if answer.is_ok() { (admitted, refused) } else { (refused, admitted) };
        other.remove(&key);
        if known.len() >= REMEMBERED {
            known.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        }
        // If it is still full of fresh ones, somebody is trying tokens. Those are asked about each
        // time.
        if known.len() < REMEMBERED {
            known.insert(key, (Instant::now(), answer));
        }
    }
}

impl Guard for Reviews {
    fn admit<'a>(
        &'a self,
        bearer: Option<&'a str>,
        verb: &'a str,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>> {
        Box::pin(async move {
            match bearer {
                Some(token) if !token.is_empty() => self.decide(token, verb, path).await,
                _ => Err(Refusal::Unauthenticated),
            }
        })
    }
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
