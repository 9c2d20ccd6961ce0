//! The sink, which writes waiting Events.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::correlate::{Correlator, Job};
use super::recorder::{Dropped, Event, Shared};
use super::{FLUSH, Regarding, TRIES};
use crate::client::{Client, Error};
use crate::identity::Identity;
use crate::object::{InternedStr, Kind, Meta, ObjectKey, Uid};

/// Pause before the second attempt; doubled before the third.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum of a server's Retry-After: Events do not justify a longer wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The writer of Events. It must run for Events to be written.
#[must_use = "Events are written only while the sink runs"]
pub struct Sink {
    shared: Arc<Shared>,
    /// True if a refusal by RBAC was logged: it is not logged again until a write succeeds.
    forbidden: bool,
}

/// Operations that the sink needs from a client.
trait Api: Sync {
    fn create(&self, job: &Job, by: &Shared) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Api for Client {
    async fn create(&self, job: &Job, by: &Shared) -> Result<(), Error> {
        let body = event_body(job, &by.program, &by.instance);
        Client::create::<Written>(self, &event_key(job), &body).await.map(drop)
    }
}

/// A write that has ended.
type Ended = (Arc<Event>, Result<(), (Dropped, Error)>);

/// Meaning of an error.
enum Meaning {
    /// It was written before; the response was lost.
    Written,
    Again(Duration),
    Lost(Dropped),
}

opaque!(Sink);

// === impl Sink ===

impl Sink {
    pub(super) fn new(shared: Arc<Shared>) -> Sink {
        Sink { shared, forbidden: false }
    }

    /// Writes Events until `stop`, then the waiting ones, for at most [`FLUSH`]. `stop` must complete after the workers
    /// have drained and before leadership is released, because Events are writes, too.
    pub async fn run(self, client: Client, stop: impl Future<Output = ()> + Send) {
        self.run_with(&client, stop).await;
    }

    async fn run_with(self, api: &impl Api, stop: impl Future<Output = ()> + Send) {
        let Sink { shared, mut forbidden } = self;
        let mut under_way = FuturesUnordered::new();
        let (mut stop, mut end) = (std::pin::pin!(stop), std::pin::pin!(sleep(FLUSH)));
        let mut stopping = false;
        let take = || shared.correlator.lock().as_mut().and_then(Correlator::take);
        loop {
            while let Some(job) = take() {
                under_way.push(write(api, job, &shared));
            }
            if stopping && under_way.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = &mut stop, if !stopping => {
                    stopping = true;
                    end.as_mut().reset(Instant::now() + FLUSH);
                }
                () = &mut end, if stopping => break,
                Some(ended) = under_way.next() => finish(&shared, &mut forbidden, ended),
                () = shared.wake.notified() => {}
            }
        }
        drop(under_way);
        close(&shared);
    }
}

/// Repeats a write until its outcome is known.
async fn write(api: &impl Api, job: Job, by: &Shared) -> Ended {
    let mut pause = PAUSE;
    let mut tries = 1;
    let lost = loop {
        let Err(error) = api.create(&job, by).await else { return (job.said, Ok(())) };
        match meaning(&error) {
            Meaning::Written => return (job.said, Ok(())),
            Meaning::Lost(why) => break (why, error),
            Meaning::Again(_) if tries >= TRIES => break (Dropped::Failed, error),
            Meaning::Again(asked) => sleep(pause.max(asked).min(LONGEST_PAUSE)).await,
        }
        tries += 1;
        pause *= 2;
    };
    (job.said, Err(lost))
}

fn meaning(error: &Error) -> Meaning {
    match error {
        Error::NotPermitted(_) => Meaning::Lost(Dropped::NotLeading),
        Error::Api { reason, .. } if reason == "AlreadyExists" => Meaning::Written,
        Error::Api { code: 404, .. } => Meaning::Lost(Dropped::NamespaceGone),
        // The text of the API server (apiserver/pkg/admission/plugin/namespace/lifecycle).
        Error::Api { code: 403, message, .. } if message.contains("it is being terminated") => {
            Meaning::Lost(Dropped::NamespaceGone)
        }
        error if error.is_transient_refusal() => Meaning::Again(Duration::ZERO),
        // A quota of Events or a policy, not a missing permission.
        error if error.is_quota_exceeded() || error.is_denied() => Meaning::Lost(Dropped::Failed),
        Error::Api { code: 403, .. } => Meaning::Lost(Dropped::Forbidden),
        Error::Api { code: 401 | 409 | 429 | 500.., retry_after, .. } => {
            Meaning::Again(retry_after.unwrap_or_default())
        }
        Error::Api { .. } => Meaning::Lost(Dropped::Failed),
        // Without a response, it may have been written. Its name makes a second attempt safe.
        _ => Meaning::Again(Duration::ZERO),
    }
}

/// Reports the result of a write to the correlator, the metrics and the log.
fn finish(shared: &Shared, forbidden: &mut bool, (said, result): Ended) {
    let is_written = result.is_ok();
    match result {
        Ok(()) => *forbidden = false,
        Err((why, error)) => {
            shared.dropped(why);
            if why != Dropped::Forbidden {
                tracing::debug!(?why, %error, regarding = %said.regarding.key,
                    reason = &*said.reason, "Event not written");
            } else if !std::mem::replace(forbidden, true) {
                tracing::error!(%error, "Cannot write Events: {}", shared.program.hints().permissions);
            }
        }
    }
    if let Some(correlator) = &mut *shared.correlator.lock() {
        correlator.finish(&said, is_written);
    }
}

/// Closes the recorder. Waiting and running writes are counted as lost, as are later Events.
fn close(shared: &Shared) {
    let left = shared.correlator.lock().take().map_or(0, |correlator| correlator.busy());
    for _ in 0..left {
        shared.dropped(Dropped::Shutdown);
    }
    if left > 0 {
        tracing::debug!(left, "Events were not written before the end");
    }
}

/// The part of a response that is read: the metadata, to confirm that it is an Event.
#[derive(Debug, serde::Deserialize)]
struct Written {
    metadata: Meta,
}

crate::view!(Written: Kind::namespaced("events.k8s.io", "v1", "Event", "events"));

/// The body of a create.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Meta,
    event_time: String,
    reporting_controller: String,
    reporting_instance: &'a str,
    r#type: &'static str,
    reason: &'a str,
    action: &'a str,
    note: &'a str,
    regarding: Reference<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    api_version: &'a InternedStr,
    kind: &'a InternedStr,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a InternedStr,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
}

/// Returns the key of the Event of `job`: in the object's namespace, or in `default` for a cluster-scoped object (the
/// API server requires `default` or `kube-system`).
fn event_key(job: &Job) -> ObjectKey {
    let namespace = job.said.regarding.key.namespace();
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    ObjectKey::new(namespace, &job.name)
}

/// Returns the Event of `job`, to be created.
fn event_body<'a>(job: &'a Job, program: &Identity, instance: &'a str) -> Body<'a> {
    let said = &job.said;
    let Regarding { api_version, kind, key: about, uid } = &said.regarding;
    Body {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        metadata: Meta::named(event_key(job)),
        // metav1.MicroTime: exactly six digits after the point.
        event_time: format!("{:.6}", job.at),
        reporting_controller: program.event_source(said.controller),
        reporting_instance: instance,
        r#type: said.kind.as_str(),
        reason: &said.reason,
        action: &said.action,
        note: &said.note,
        regarding: Reference {
            api_version,
            kind,
            namespace: about.namespace(),
            name: about.name(),
            uid: uid.is_some().then_some(*uid),
        },
    }
}

#[cfg(test)]
mod tests;
