//! Reconciling only while this process leads.

use std::time::Duration;

use crate::controller::{Action, Reconciler};
use crate::leader_election::Leadership;
use crate::object::ObjectKey;

/// A reconciler that puts its work off while another process leads.
///
/// Every write asks for permission anyway. This keeps a standby from trying: a pass that would be
/// refused at its first write is no failure, and must not inflate the key's backoff.
pub(super) struct WhileLeading<R> {
    pub(super) reconciler: R,
    /// None: there is no election, this process always leads.
    pub(super) leadership: Option<Leadership>,
    /// How soon a key is looked at again.
    pub(super) again: Duration,
}

impl<R: Reconciler> Reconciler for WhileLeading<R> {
    type Error = R::Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, R::Error> {
        if self.leadership.as_ref().is_some_and(|leadership| !leadership.is_permitted()) {
            return Ok(Action::RequeueAfter(self.again));
        }
        self.reconciler.reconcile(key).await
    }
}
