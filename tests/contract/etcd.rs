//! etcd itself, through its JSON gateway.

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;

/// Discards every version but the newest, as the API server does every five minutes.
pub async fn compact(plane: &ControlPlane) {
    let etcd = client(plane).await;
    let key = base64("compact_rev_key");
    let now = call(&etcd, "/v3/kv/range", json!({ "key": key })).await;
    let now = now["header"]["revision"].as_str().expect("a revision").to_owned();
    call(&etcd, "/v3/kv/compaction", json!({ "revision": now, "physical": true })).await;
    // The key under which API servers share their progress of compaction.
    call(&etcd, "/v3/kv/put", json!({ "key": key, "value": base64(&now) })).await;
}

/// Raises or clears (`ACTIVATE`, `DEACTIVATE`) the alarm under which etcd accepts no more writes. etcd raises
/// it when its space is used up.
pub async fn alarm(plane: &ControlPlane, action: &str) {
    let alarm = json!({ "action": action, "memberID": "0", "alarm": "NOSPACE" });
    call(&client(plane).await, "/v3/maintenance/alarm", alarm).await;
}

async fn call(etcd: &kube::Client, path: &str, body: Value) -> Value {
    let request = Request::post(path).body(body.to_string().into_bytes()).expect("a request");
    etcd.request(request).await.unwrap_or_else(|error| panic!("etcd: {path}: {error}"))
}

/// A client with the API server's own certificate.
async fn client(plane: &ControlPlane) -> kube::Client {
    let (pki, etcd) = (plane.dir().join("pki"), plane.etcd());
    let file = |name: &str| pki.join(name).display().to_string();
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "etcd",
        "clusters": [{"name": "etcd", "cluster": {
            "server": format!("https://{etcd}"),
            "certificate-authority": file("ca.crt"),
        }}],
        "users": [{"name": "etcd", "user": {
            "client-certificate": file("server.crt"), "client-key": file("server.key"),
        }}],
        "contexts": [{"name": "etcd", "context": {"cluster": "etcd", "user": "etcd"}}],
    }))
    .expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
}

/// RFC 4648, with padding.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at <= three.len() { digit } else { '=' });
        }
    }
    out
}
