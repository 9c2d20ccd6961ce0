//! Lists: their items, and lists that break off or never end.

use super::*;

#[tokio::test]
async fn an_undecodable_item_does_not_affect_the_others() {
    let (client, _) = client(
        200,
        &[
            r#"{"kind":"ThingList","metadata":{"resourceVersion":"9","continue":"t"},"items":[{"meta"#,
            r#"data":{"name":"a"},"size":1},{"metadata":{"name":"b","resourceVersion":"4"},"size":"x"},{"#,
            r#""metadata":{"name":"c"}}]}"#,
        ],
        End::Good,
    );
    let (end, items) = list(&client).await;
    let end = end.unwrap();
    assert_eq!((&*end.version, end.continue_token.as_deref()), ("9", Some("t")));
    assert_eq!(items, ["a 1", "b undecodable at 4", "c 0"]);
}

#[tokio::test]
async fn an_incomplete_list_is_an_error() {
    const HEAD: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},"#;
    let (cut, _) = client(200, &[HEAD], End::Good);
    assert!(matches!(list(&cut).await.0, Err(Error::Cut(_))));
    let (broken, _) = client(200, &[HEAD], End::Broken);
    let (end, _) = list(&broken).await;
    assert!(end.unwrap_err().to_string().contains("connection reset"));
}

#[tokio::test]
async fn a_status_in_place_of_a_list_is_an_error() {
    let (client, _) = client(
        200,
        &[r#"{"kind":"Status","metadata":{},"code":410,"#, r#""reason":"Expired"}"#],
        End::Good,
    );
    assert!(list(&client).await.0.unwrap_err().is_expired());
}

#[tokio::test]
async fn an_item_without_a_name_is_an_error() {
    let (client, _) = client(200, &[r#"{"items":[{"size":1}],"metadata":{}}"#], End::Good);
    assert!(matches!(list(&client).await.0, Err(Error::Decode { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_list_from_a_silent_server_fails_at_the_deadline() {
    let began = Instant::now();
    let (client, _) = client(200, &[r#"{"items":["#], End::Never);
    assert!(matches!(list(&client).await.0, Err(Error::Deadline(_))));
    assert!(matches!(client.get::<Thing>(&key()).await, Err(Error::Deadline(_))));
    assert_eq!(began.elapsed().as_secs(), 40);
}

#[tokio::test(start_paused = true)]
async fn items_are_delivered_while_the_list_arrives() {
    let item = format!(r#"{{"metadata":{{"name":"a","x":"{}"}}}},"#, "y".repeat(100_000));
    let item: &'static str = item.leak();
    let (client, _) = client(200, vec![r#"{"items":["#, item, item].leak(), End::Never);
    let (end, items) = list(&client).await;
    assert!(matches!(end, Err(Error::Deadline(_))));
    assert_eq!(items, ["a 0", "a 0"]);
}

#[tokio::test]
async fn the_fields_of_a_list_have_any_order_and_spaces() {
    let meta = r#""metadata": {"resourceVersion": "9"}"#;
    let items = r#""items" : [ {"metadata":{"name":"\"items\":[a"}} , {"metadata":{"name":"b"}} ]"#;
    for text in [format!("{{ {meta}, {items} }}"), format!("{{ {items} , {meta} }}\n")] {
        let (client, _) = client(200, vec![&*text.leak()].leak(), End::Good);
        let (end, found) = list(&client).await;
        assert_eq!((end.unwrap().version, found.len()), ("9".to_owned(), 2));
    }
    let (client, _) =
        client(200, &[r#"{"metadata":{"resourceVersion":"9"},"items":null}"#], End::Good);
    assert!(list(&client).await.0.is_ok());
}
