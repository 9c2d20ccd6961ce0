//! Watches: their events and how they end.

use super::*;

#[tokio::test]
async fn a_watch_ends_normally_only_between_events() {
    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
    let (good, _) = client(200, &[EVENT], End::Good);
    let mut events = watch(&good).await;
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert!(events.next().await.is_none() && events.next().await.is_none());

    let (cut, _) = client(200, &[EVENT, "{\"type\":"], End::Good);
    let mut events = watch(&cut).await;
    assert!(matches!(events.next().await, Some(Ok(_))));
    assert!(matches!(events.next().await, Some(Err(Error::Cut(_)))));
    assert!(events.next().await.is_none(), "after an error the watch is over");

    let (broken, _) = client(200, &[EVENT], End::Broken);
    let mut events = watch(&broken).await;
    assert!(matches!(events.next().await, Some(Ok(_))));
    assert!(matches!(events.next().await, Some(Err(Error::Transport { .. }))));
}

#[tokio::test]
async fn an_error_frame_ends_the_watch() {
    let (client, asked) = client(
        200,
        &[
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n{\"type\":\"ADDED\"",
        ],
        End::Never,
    );
    let mut events = watch(&client).await;
    assert!(events.next().await.unwrap().unwrap_err().is_expired());
    assert!(events.next().await.is_none());
    assert_eq!(asked.lock().encoding, "identity");
    assert_eq!(asked.lock().agent, "website/1.2.3");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_next_loses_no_event() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let service = service_fn(move |_: Request<Bytes>| {
        let receiver = receiver.lock().take().unwrap();
        async move {
            let chunks = stream::unfold(receiver, |mut receiver| async {
                let chunk = Bytes::from(receiver.recv().await?);
                Some((Ok::<_, BoxError>(Frame::data(chunk)), receiver))
            });
            let body: Pieces = Box::pin(chunks);
            Ok::<_, Infallible>(Response::new(StreamBody::new(body)))
        }
    });
    let client = Client::from_service(service, Options::default());
    let mut events = watch(&client).await;
    sender.send("{\"type\":\"ADDED\",\"object\":{\"meta").unwrap();
    assert!(timeout(Duration::from_millis(1), events.next()).await.is_err());
    sender.send("data\":{\"name\":\"a\"}}}\n{\"type\":").unwrap();
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Added(thing))) if *thing.key().name() == *"a")
    );
    assert!(timeout(Duration::from_millis(1), events.next()).await.is_err());
    sender.send("\"DELETED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\n").unwrap();
    drop(sender);
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Deleted(thing))) if *thing.key().name() == *"b")
    );
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn metadata_only_is_preferred_to_complete_objects() {
    let (client, asked) =
        client(200, &[r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#], End::Good);
    let (page, only) = (Page::default(), Scope { metadata_only: true, ..Scope::default() });
    client.list::<Thing>(&only, &page, |_| {}).await.unwrap();
    let as_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(asked.lock().accept, format!("{as_list},application/json"));
    client.watch::<Thing>(&only, &from("1")).await.unwrap();
    let as_object = as_list.replace("List", "");
    assert_eq!(asked.lock().accept, format!("{as_object},application/json"));
}
