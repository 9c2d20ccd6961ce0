mod table;

use super::*;
use crate::controller::CallError;
use crate::object::Resource as _;

fn all() -> [Health; 7] {
    let of = |level| Health::new(level, Reason::RollingOut, "why");
    let trouble = |completed| {
        let (reason, message) = (Reason::CrashLoopBackOff, "why".to_owned());
        let trouble = Trouble { reason, message, stalls_at_once: false };
        Context::default().health_of(trouble, completed)
    };
    [
        of(Level::Ready),
        of(Level::Progressing),
        trouble(true),
        trouble(false),
        of(Level::Degraded),
        of(Level::Stalled),
        Health::paused(false),
    ]
}

fn status_of(conditions: &[Wanted], kind: Type) -> Option<Status> {
    conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
}

/// The rules by which Flux checks conditions (fluxcd/pkg, runtime/conditions/check).
#[test]
fn no_health_breaks_the_rules_of_tools() {
    for health in all() {
        let mut conditions = health.summary();
        conditions.push(health.degraded());
        let is = |kind, status| status_of(&conditions, kind) == Some(status);
        let ready = is(Type::Ready, Status::True);
        let (reconciling, stalled) =
            (is(Type::Reconciling, Status::True), is(Type::Stalled, Status::True));
        assert!(status_of(&conditions, Type::Ready).is_some(), "{health:?}: FAIL0002");
        assert!(!(ready && is(Type::Degraded, Status::True)), "{health:?}: FAIL0001");
        assert!(!(ready && (reconciling || stalled)), "{health:?}: FAIL0003, FAIL0004");
        assert!(!(reconciling && stalled), "{health:?}: FAIL0005");
        assert!(!is(Type::Ready, Status::Unknown) || reconciling, "{health:?}: FAIL0011");
        for kind in [Type::Reconciling, Type::Stalled] {
            assert_ne!(status_of(&conditions, kind), Some(Status::False), "{health:?}: WARN");
        }
    }
}

#[test]
fn the_worse_of_two_counts() {
    for worse in all() {
        for better in all().into_iter().filter(|better| better.level < worse.level) {
            for both in [worse.clone().and(better.clone()), better.and(worse.clone())] {
                assert_eq!((both.level, both.reason), (worse.level, worse.reason));
            }
        }
    }
}

#[test]
fn the_message_of_an_error_has_no_local_address() {
    let text = |message: &str| {
        let source = Box::new(crate::client::Error::api(500, "InternalError", message));
        let key = crate::object::ObjectKey::new("n", "a");
        stable(&CallError { verb: "create", kind: "Deployment", key, source }.into())
    };
    let start = "cannot create Deployment n/a: ";
    for (message, expected) in [
        ("read tcp 10.0.0.1:51234->10.0.0.2:443: reset", "read tcp 10.0.0.2:443: reset"),
        ("read tcp [::1]:51234->[::1]:443: reset", "read tcp [::1]:443: reset"),
        ("a -> b, c->d", "a -> b, c->d"),
    ] {
        assert_eq!(text(message), format!("{start}{expected}"));
    }
}

#[test]
fn a_completed_rollout_stays_complete_whatever_is_wrong_with_the_service() {
    let taken = Health::new(Level::Stalled, Reason::ErrResourceExists, "taken");
    let both = Health::ready(Reason::AllReplicasReady, "all").and(taken.clone());
    assert_eq!(both.progressing().reason, "RolloutComplete");
    assert_eq!(Health::rolling_out("one of two").and(taken.clone()).rollout, taken.rollout);
}

/// Two installations write the same objects with the same field manager, which no tool can tell apart.
#[test]
fn a_contested_record_of_the_operator_itself_is_another_installation() {
    let key = crate::object::ObjectKey::new("shop", "cart");
    let name = Name { kind: crate::workload::Deployment::KIND, key };
    let of = |field: &str| contested(&name, Some(field));
    let applied = format!("metadata.annotations.{RECORD}applied");
    assert!(of(&applied).starts_with("Another installation of this operator"));
    assert!(of("spec.replicas").contains("--show-managed-fields"));
}
