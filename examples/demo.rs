//! Runs the operator on an in-memory API server, with simplified Deployment and DaemonSet controllers and simulated
//! pods: `cargo run --example demo`. Each line shows the time since the start; 30 s are skipped.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use controller_machinery::testing::{Cluster, Id, PodState, Server, condition};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use workload_operator::cli::Cli;
use workload_operator::generic_daemon::GenericDaemon;
use workload_operator::identity::Identity;
use workload_operator::manager::Manager;
use workload_operator::memcached::{Memcached, Pace};
use workload_operator::object::Resource;
use workload_operator::{crds, operator};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const IDENTITY: Identity = Identity::new("workload-operator", "workload-operator.example.com");
const NAMESPACE: &str = "demo";
const IDLE: Duration = Duration::from_secs(5);
/// Time limit of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let server = Server::new(1);
    for crd in crds::crds() {
        server.crd(&serde_json::to_string(&crd)?)?;
    }
    let cluster = Cluster::start(&server, 3);
    cluster.pods_are(|pod| {
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
        if image != "memcached:typo" {
            return PodState::Ready;
        }
        let (reason, message) = ("ErrImagePull".to_owned(), format!("{image}: not found"));
        PodState::Waiting { reason, message }
    });
    // The operator is configured as on its command line.
    let flags = ["workload-operator", "--memcached-image", "memcached:1.6.38-alpine"];
    let args = Cli::parse_from(flags).run.workloads;
    let manager = operator::add_controllers(Manager::new(IDENTITY), &args, &Pace::default());
    let play = Play::new(&server);
    play.line("API server in memory, 3 nodes", "simulated, in this process");
    let outcome = server.run(manager, play.all()).await;
    drop(cluster);
    outcome
}

struct Play {
    server: Server,
    began: Instant,
}

impl Play {
    fn new(server: &Server) -> Play {
        Play { server: server.clone(), began: Instant::now() }
    }

    async fn all(&self) -> Result<()> {
        self.memcached().await?;
        self.generic_daemon().await?;
        self.idle().await?;
        self.deletion().await?;
        self.line("done", "");
        Ok(())
    }

    async fn memcached(&self) -> Result<()> {
        let (memcached, deployment) = (
            id::<Memcached>("memcached-sample"),
            id_in("/apis/apps/v1/deployments", "memcached-sample"),
        );
        let sample = include_str!("../artifacts/examples/memcached.yaml");
        self.create(&memcached, sample)?;
        let created = Instant::now();
        self.until(&memcached, |it| is(it, "Ready")).await?;
        self.line("apply Memcached/memcached-sample, size 2", after("Ready", created));

        let first = self.server.get(&deployment).ok_or("there is no Deployment")?;
        let deleted = Instant::now();
        self.server.delete(&deployment);
        let uid = first["metadata"]["uid"].clone();
        self.until(&deployment, |it| it["metadata"]["uid"] != uid).await?;
        self.line("a user deletes its Deployment", after("restored", deleted));
        self.until(&memcached, |it| is(it, "Ready")).await?;

        let edited = Instant::now();
        self.patch(&deployment, &json!({"spec": {"replicas": 9}}))?;
        self.until(&deployment, |it| it["spec"]["replicas"] == 2).await?;
        self.line("a user scales its Deployment to 9", after("restored", edited));

        let refused = self.patch(&memcached, &json!({"spec": {"size": 9}}));
        let refusal = refused.err().ok_or("size 9 was accepted")?.to_string();
        let cause = refusal.find("spec.size").map_or(&*refusal, |at| &refusal[at..]);
        self.line("set size 9", format!("refused: {cause}"));

        let scaled = Instant::now();
        self.patch(&memcached, &json!({"spec": {"size": 3}}))?;
        self.until(&memcached, |it| is(it, "Ready") && it["status"]["readyReplicas"] == 3).await?;
        self.line("set size 3", after("Ready", scaled));
        self.wrong_image(&memcached).await
    }

    /// The status names the cause when the rollout has made no progress for 30 seconds, which pass immediately here.
    async fn wrong_image(&self, memcached: &Id) -> Result<()> {
        self.patch(memcached, &json!({"spec": {"image": "memcached:typo"}}))?;
        self.until(memcached, |it| !is(it, "Ready")).await?;
        self.line("set image memcached:typo", "not Ready; the former pods still serve");
        tokio::time::pause();
        let degraded = self.until(memcached, |it| is(it, "Degraded")).await?;
        tokio::time::resume();
        let message = condition(&degraded, "Degraded").and_then(|it| it["message"].as_str());
        self.line("30 s later, the status names the cause", message.unwrap_or_default());
        let corrected = Instant::now();
        self.patch(memcached, &json!({"spec": {"image": null}}))?;
        self.until(memcached, |it| is(it, "Ready")).await?;
        self.line("correct the image", after("Ready", corrected));
        Ok(())
    }

    async fn generic_daemon(&self) -> Result<()> {
        let syslog = id::<GenericDaemon>("syslog");
        self.label("node-1")?;
        let sample = include_str!("../artifacts/examples/syslog.yaml");
        self.create(&syslog, sample)?;
        self.until(&syslog, |it| it["status"]["installed"] == 1).await?;
        let runs = |play: &Play| format!("runs on {}", play.nodes_of_pods("syslog").join(" and "));
        self.line("apply GenericDaemon/syslog, label logs", runs(self));
        self.label("node-2")?;
        self.until(&syslog, |it| it["status"]["installed"] == 2).await?;
        self.line("label node-2 logs=true", runs(self));
        Ok(())
    }

    async fn idle(&self) -> Result<()> {
        self.server.settled(Duration::from_secs(1)).await;
        let before = self.server.writes().len();
        tokio::time::sleep(IDLE).await;
        match self.server.writes().len() - before {
            0 => self.line(format!("{} s without a change", IDLE.as_secs()), "0 writes"),
            some => return Err(format!("{some} writes while nothing changed").into()),
        }
        Ok(())
    }

    async fn deletion(&self) -> Result<()> {
        self.server.delete(&id::<Memcached>("memcached-sample"));
        self.server.delete(&id::<GenericDaemon>("syslog"));
        for resource in ["deployments", "daemonsets", "replicasets"] {
            self.none_is_left(&format!("/apis/apps/v1/{resource}")).await?;
        }
        for resource in ["pods", "services"] {
            self.none_is_left(&format!("/api/v1/{resource}")).await?;
        }
        self.line("delete both", "nothing is left");
        Ok(())
    }

    // === What a user does ===

    fn create(&self, id: &Id, yaml: &str) -> Result<()> {
        let object = Value::deserialize(serde_yaml_ng::Deserializer::from_str(yaml))?;
        self.server.create(id, object).map_err(|refusal| message(&refusal))?;
        Ok(())
    }

    fn patch(&self, id: &Id, patch: &Value) -> Result<()> {
        self.server.patch(id, patch).map_err(|refusal| message(&refusal))?;
        Ok(())
    }

    fn label(&self, node: &str) -> Result<()> {
        let labels = json!({"metadata": {"labels": {"logs": "true"}}});
        self.patch(&Id::new("/api/v1/nodes", "", node), &labels)
    }

    // === What a user sees ===

    async fn until(&self, id: &Id, wanted: impl FnMut(&Value) -> bool) -> Result<Arc<Value>> {
        let found = tokio::time::timeout(STEP_TIMEOUT, self.server.until(id, wanted)).await;
        found.map_err(|_| format!("{} is not so after {STEP_TIMEOUT:?}", id.name).into())
    }

    async fn none_is_left(&self, resource: &str) -> Result<()> {
        let gone = self.server.until_gone(resource);
        let outcome = tokio::time::timeout(STEP_TIMEOUT, gone).await;
        outcome.map_err(|_| format!("{resource} are left after {STEP_TIMEOUT:?}").into())
    }

    fn nodes_of_pods(&self, daemon: &str) -> Vec<String> {
        let all = self.server.objects("/api/v1/pods");
        let own = all
            .iter()
            .filter(|(_, pod)| pod["metadata"]["labels"]["mydomain.com/genericdaemon"] == *daemon);
        own.filter_map(|(_, pod)| Some(pod["spec"]["nodeName"].as_str()?.to_owned())).collect()
    }

    fn line(&self, what: impl Display, detail: impl Display) {
        println!("{:6.1}s  {what:<42} {detail}", self.began.elapsed().as_secs_f64());
    }
}

fn id<V: Resource>(name: &str) -> Id {
    id_in(&V::kind().path(None), name)
}

fn id_in(resource: &str, name: &str) -> Id {
    Id::new(resource, NAMESPACE, name)
}

fn is(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Returns the message of a metav1.Status.
fn message(refusal: &Value) -> String {
    refusal["message"].as_str().unwrap_or_default().to_owned()
}

fn after(what: &str, since: Instant) -> String {
    format!("{what} after {} ms", since.elapsed().as_millis())
}
