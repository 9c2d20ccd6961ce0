//! Reconciling only while this process leads.

use std::time::Duration;

use crate::controller::{Action, Reconciler};
use crate::leader_election::Leadership;
use crate::object::{Object, ObjectKey};
use crate::store::Store;

/// A reconciler that defers its work while another process leads.
///
/// Every write checks leadership anyway. This keeps a standby from trying: a pass that would be
/// refused at its first write is not a failure and must not inflate the key's backoff.
pub(super) struct WhileLeading<R, V> {
    pub(super) reconciler: R,
    /// The objects it reconciles. The key of an object that is gone is not deferred: there is
    /// nothing to write for it, and such keys would pile up for as long as another process leads.
    pub(super) objects: Store<V>,
    /// `None` if there is no election: this process always leads.
    pub(super) leadership: Option<Leadership>,
    /// How soon a deferred key is looked at again.
    pub(super) again: Duration,
}

impl<R: Reconciler, V: Object> Reconciler for WhileLeading<R, V> {
    type Error = R::Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, R::Error> {
        let may_write = self.leadership.as_ref().is_none_or(Leadership::is_permitted);
        if !may_write && self.objects.contains(key) {
            return Ok(Action::RequeueAfter(self.again));
        }
        self.reconciler.reconcile(key).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::*;
    use crate::leader_election::{self, Boottime, Config, Unobserved};
    use crate::object::Meta;
    use crate::object::fixtures::Thing;
    use crate::store;

    struct Nothing;

    impl Reconciler for Nothing {
        type Error = Infallible;
        async fn reconcile(&self, _: &ObjectKey) -> Result<Action, Infallible> {
            Ok(Action::Done)
        }
    }

    #[tokio::test]
    async fn while_another_leads_only_the_keys_of_what_is_there_are_put_off() {
        let (clock, unobserved) = (Arc::new(Boottime), Arc::new(Unobserved));
        let lease = ObjectKey::new("ns", "lease");
        let (leadership, _elector) =
            leader_election::new(lease, "us", Config::default(), clock, unobserved).unwrap();
        let (mut writer, objects) = store::new(Vec::new());
        let (there, gone) = (ObjectKey::new("ns", "there"), ObjectKey::new("ns", "gone"));
        writer.apply(Thing(Meta::named(there.clone())), drop);
        let again = Duration::from_secs(2);
        let reconciler =
            WhileLeading { reconciler: Nothing, objects, leadership: Some(leadership), again };
        assert_eq!(reconciler.reconcile(&there).await, Ok(Action::RequeueAfter(again)));
        assert_eq!(reconciler.reconcile(&gone).await, Ok(Action::Done));
    }
}
