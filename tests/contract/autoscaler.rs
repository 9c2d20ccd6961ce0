//! Kubernetes' own HorizontalPodAutoscaler (in kube-controller-manager) with Memcached and App. A small
//! server in this test provides the resource metrics API, metrics.k8s.io, behind the API server's aggregator,
//! because kwok's pods use no resources.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::connect_proxy::acceptor;
use crate::control_plane::ControlPlane;
use crate::world::{APP, DEPLOYMENT, Kind, MEMCACHED, SERVICE, World, is_ready};

const AUTOSCALER: Kind =
    Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");

/// The API's path behind the aggregator.
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

/// Target of an autoscaler, in thousandths of a core for each pod: half of what both kinds
/// request here.
const TARGET: u64 = 50;

/// A server of metrics.k8s.io. The pods that a request selects share the load evenly.
struct MetricsServer {
    client: kube::Client,
    /// Thousandths of a core.
    load: AtomicU64,
}

impl MetricsServer {
    /// Starts it with the API server's certificate and makes the aggregator forward to it.
    async fn start(world: &World) -> Arc<MetricsServer> {
        let client = world.plane().admin().await;
        let server = Arc::new(MetricsServer { client, load: AtomicU64::new(TARGET) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(Arc::clone(&server).serve(listener, acceptor(world)));
        let outside = json!({"metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        world.create(SERVICE, outside).await.unwrap();
        let service = json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1",
            "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"namespace": world.namespace, "name": "metrics", "port": port}}});
        world.post("/apis/apiregistration.k8s.io/v1/apiservices", service).await.unwrap();
        server
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, acceptor) = (Arc::clone(&self), acceptor.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = service_fn(move |request| {
                    let server = Arc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                drop(connection.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let namespace = path
            .strip_prefix(&format!("{METRICS}/namespaces/"))
            .and_then(|rest| rest.strip_suffix("/pods"));
        let body = match namespace {
            Some(namespace) => {
                self.pod_metrics(namespace, request.uri().query().unwrap_or_default()).await
            }
            None if path == METRICS => json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "metrics.k8s.io/v1beta1",
                "resources": [{"name": "pods", "singularName": "", "namespaced": true,
                    "kind": "PodMetrics", "verbs": ["get", "list"]}],
            }),
            None => Value::Null,
        };
        let status = if body.is_null() { StatusCode::NOT_FOUND } else { StatusCode::OK };
        let answer = Response::builder().status(status).header("Content-Type", "application/json");
        answer.body(Full::new(Bytes::from(body.to_string()))).unwrap()
    }

    /// Returns the usage of the selected pods.
    async fn pod_metrics(&self, namespace: &str, query: &str) -> Value {
        let pods = format!("/api/v1/namespaces/{namespace}/pods?{query}");
        let request = Request::builder().method(Method::GET).uri(pods).body(Vec::new()).unwrap();
        let pods: Value = self.client.request(request).await.unwrap_or_default();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let share = self.load.load(Ordering::SeqCst) * 1_000_000 / pods.len().max(1) as u64;
        let now = jiff::Timestamp::now().to_string();
        let of_pod = |pod: &Value| {
            json!({
                "metadata": {"name": pod["metadata"]["name"], "namespace": namespace},
                "timestamp": now, "window": "1s",
                "containers": [{"name": pod["spec"]["containers"][0]["name"],
                    "usage": {"cpu": format!("{share}n"), "memory": "10Mi"}}],
            })
        };
        json!({
            "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
            "items": pods.iter().map(of_pod).collect::<Vec<_>>(),
        })
    }
}

/// Returns an autoscaler that keeps each pod at half of its CPU request. It scales down without the default
/// delay of five minutes.
fn autoscaler(kind: Kind, most: i64) -> Value {
    let target = json!({"apiVersion": kind.api_version(), "kind": kind.name(), "name": "cart"});
    let half = json!({"type": "Utilization", "averageUtilization": 50});
    json!({"metadata": {"name": kind.plural()}, "spec": {
        "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": half}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }})
}

/// The successive numbers of replicas in a field.
struct History(watch::Receiver<Vec<i64>>);

impl History {
    fn of(world: &World, kind: Kind, name: &'static str, field: &'static str) -> History {
        let (seen, history) = watch::channel(Vec::new());
        tokio::spawn(world.for_each_change(kind, move |object| {
            let value = object["spec"][field].as_i64();
            seen.send_if_modified(|seen: &mut Vec<i64>| {
                let is_new = object["metadata"]["name"] == name && seen.last().copied() != value;
                seen.extend(value.filter(|_| is_new));
                is_new
            });
        }));
        History(history)
    }

    /// All of them, once the last is this.
    async fn up_to(mut self, last: i64) -> Vec<i64> {
        self.0.wait_for(|seen| seen.last() == Some(&last)).await.unwrap().clone()
    }
}

/// Creates an autoscaler for `cart` of this kind. Raises the load to that of four pods, then lowers it to
/// that of two. Memcacheds have at most three.
async fn scaled_up_and_down(kind: Kind, field: &'static str, spec: Value, most: i64) {
    let name = format!("autoscaled-{}", kind.plural());
    let plane = ControlPlane::of_this_test(match kind {
        MEMCACHED => || ControlPlane::private("autoscaled-memcached"),
        _ => || ControlPlane::private("autoscaled-app"),
    });
    let world = World::on(plane.await, &name, "baseline").await;
    let _operator = world.start_operator().await;
    let metrics = MetricsServer::start(&world).await;
    world.create(kind, json!({"metadata": {"name": "cart"}, "spec": spec})).await.unwrap();
    world.until(kind, "cart", is_ready).await;
    let wanted = History::of(&world, kind, "cart", field);
    let made = History::of(&world, DEPLOYMENT, "cart", "replicas");
    world.create(AUTOSCALER, autoscaler(kind, most)).await.unwrap();
    let active = |hpa: &Value| {
        crate::world::conditions(hpa).any(|c| c["type"] == "ScalingActive" && c["status"] == "True")
    };
    world.until(AUTOSCALER, kind.plural(), active).await;
    // An autoscaler rounds up, also each pod's share, so the load is slightly less than that of two pods.
    for (load, replicas) in [(4 * TARGET, most), (2 * TARGET - 4, 2)] {
        metrics.load.store(load, Ordering::SeqCst);
        let scaled = |object: &Value| object["spec"][field] == replicas && is_ready(object);
        world.until(kind, "cart", scaled).await;
        let counted = |hpa: &Value| {
            hpa["status"]["currentReplicas"] == replicas
                && hpa["status"]["desiredReplicas"] == replicas
        };
        world.until(AUTOSCALER, kind.plural(), counted).await;
    }
    let last = world.get(DEPLOYMENT, "cart").await.unwrap();
    assert_eq!(last["spec"]["replicas"], 2);
    assert_eq!(
        wanted.up_to(2).await,
        [1, most, 2],
        "what the autoscaler wrote is reversed by nobody"
    );
    assert_eq!(made.up_to(2).await, [1, most, 2], "the operator follows, and reverses nothing");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_real_autoscaler_scales_a_memcached_by_resource_metrics() {
    scaled_up_and_down(MEMCACHED, "size", json!({"size": 1}), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_autoscaler_scales_an_app_by_resource_metrics() {
    let resources = json!({"requests": {"cpu": "100m"}});
    let spec = json!({"image": "shop:1", "replicas": 1, "resources": resources});
    scaled_up_and_down(APP, "replicas", spec, 4).await;
}
