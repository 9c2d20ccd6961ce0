//! Waits of a test, by watches.

use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::{EVENT, Kind, MEMCACHED, POD, World, conditions, is_ready};

enum Change {
    Is(Value),
    Gone,
    Reopened,
}

type Stream = std::pin::Pin<
    Box<dyn futures::Stream<Item = Result<WatchEvent<DynamicObject>, kube::Error>> + Send>,
>;

struct Watcher {
    api: Api<DynamicObject>,
    parameters: WatchParams,
    stream: Option<Stream>,
}

impl World {
    /// Waits until the object exists and satisfies `wanted`; returns it.
    pub async fn until(&self, kind: Kind, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let object = self.watch(kind, name, |object| object.is_some_and(&wanted)).await;
        object.expect("only an object that is there can be as wanted")
    }

    /// Changes a pod of a Memcached as the kubelet does if its node is short of memory: the pod remains,
    /// Failed, for inspection. Returns the Memcached, Ready again with a running replacement.
    pub async fn evict_a_pod(&self, memcached: &str) -> Value {
        let nodes = |m: &Value| m["status"]["nodes"].as_array().cloned().unwrap_or_default();
        let before = nodes(&self.until(MEMCACHED, memcached, is_ready).await);
        let evicted = before[0].as_str().expect("a name");
        let path = format!("{}/{evicted}/status", POD.path(&self.namespace));
        let status = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        self.patch_at(&path, status).await.expect("a test may");
        // The Deployment reports the missing pod later than the pods do.
        let is_replaced = |m: &Value| nodes(m).len() == before.len() && nodes(m) != before;
        let after = self.until(MEMCACHED, memcached, |m| is_ready(m) && is_replaced(m)).await;
        for pod in nodes(&after) {
            let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
            self.until(POD, pod.as_str().expect("a name"), is_running).await;
        }
        after
    }

    /// Waits until there is no object of that name.
    pub async fn until_gone(&self, kind: Kind, name: &str) {
        self.watch(kind, name, |object| object.is_none()).await;
    }

    /// Waits until condition `condition` of the object is `status` with `reason` for its newest
    /// generation, and returns the condition's message.
    pub async fn until_condition(
        &self,
        kind: Kind,
        name: &str,
        condition: &str,
        (status, reason): (&str, &str),
    ) -> String {
        let found = |object: &Value| {
            let generation = &object["metadata"]["generation"];
            conditions(object)
                .find(|found| {
                    found["type"] == condition
                        && found["status"] == status
                        && found["reason"] == reason
                        && &found["observedGeneration"] == generation
                })
                .map(|found| found["message"].as_str().unwrap_or_default().to_owned())
        };
        let object = self.until(kind, name, |object| found(object).is_some()).await;
        found(&object).expect("it was just found")
    }

    /// Waits for an Event with this reason about the named object; returns it.
    pub async fn until_event(&self, regarding: &str, reason: &str) -> Value {
        self.until_any_event(|event| {
            event["regarding"]["name"] == regarding && event["reason"] == reason
        })
        .await
    }

    /// Waits for an Event that satisfies `wanted`.
    pub async fn until_any_event(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut events = Watcher::open(&self.client, EVENT, &self.namespace, None);
        let mut others = Vec::new();
        let seen = async {
            loop {
                if let Change::Is(event) = events.next().await {
                    if wanted(&event) {
                        return event;
                    }
                    others.push(format!("{} {}", event["reason"], event["note"]));
                }
            }
        };
        let outcome = tokio::time::timeout(self.max_wait, seen).await;
        outcome.unwrap_or_else(|_| panic!("no such Event in {:?}, but {others:?}", self.max_wait))
    }

    /// Calls `look` with every object of a kind in this namespace, and again on each change.
    pub fn for_each_change(
        &self,
        kind: Kind,
        mut look: impl FnMut(Value) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = Watcher::open(&self.client, kind, &self.namespace, None);
        async move {
            loop {
                if let Change::Is(object) = changes.next().await {
                    look(object);
                }
            }
        }
    }

    async fn watch(
        &self,
        kind: Kind,
        name: &str,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut last = self.get(kind, name).await;
        let mut changes = Watcher::open(&self.client, kind, &self.namespace, Some(name));
        let seen = async {
            while !wanted(last.as_ref()) {
                last = match changes.next().await {
                    // The watch can begin with an older state, because the API server's cache lags behind.
                    Change::Is(object) if version(&object) < last.as_ref().map_or(0, version) => {
                        continue;
                    }
                    Change::Is(object) => Some(object),
                    Change::Gone => None,
                    // A watch that ended does not show later changes.
                    Change::Reopened => self.get(kind, name).await,
                };
            }
        };
        let outcome = tokio::time::timeout(self.max_wait, seen).await;
        if outcome.is_err() {
            let max_wait = self.max_wait;
            panic!("{} {name} was not as wanted in {max_wait:?}; it is {last:#?}", kind.name());
        }
        last
    }
}

impl Watcher {
    fn open(client: &kube::Client, kind: Kind, namespace: &str, name: Option<&str>) -> Watcher {
        let resource = kind.resource();
        let api = if kind.plural() == "nodes" {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        let mut parameters = WatchParams::default();
        if let Some(name) = name {
            parameters = parameters.fields(&format!("metadata.name={name}"));
        }
        Watcher { api, parameters, stream: None }
    }

    async fn next(&mut self) -> Change {
        loop {
            let Some(stream) = &mut self.stream else {
                // Version 0: what the API server has, as ADDED, then the changes.
                let stream = self.api.watch(&self.parameters, "0").await.expect("a watch");
                self.stream = Some(Box::pin(stream));
                return Change::Reopened;
            };
            match stream.try_next().await {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    return Change::Is(serde_json::to_value(object).expect("JSON"));
                }
                Ok(Some(WatchEvent::Deleted(_))) => return Change::Gone,
                Ok(Some(WatchEvent::Bookmark(_))) => {}
                Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => self.stream = None,
            }
        }
    }
}

/// Versions of one resource are increasing numbers.
fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).expect("an object has a version")
}
