//! Actions of an administrator.

use http::{Method, Request};
use serde_json::{Value, json};

use super::{Kind, QUOTA, World};

/// Number of retries of a failed list.
const LISTS: usize = 3;

impl World {
    /// Creates an object in this namespace; `Err` is the API server's message.
    pub async fn create(&self, kind: Kind, mut object: Value) -> Result<Value, String> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        self.post(&kind.path(&self.namespace), object).await
    }

    /// Merge-patches an object; `Err` is the API server's message.
    pub async fn patch(&self, kind: Kind, name: &str, patch: Value) -> Result<Value, String> {
        self.patch_at(&format!("{}/{name}", kind.path(&self.namespace)), patch).await
    }

    /// Merge-patches a subresource.
    pub async fn patch_at(&self, path: &str, patch: Value) -> Result<Value, String> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Reads an object; `None` if it does not exist.
    pub async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        self.send(Method::GET, &path, "application/json", Value::Null).await.ok()
    }

    /// All objects of a kind in this namespace.
    pub async fn list(&self, kind: Kind) -> Vec<Value> {
        self.items(&kind.path(&self.namespace)).await
    }

    /// The objects of a kind in this namespace that have `labels` (`a=b,c=d`).
    pub async fn list_with(&self, kind: Kind, labels: &str) -> Vec<Value> {
        self.items(&format!("{}?labelSelector={labels}", kind.path(&self.namespace))).await
    }

    /// Returns the items listed at `path`. An overloaded API server occasionally breaks off a response, and a
    /// retry does no harm.
    async fn items(&self, path: &str) -> Vec<Value> {
        let ask = || self.send(Method::GET, path, "application/json", Value::Null);
        let mut list = ask().await;
        for _ in 0..LISTS {
            if list.is_err() {
                list = ask().await;
            }
        }
        list.expect("a list")["items"].as_array().expect("items").clone()
    }

    /// Replaces an object's entire spec; `Err` is the API server's message.
    pub async fn replace_spec(
        &self,
        kind: Kind,
        name: &str,
        spec: &Value,
    ) -> Result<Value, String> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let operations = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        self.send(Method::PATCH, &path, "application/json-patch+json", operations).await
    }

    /// Returns what the API server would make of an object, without creating it.
    pub async fn dry_run(&self, kind: Kind, mut object: Value) -> Result<Value, String> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        self.post(&format!("{}?dryRun=All", kind.path(&self.namespace)), object).await
    }

    /// Sets a quota of zero for `resource`, named as the API server counts it; returns when
    /// Kubernetes has noticed it.
    pub async fn forbid(&self, quota: &str, resource: &str) {
        let none = json!({"metadata": {"name": quota}, "spec": {"hard": {resource: "0"}}});
        self.create(QUOTA, none).await.expect("a new quota");
        self.until(QUOTA, quota, |quota| quota["status"]["hard"][resource] == "0").await;
    }

    /// Deletes an object in the background, as kubectl does by default, without waiting.
    pub async fn delete(&self, kind: Kind, name: &str) {
        self.delete_with(kind, name, "Background").await;
    }

    /// Like [`World::delete`], with another propagation policy.
    pub async fn delete_with(&self, kind: Kind, name: &str, policy: &str) {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let options = json!({"propagationPolicy": policy});
        self.send(Method::DELETE, &path, "application/json", options).await.expect("deleted");
    }

    /// Runs kubectl in this namespace as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut all = vec!["-n", &self.namespace];
        all.extend(arguments);
        self.plane.try_kubectl(&all)
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Value,
    ) -> Result<Value, String> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{separator}fieldManager=administrator"))
            .header("Content-Type", content_type)
            .body(body)
            .expect("a request");
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }
}
