//! A trial passes a controller that restores everything, and notices one that does not.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::controller::{Action, ReconcileError};
use crate::manager::{Context, Manager};
use crate::object::{Kind, Meta, Typed};
use crate::testing::{Id, Trial};
use crate::view;

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    metadata: Meta,
    spec: Value,
}

view!(Page: Kind::namespaced("example.com", "v1", "Page", "pages"));

fn desired(page: &Page) -> Value {
    json!({"metadata": {"name": page.metadata.key.name()}, "data": page.spec})
}

async fn reconcile(page: Arc<Page>, cx: Context<Page>) -> Result<Action, ReconcileError> {
    cx.ensure::<Typed<ConfigMap>>(desired(&page)).await?;
    Ok(Action::Done)
}

/// Creates, and never changes.
async fn create(page: Arc<Page>, cx: Context<Page>) -> Result<Action, ReconcileError> {
    if cx.owned::<Typed<ConfigMap>>()?.is_empty() {
        cx.ensure::<Typed<ConfigMap>>(desired(&page)).await?;
    }
    Ok(Action::Done)
}

fn manager() -> Manager {
    Manager::new("pages").controller::<Page>().owns::<Typed<ConfigMap>>().reconcile(reconcile)
}

#[test]
fn a_controller_that_restores_everything_passes() {
    let page = Id::new("/apis/example.com/v1/pages", "shop", "front");
    let specs = [json!({"title": "A", "body": "a"}), json!({"title": "B"}), json!({})];
    Trial::new(page, specs, manager).run(50);
}

#[test]
#[should_panic(expected = "histories fail")]
fn one_that_only_creates_is_noticed() {
    let page = Id::new("/apis/example.com/v1/pages", "shop", "front");
    let specs = [json!({"title": "A", "body": "a"}), json!({"title": "B"}), json!({})];
    let manager =
        || Manager::new("pages").controller::<Page>().owns::<Typed<ConfigMap>>().reconcile(create);
    Trial::new(page, specs, manager).run(50);
}
