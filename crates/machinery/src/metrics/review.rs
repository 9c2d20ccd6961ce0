//! Authorization of metrics requests, as in controller-runtime's metrics server: a TokenReview returns the user of a
//! token, a SubjectAccessReview whether the user has permission.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client::Client;
use crate::object::Kind;

/// Time for which a result is cached. A revoked token remains valid for up to this time.
const BELIEVED: Duration = Duration::from_secs(60);
/// Number of cached results.
const REMEMBERED: usize = 256;
/// Number of concurrent reviews of tokens that were not admitted before. Further requests are refused at once, so that
/// a client that guesses tokens can neither overload the API server nor use all connections.
const ASKING: usize = 4;

const TOKEN: Kind =
    Kind::cluster_scoped("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
const ACCESS: Kind = Kind::cluster_scoped(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
);

/// Decides who reads the metrics. Health is always public: the kubelet has no token.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Authorizer {
    /// Everyone. For a loopback address, or behind a component that authorizes requests.
    Open,
    /// Users whom the API server authorizes.
    Delegated(Arc<DelegatedAuthorizer>),
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// No token, or an invalid one.
    #[error("Unauthorized")]
    Unauthenticated,
    /// A valid token without permission.
    #[error("Forbidden")]
    Forbidden,
    /// The review is not possible now.
    #[error("the API server cannot be asked")]
    Unknown,
}

/// A filter that admits users who can `get` the path `/metrics` according to the API server.
///
/// It needs permission to create `tokenreviews.authentication.k8s.io` and `subjectaccessreviews.authorization.k8s.io`.
/// Results are cached for a minute.
pub struct DelegatedAuthorizer {
    client: Client,
    /// Results by the hash of the token, because no token is stored. Two hashes with random keys prevent an attacker
    /// from finding another token with the same hashes.
    known: Mutex<HashMap<(u64, u64), Answer>>,
    hashers: [RandomState; 2],
    asking: Semaphore,
    /// True if it was logged that the permission to review is missing.
    is_reported: AtomicBool,
}

/// Time of a review and its result.
type Answer = (Instant, Result<(), Refusal>);

// === impl Authorizer ===

impl Authorizer {
    /// Returns whether this token gives access to the metrics. `bearer` follows `Authorization: Bearer`.
    pub(super) async fn admit(&self, bearer: Option<&str>) -> Result<(), Refusal> {
        match self {
            Authorizer::Open => Ok(()),
            Authorizer::Delegated(reviews) => reviews.admit(bearer).await,
        }
    }
}

// === impl DelegatedAuthorizer ===

impl DelegatedAuthorizer {
    /// Creates a filter that reviews tokens through `client`. It bypasses the client's gate, because the metrics of a
    /// standby are read, too.
    pub fn new(client: Client) -> DelegatedAuthorizer {
        DelegatedAuthorizer {
            client,
            known: Mutex::default(),
            hashers: Default::default(),
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
        // No limit for tokens admitted before: guessed tokens cannot block their renewal.
        let _turn = match known {
            Some((_, Ok(()))) => None,
            _ => Some(self.asking.try_acquire().map_err(|_| Refusal::Unknown)?),
        };
        let answer = self.ask(token).await;
        // An unknown result is not cached: the next review can succeed.
        if answer != Err(Refusal::Unknown) {
            self.remember(key, answer);
        }
        answer
    }

    fn key(&self, token: &str) -> (u64, u64) {
        (self.hashers[0].hash_one(token), self.hashers[1].hash_one(token))
    }

    async fn ask(&self, token: &str) -> Result<(), Refusal> {
        let token: TokenReviewStatus = self.review(&TOKEN, &json!({ "token": token })).await?;
        let user = token.user.filter(|_| token.authenticated == Some(true)).unwrap_or_default();
        if user.username.as_deref().unwrap_or_default().is_empty() {
            return Err(Refusal::Unauthenticated);
        }
        let attributes = json!({"path": "/metrics", "verb": "get"});
        let spec = json!({"user": user.username, "uid": user.uid, "groups": user.groups,
            "extra": user.extra, "nonResourceAttributes": attributes});
        let access: SubjectAccessReviewStatus = self.review(&ACCESS, &spec).await?;
        self.is_reported.store(false, Ordering::Relaxed);
        if access.allowed { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    async fn review<S: DeserializeOwned>(&self, kind: &Kind, spec: &Value) -> Result<S, Refusal> {
        self.client.review(kind, spec).await.map_err(|error| {
            // The error is not logged, because the response of the API server quotes the token.
            let resource = kind.resource();
            let is_forbidden = error.is_forbidden() && !error.is_transient_refusal();
            if is_forbidden && !self.is_reported.swap(true, Ordering::Relaxed) {
                let remedy = self.client.identity().hints().reviews;
                tracing::error!(resource, "Cannot authorize metrics requests: {remedy}");
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
            // An admitted token replaces refusals; it stays in the cache even after its result has expired.
            known.retain(|_, (at, known)| known.is_ok() || answer.is_err() && is_fresh(*at));
            if answer.is_ok() && known.len() >= REMEMBERED {
                known.retain(|_, (at, _)| is_fresh(*at));
            }
            // If the cache is still full, a client is guessing tokens. These are not cached.
            if known.len() >= REMEMBERED {
                return;
            }
        }
        known.insert(key, (Instant::now(), answer));
    }
}

opaque!(DelegatedAuthorizer);

#[cfg(test)]
mod tests;
