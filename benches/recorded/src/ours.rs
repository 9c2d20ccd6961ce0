//! Our informer, a queue that it fills, and a worker that takes each key and does nothing with it.

use std::path::PathBuf;
use std::sync::Arc;

use http::Request;
use kube::client::Body;
use tokio::sync::Notify;
use tower::service_fn;
use workload_operator::client::{Client, Options};
use workload_operator::controller::{Handle, enqueue};
use workload_operator::informer::Informer;
use workload_operator::object::{Kind, ObjectKey};
use workload_operator::shutdown::Shutdown;
use workload_operator::store::Delta;
use workload_operator::workqueue::WorkQueue;

use crate::measure::Meter;
use crate::recording;
use crate::sample::Deployment;

const FOO: Kind = Kind::namespaced("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");

pub(crate) async fn run(path: PathBuf, mut meter: Meter) -> Meter {
    let service = service_fn(move |_: Request<Body>| {
        let answer = recording::answer(&path);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let client = Client::from_service(service, Options::default());
    let informer = Informer::<Deployment>::builder(client).build();
    let queue = WorkQueue::<ObjectKey>::new();
    let worker = queue.clone();
    tokio::spawn(async move { while worker.get().await.is_some() {} });

    let end = Arc::new(Notify::new());
    let (result, at_end) = (Arc::new(std::sync::Mutex::new(None)), end.clone());
    let at = result.clone();
    let enqueue = enqueue::for_owner(Handle::new(queue), FOO);
    informer.handle(move |delta: &Delta<Deployment>, initial| {
        enqueue(delta, initial);
        if meter.event() {
            *at.lock().expect("nobody panics") = Some(meter.clone());
            at_end.notify_one();
        }
    });
    let shutdown = Shutdown::manual();
    tokio::select! {
        ended = informer.run(shutdown.clone()) => panic!("the informer ended: {ended:?}"),
        () = end.notified() => {}
    }
    let meter = result.lock().expect("nobody panics").take();
    let mut meter = meter.expect("it is there when the end is told");
    // Everything is still held.
    meter.settled(informer.store().len());
    meter
}
