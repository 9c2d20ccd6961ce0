//! The API server of these tests: objects under their paths.

use serde_json::{Value, json};

use crate::client::{Client, Options};
use crate::manager::Manager;
use crate::testing::{self, Id, Received, refusal};

const CRD: &str = "
kind: CustomResourceDefinition
spec:
  group: example.com
  names: {plural: PLURAL, kind: KIND}
  versions:
  - name: v1
    served: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

#[derive(Clone)]
pub(super) struct Server(testing::Server);

impl Default for Server {
    fn default() -> Server {
        let server = testing::Server::new(1);
        for (plural, kind) in [("sites", "Site"), ("children", "Child")] {
            server.crd(&CRD.replace("PLURAL", plural).replace("KIND", kind)).unwrap();
        }
        Server(server)
    }
}

impl Server {
    pub(super) fn client(&self, options: Options) -> Client {
        self.0.client(options)
    }

    pub(super) async fn run(&self, manager: Manager, done: impl Future<Output = ()>) {
        self.0.run(manager, done).await;
    }

    /// Stores an object under its path, and returns it as stored. With another UID, or none, it is another object.
    pub(super) fn put(&self, path: &str, object: Value) -> Value {
        let id = id(path);
        let there = self.0.get(&id);
        if there.is_some_and(|there| there["metadata"]["uid"] != object["metadata"]["uid"]) {
            self.0.remove(&id);
        }
        self.0.put(&id, object);
        self.get(path)
    }

    pub(super) fn find(&self, path: &str) -> Option<Value> {
        self.0.get(&id(path)).map(|object| (*object).clone())
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.find(path).unwrap()
    }

    pub(super) fn remove(&self, path: &str) {
        self.0.remove(&id(path));
    }

    /// Sets the change that is made to everything that is written.
    pub(super) fn admit(&self, admit: fn(&mut Value)) {
        self.0.admit(move |object| {
            admit(object);
            Ok(())
        });
    }

    /// Which objects are refused as invalid.
    pub(super) fn refuse(&self, refuses: fn(&Value) -> bool) {
        self.0.admit(move |object| {
            let mut refused = refusal(422, "Invalid", "no");
            refused["details"] =
                json!({"causes": [{"reason": "FieldValueInvalid", "field": "spec"}]});
            if refuses(object) { Err(refused) } else { Ok(()) }
        });
    }

    /// Nothing can be created in this namespace any more.
    pub(super) fn terminate(&self, namespace: &'static str) {
        let server = self.0.clone();
        self.0.intercept(move |request| {
            let is_new = request.method == "PATCH" && server.get(&id(path(request))).is_none();
            let mut refused = refusal(403, "Forbidden", "it goes");
            let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace"});
            refused["details"] = json!({ "causes": [cause] });
            (is_new && is_in(request, namespace)).then_some(refused)
        });
    }

    /// Nothing may be listed or watched below this part of a path.
    pub(super) fn forbid(&self, part: &'static str) {
        let refused = refusal(403, "Forbidden", "no");
        self.0.intercept(move |request| request.uri.contains(part).then(|| refused.clone()));
    }

    /// There is no such namespace, or subresource.
    pub(super) fn has_no(&self, part: &'static str) {
        let refused = refusal(404, "NotFound", "no");
        self.0.intercept(move |request| {
            (request.method == "PATCH" && is_in(request, part)).then(|| refused.clone())
        });
    }

    pub(super) fn requests(&self) -> Vec<Received> {
        self.0.requests()
    }

    /// Method and path of everything but reads.
    pub(super) fn writes(&self) -> Vec<String> {
        let writes = self.0.writes().into_iter();
        writes.map(|write| format!("{} {}", write.method, path(&write))).collect()
    }
}

fn path(request: &Received) -> &str {
    request.uri.split('?').next().unwrap()
}

fn is_in(request: &Received, part: &str) -> bool {
    path(request).split('/').any(|it| it == part)
}

/// The object under a path.
fn id(path: &str) -> Id {
    let path = path.trim_end_matches("/status");
    let (collection, name) = path.rsplit_once('/').unwrap();
    let Some((api, rest)) = collection.split_once("/namespaces/") else {
        return Id::new(collection, "", name);
    };
    let (namespace, plural) = rest.split_once('/').unwrap_or(("", rest));
    Id::new(format!("{api}/{plural}"), namespace, name)
}
