//! The steps of a history: what users, the cluster, its faults and the processes do.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use controller_machinery::testing::{Fault, Id};
use fastrand::Rng;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::schema;
use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, EVENT, GENERIC_DAEMON, Kind, LEASE, MEMCACHED, POD,
    SERVICE,
};

/// The custom resources of every history. Their names differ, so that they need different owned objects.
pub const SLOTS: [Slot; 5] = [
    Slot(MEMCACHED, "shop", "cart"),
    Slot(MEMCACHED, "lab", "cart"),
    Slot(APP, "shop", "web"),
    Slot(APP, "lab", "web"),
    Slot(GENERIC_DAEMON, "shop", "agent"),
];

/// A custom resource: its kind, namespace and name.
#[derive(Clone, Copy, PartialEq)]
pub struct Slot(pub Kind, pub &'static str, pub &'static str);

impl Slot {
    pub fn id(self) -> Id {
        self.child(self.0)
    }

    /// The owned object of a kind.
    pub fn child(self, kind: Kind) -> Id {
        let root = if kind.group().is_empty() { "/api" } else { "/apis" };
        let path = format!("{root}/{}/{}", kind.api_version(), kind.plural());
        Id::new(path, self.1, self.2)
    }

    pub fn children(self) -> &'static [Kind] {
        match self.0 {
            GENERIC_DAEMON => &[DAEMON_SET],
            _ => &[DEPLOYMENT, SERVICE, BUDGET],
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.0.name(), self.1, self.2)
    }
}

/// One step: a pause, then an act.
#[derive(Clone)]
pub struct Step {
    pub pause: Duration,
    pub act: Act,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {:?}: {:?}", self.pause, self.act)
    }
}

#[derive(Clone, Debug)]
pub enum Act {
    // A user.
    Spec(Slot, Json),
    Paused(Slot, bool),
    Delete(Slot, Cascade),
    EditChild(Slot, Kind, Json),
    DeleteChild(Slot, Kind, Cascade),
    /// Removes the owner references of an owned object, as a restore of a backup does.
    Disown(Slot, Kind),
    /// Replaces an owned object by one of somebody else.
    Occupy(Slot, Kind),
    /// Applies fields of an owned object as another field manager, with force.
    Apply(Slot, Kind, Json),
    /// Creates an App with the name of a Memcached or the other way round, which needs the same owned objects.
    Compete(Slot),
    // The cluster.
    Label(u8, &'static str, Option<&'static str>),
    Taint(u8, bool),
    /// A node takes one pod only, or any number again.
    Full(u8, bool),
    Lose(u8, bool),
    RemoveNode(u8),
    AddNode(u8),
    Pods(Pods),
    /// The pods hang in their termination, until the end of the history.
    HoldPods,
    /// A node evicts every n-th pod.
    Evict(u8),
    /// The controllers, the scheduler and the kubelets stop.
    Outage(bool),
    /// Refuses every write of this kind of object.
    Refuse(Kind, Refusal),
    /// An admission webhook adds an annotation and a sidecar to every workload.
    Mutate(bool),
    // Faults.
    Fault {
        verb: &'static str,
        kind: Kind,
        number: u64,
        fault: Fault,
    },
    Rates(f64, f64),
    /// The operator's clock is so many seconds ahead of the API server's.
    Clock(i64),
    /// The machine of the operator sleeps, while its Lease gets older.
    Suspend(Duration),
    Compact,
    // The processes.
    /// From the beginning, two processes elect a leader. Otherwise, there is one process.
    Elect,
    Kill {
        process: usize,
        down: Duration,
    },
    Stop {
        process: usize,
        down: Duration,
    },
    /// Kills a process before or after its n-th write from now on.
    KillAt {
        process: usize,
        write: u64,
        after: bool,
    },
    /// From the n-th write of a process on, its requests hang for this time, but its watches go on.
    HangAt {
        process: usize,
        write: u64,
        time: Duration,
    },
    /// A new image of the administrator, for which both processes are started again.
    Image(u8),
    Wait,
}

/// A value that prints as JSON.
#[derive(Clone)]
pub struct Json(pub Value);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Act {
    /// Returns whether it disturbs the operator itself, whose status may then be late.
    pub fn disturbs(&self) -> bool {
        matches!(
            self,
            Act::Fault { .. }
                | Act::Rates(..)
                | Act::Suspend(_)
                | Act::Compact
                | Act::Kill { .. }
                | Act::Stop { .. }
                | Act::KillAt { .. }
                | Act::HangAt { .. }
                | Act::Image(_)
                | Act::Refuse(..)
        ) || matches!(self, Act::Clock(ahead) if *ahead != 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cascade {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pods {
    Ready,
    /// Each pod is ready so many seconds after its creation.
    Slow(u32),
    /// Every n-th pod waits for this reason.
    Waiting(u8, &'static str),
    Unready(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    Quota,
    Denied,
    WebhookFails,
    /// A webhook responds only after its timeout of 30 s.
    WebhookHangs,
    /// A webhook takes 10 s, and permits.
    WebhookIsSlow,
    NotReady,
    /// Nothing is refused any more.
    None,
}

/// The annotation with the record of what the operator has applied, and a value of another release.
pub const RECORD: &str = "workload-operator.example.com/applied";
pub const OTHER_RECORD: &str = "0123456789abcdef";

/// The annotation that pauses a custom resource.
pub const PAUSED: &str = "workload-operator.example.com/paused";

/// Returns the steps of a seed. Which kinds of step occur differs between seeds, so that some histories have many of one
/// kind. In some, two Memcacheds take turns with a new image of the administrator.
pub fn plan(rng: &mut Rng) -> Vec<Step> {
    let mut kinds: Vec<u8> = (0..KINDS).collect();
    rng.shuffle(&mut kinds);
    kinds.truncate(rng.usize(3..=KINDS as usize));
    let mut slots = SLOTS.to_vec();
    rng.shuffle(&mut slots);
    slots.truncate(rng.usize(1..=3));
    let mut slots: Vec<(Slot, Value)> = slots
        .into_iter()
        .map(|slot| (slot, schema::valid(&schema::of_spec(slot.0), "spec", rng)))
        .collect();
    let shares_an_image = rng.u8(..8) == 0;
    if shares_an_image {
        let spec = json!({"size": rng.u8(1..4)});
        slots = vec![(SLOTS[0], spec.clone()), (SLOTS[1], spec)];
    }
    let mut steps = Vec::new();
    let is_elected = rng.u8(..4) == 0;
    if is_elected {
        steps.push(Step { pause: Duration::ZERO, act: Act::Elect });
    }
    for (slot, spec) in &slots {
        steps.push(Step { pause: pause(rng), act: Act::Spec(*slot, Json(spec.clone())) });
    }
    for _ in 0..rng.usize(2..12) {
        let at = rng.usize(..slots.len());
        let kind = match rng.u8(..3) {
            0 => 0,
            _ => *rng.choice(&kinds).unwrap(),
        };
        let mut act = act(kind, &mut slots[at], rng);
        if matches!(act, Act::Suspend(_)) && !is_elected {
            act = Act::Wait;
        }
        if let Act::Kill { process, .. }
        | Act::Stop { process, .. }
        | Act::KillAt { process, .. }
        | Act::HangAt { process, .. } = &mut act
            && !is_elected
        {
            *process = 0;
        }
        steps.push(Step { pause: pause(rng), act });
    }
    if shares_an_image {
        let at = rng.usize(2..=steps.len());
        let image = Act::Image(rng.u8(2..4));
        steps.insert(at, Step { pause: Duration::from_secs(rng.u64(60..120)), act: image });
    }
    steps
}

fn pause(rng: &mut Rng) -> Duration {
    match rng.u8(..10) {
        0 | 1 => Duration::ZERO,
        2 | 3 => Duration::from_millis(rng.u64(1..50)),
        4 | 5 => Duration::from_millis(rng.u64(50..3_000)),
        6 | 7 => Duration::from_secs(rng.u64(3..60)),
        8 => Duration::from_secs(rng.u64(60..400)),
        _ => Duration::from_secs(rng.u64(400..1_500)),
    }
}

/// Number of kinds of step.
const KINDS: u8 = 23;

fn act(kind: u8, slot: &mut (Slot, Value), rng: &mut Rng) -> Act {
    match kind {
        0..8 => of_user(kind, slot, rng),
        8..16 => of_cluster(kind, slot.0, rng),
        _ => of_faults(kind, slot.0, rng),
    }
}

fn of_user(kind: u8, (slot, spec): &mut (Slot, Value), rng: &mut Rng) -> Act {
    let child = *rng.choice(slot.children()).unwrap();
    match kind {
        0 => {
            *spec = schema::edited(&schema::of_spec(slot.0), spec, rng);
            Act::Spec(*slot, Json(spec.clone()))
        }
        1 => {
            *spec = match rng.u8(..3) {
                0 => real(slot.0, rng),
                _ => schema::valid(&schema::of_spec(slot.0), "spec", rng),
            };
            Act::Spec(*slot, Json(spec.clone()))
        }
        2 => Act::Paused(*slot, rng.u8(..3) == 0),
        3 => Act::Delete(*slot, cascade(rng)),
        4 if rng.u8(..4) == 0 => Act::Apply(*slot, child, Json(edit(child, rng))),
        4 => Act::EditChild(*slot, child, Json(edit(child, rng))),
        5 => Act::DeleteChild(*slot, child, cascade(rng)),
        6 => Act::Disown(*slot, child),
        _ if slot.0 != GENERIC_DAEMON && rng.u8(..3) == 0 => Act::Compete(*slot),
        _ => Act::Occupy(*slot, child),
    }
}

fn of_cluster(kind: u8, slot: Slot, rng: &mut Rng) -> Act {
    let node = rng.u8(1..=4);
    let labels = [("logs", "true"), ("logs", "yes"), ("disk", "ssd"), ("disk", "floppy")];
    let (key, value) = *rng.choice(&labels).unwrap();
    match kind {
        8 => Act::Label(node, key, rng.bool().then_some(value)),
        9 if rng.bool() => Act::Full(node, rng.bool()),
        9 => Act::Taint(node, rng.bool()),
        10 => Act::Lose(node, rng.bool()),
        11 if rng.bool() => Act::RemoveNode(node),
        11 => Act::AddNode(node),
        12 | 13 => Act::Pods(pods(rng)),
        14 if rng.bool() => Act::HoldPods,
        14 => Act::Evict(rng.u8(1..3)),
        _ if rng.bool() => Act::Outage(rng.bool()),
        _ => {
            let which = [
                Refusal::Quota,
                Refusal::Denied,
                Refusal::WebhookFails,
                Refusal::WebhookHangs,
                Refusal::WebhookIsSlow,
                Refusal::NotReady,
                Refusal::None,
            ];
            let children = slot.children();
            let kinds = [*rng.choice(children).unwrap(), children[0], slot.0];
            Act::Refuse(*rng.choice(&kinds).unwrap(), *rng.choice(&which).unwrap())
        }
    }
}

fn pods(rng: &mut Rng) -> Pods {
    let reasons = [
        "ImagePullBackOff",
        "ErrImagePull",
        "CrashLoopBackOff",
        "ContainerCreating",
        "CreateContainerConfigError",
    ];
    let each = rng.u8(1..3);
    match rng.u8(..4) {
        0 => Pods::Ready,
        1 => Pods::Slow(rng.u32(1..120)),
        2 => Pods::Waiting(each, rng.choice(&reasons).unwrap()),
        _ => Pods::Unready(each),
    }
}

fn of_faults(kind: u8, slot: Slot, rng: &mut Rng) -> Act {
    let process = rng.usize(..2);
    let down = Duration::from_secs(*rng.choice(&[0, 1, 5, 20, 120]).unwrap());
    match kind {
        16 if rng.bool() => Act::Mutate(rng.bool()),
        16 => Act::Image(rng.u8(1..4)),
        17 | 18 => fault(slot, *rng.choice(slot.children()).unwrap(), rng),
        19 => Act::Kill { process, down },
        20 if rng.bool() => Act::Stop { process, down },
        20 => Act::KillAt { process, write: rng.u64(1..8), after: rng.bool() },
        21 => Act::HangAt {
            process,
            write: rng.u64(1..4),
            time: Duration::from_secs(*rng.choice(&[3, 20, 60]).unwrap()),
        },
        _ => match rng.u8(..4) {
            0 => Act::Compact,
            1 => Act::Rates(*rng.choice(&[0.0, 0.1]).unwrap(), *rng.choice(&[0.0, 0.05]).unwrap()),
            2 => Act::Clock(*rng.choice(&[-86_400, -40, 0, 40, 86_400]).unwrap()),
            _ if rng.bool() => Act::Suspend(Duration::from_secs(rng.u64(1..600))),
            _ => Act::Wait,
        },
    }
}

/// Returns the spec of a workload that is in use somewhere, and that every node can run.
fn real(kind: Kind, rng: &mut Rng) -> Value {
    static ALL: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let files = std::fs::read_dir("tests/real").unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
        let first = |text: String| {
            let object = serde_yaml_ng::Deserializer::from_str(&text).next().unwrap();
            Value::deserialize(object).unwrap()
        };
        let is_picky = |object: &Value| {
            let pod = &object["spec"]["podTemplate"]["spec"];
            let affinity = pod["affinity"].to_string();
            // A probe's port by name needs the template, which a later edit may remove.
            let probes = ["readinessProbe", "livenessProbe", "startupProbe"];
            let is_named = |probe: &str| object["spec"][probe].to_string().contains("\"port\":\"");
            pod["nodeSelector"].is_object()
                || affinity.contains("nodeAffinity")
                || probes.into_iter().any(is_named)
        };
        texts.map(first).filter(|object| !is_picky(object)).collect()
    });
    let of_kind: Vec<_> = ALL.iter().filter(|object| object["kind"] == kind.name()).collect();
    rng.choice(of_kind).expect("some of each kind")["spec"].clone()
}

fn cascade(rng: &mut Rng) -> Cascade {
    match rng.u8(..6) {
        0 => Cascade::Orphan,
        1 => Cascade::Foreground,
        _ => Cascade::Background,
    }
}

/// A change of an owned object by hand, in fields that the operator sets.
fn edit(child: Kind, rng: &mut Rng) -> Value {
    let labels = json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}});
    let restarted = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": rng.u8(..9).to_string()}}});
    let workload = |rng: &mut Rng| {
        rng.choice([
            json!({"spec": {"template": labels}}),
            json!({"spec": {"template": restarted}}),
            json!({"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}}),
            labels.clone(),
            json!({"metadata": {"annotations": {RECORD: OTHER_RECORD}}}),
        ])
        .unwrap()
    };
    match child {
        DEPLOYMENT if rng.bool() => json!({"spec": {"replicas": rng.u8(..9)}}),
        DEPLOYMENT => workload(rng),
        DAEMON_SET if rng.bool() => {
            json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}})
        }
        DAEMON_SET => workload(rng),
        SERVICE if rng.bool() => json!({"spec": {"selector": {"other": "x"}}}),
        SERVICE => json!({"spec": {"ports": [{"port": 7, "protocol": "TCP"}]}}),
        _ => json!({"spec": {"maxUnavailable": 7}}),
    }
}

fn fault(slot: Slot, child: Kind, rng: &mut Rng) -> Act {
    let kind = *rng.choice(&[slot.0, slot.0, child, child, LEASE, EVENT, POD]).unwrap();
    let verbs: &[&str] = match kind {
        LEASE => &["get", "patch", "update", "create"],
        EVENT => &["create", "patch"],
        POD => &["list", "watch", "event"],
        _ => &["list", "watch", "event", "event", "patch", "patch", "get", "delete"],
    };
    let verb = *rng.choice(verbs).unwrap();
    let all = Fault::of(verb);
    Act::Fault { verb, kind, number: rng.u64(1..6), fault: *rng.choice(&all).unwrap() }
}
