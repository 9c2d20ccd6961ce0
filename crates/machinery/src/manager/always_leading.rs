//! Without the feature `leader-election`: this process always leads.

use super::builder::{Filter, Listen};
use super::kinds::{InStep, Step};
use super::{Error, Manager};
use crate::client::{self, Client};
use crate::controller::{Controller, Options, Program, Reconciler};
use crate::events::Recorder;
use crate::informer::Informer;
use crate::object::Resource;

/// Leadership of this process: it always leads.
#[derive(Clone, Default)]
pub(super) struct Lead;

// === impl Lead ===

impl Lead {
    pub(super) fn control<R: Reconciler, V: Resource>(
        &self,
        program: Program,
        name: &'static str,
        (reconciler, step, options): (R, Step, Options),
        _: (&Informer<V>, Option<Filter<V>>),
        _: &Barrier,
    ) -> (Program, Controller<InStep<R>>, Listen) {
        let reconciler = InStep { reconciler, step };
        (program, Controller::new(name, reconciler, options), Box::new(|| {}))
    }

    pub(super) fn barrier<F>(&self, _: &'static str, _: F) -> Barrier {
        Barrier
    }
}

/// Barrier of a new leader, which waits for nothing.
pub(super) struct Barrier;

impl Barrier {
    pub(super) async fn passed(self) {}
}

/// The election: there is none.
pub(super) struct Election;

impl Manager {
    pub(super) fn election(
        &self,
        _: &str,
        _: &impl Fn(client::Options) -> Result<Client, client::Error>,
    ) -> Result<(Election, client::Options), Error> {
        Ok((Election, self.client.clone()))
    }
}

impl Election {
    pub(super) fn lead(&self) -> Lead {
        Lead
    }

    pub(super) fn before(&self, program: Program, _: &Recorder) -> Program {
        program
    }

    pub(super) fn after(self, program: Program) -> Program {
        program
    }
}
