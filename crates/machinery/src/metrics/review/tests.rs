use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::net::TcpListener;

use super::*;
use crate::client::Options;

/// Requests to the API server.
#[derive(Default)]
struct Asked {
    paths: Mutex<Vec<String>>,
    broken: Mutex<bool>,
}

impl Asked {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        self.paths.lock().push(path.clone());
        let mut answer = body.clone();
        answer["status"] = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => match body["spec"]["token"].as_str() {
                Some(name @ ("prometheus" | "stranger")) => json!({"authenticated": true,
                    "user": {"username": name, "groups": ["g"], "extra": {"k": ["v"]}}}),
                _ => json!({"error": "invalid bearer token"}),
            },
            _ => {
                assert_eq!(body["spec"]["groups"], json!(["g"]));
                assert_eq!(body["spec"]["extra"], json!({"k": ["v"]}));
                let wanted = json!({"path": "/metrics", "verb": "get"});
                assert_eq!(body["spec"]["nonResourceAttributes"], wanted);
                json!({"allowed": body["spec"]["user"] == "prometheus"})
            }
        };
        let mut response = Response::new(Full::new(answer.to_string().into()));
        if *self.broken.lock() {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response
    }
}

async fn reviews() -> (Reviews, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = server.clone();
            let service = service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    (Reviews::new(Client::new(config, Options::default()).unwrap()), asked)
}

#[tokio::test]
async fn the_api_server_says_who_may_and_is_not_asked_again_at_once() {
    let (reviews, asked) = reviews().await;
    for (token, expected) in [
        (Some("prometheus"), Ok(())),
        (Some("stranger"), Err(Refusal::Forbidden)),
        (Some("nonsense"), Err(Refusal::Unauthenticated)),
        (Some(""), Err(Refusal::Unauthenticated)),
        (None, Err(Refusal::Unauthenticated)),
    ] {
        for _ in 0..3 {
            assert_eq!(reviews.admit(token, "get", "/metrics").await, expected, "{token:?}");
        }
    }
    assert_eq!(asked.paths.lock().len(), 2 + 2 + 1, "each question once");
}

#[tokio::test]
async fn an_answer_is_forgotten_after_a_minute() {
    let (reviews, asked) = reviews().await;
    reviews.admit(Some("prometheus"), "get", "/metrics").await.unwrap();
    tokio::time::pause();
    tokio::time::advance(BELIEVED).await;
    tokio::time::resume();
    reviews.admit(Some("prometheus"), "get", "/metrics").await.unwrap();
    assert_eq!(asked.paths.lock().len(), 4);
}

#[tokio::test]
async fn when_the_api_server_cannot_say_nobody_is_admitted_and_nothing_is_remembered() {
    let (reviews, asked) = reviews().await;
    *asked.broken.lock() = true;
    let refused = reviews.admit(Some("prometheus"), "get", "/metrics").await;
    assert_eq!(refused, Err(Refusal::Unknown));
    *asked.broken.lock() = false;
    assert_eq!(reviews.admit(Some("prometheus"), "get", "/metrics").await, Ok(()));
}

#[tokio::test]
async fn the_memory_is_bounded_and_whoever_tries_tokens_pushes_no_valid_one_out() {
    let (reviews, asked) = reviews().await;
    for i in 0..2 * REMEMBERED {
        let _ = reviews.admit(Some(&format!("guess-{i}")), "get", "/metrics").await;
    }
    assert_eq!(reviews.known.lock().refused.len(), REMEMBERED);
    let before = asked.paths.lock().len();
    for _ in 0..3 {
        reviews.admit(Some("prometheus"), "get", "/metrics").await.unwrap();
    }
    assert_eq!(asked.paths.lock().len(), before + 2, "it is asked about once");
}

#[tokio::test]
async fn only_so_many_requests_wait_for_the_api_server() {
    let service = tower::service_fn(|_: Request<Bytes>| {
        std::future::pending::<Result<Response<String>, std::io::Error>>()
    });
    let reviews = Arc::new(Reviews::new(Client::from_service(service, Options::default())));
    let mut asked = tokio::task::JoinSet::new();
    for i in 0..WAITING + 3 {
        let reviews = reviews.clone();
        asked.spawn(async move { reviews.admit(Some(&i.to_string()), "get", "/metrics").await });
    }
    for _ in 0..3 {
        assert_eq!(asked.join_next().await.unwrap().unwrap(), Err(Refusal::Unknown));
    }
    assert_eq!(asked.len(), WAITING);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_token_that_was_admitted_is_remembered() {
    let (reviews, key) = (reviews().await.0, (1, 2));
    reviews.remember(key, Ok(()));
    tokio::time::advance(BELIEVED).await;
    assert_eq!(reviews.recall(key), None);
    reviews.remember(key, Err(Refusal::Forbidden));
    assert_eq!(reviews.recall(key), Some(Err(Refusal::Forbidden)));
    assert!(reviews.known.lock().admitted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_tries_tokens_keeps_no_valid_one_from_being_asked_about() {
    let service = tower::service_fn(|_: Request<Bytes>| {
        std::future::pending::<Result<Response<String>, std::io::Error>>()
    });
    let reviews = Arc::new(Reviews::new(Client::from_service(service, Options::default())));
    let question = ("prometheus", "get", "/metrics");
    let key = (reviews.hashers[0].hash_one(question), reviews.hashers[1].hash_one(question));
    reviews.remember(key, Ok(()));
    tokio::time::advance(BELIEVED).await;
    for i in 0..WAITING {
        let reviews = reviews.clone();
        tokio::spawn(async move { reviews.admit(Some(&i.to_string()), "get", "/metrics").await });
    }
    let moment = Duration::from_millis(1);
    tokio::time::sleep(moment).await;
    let admit = |token| tokio::time::timeout(moment, reviews.admit(Some(token), "get", "/metrics"));
    assert_eq!(admit("guess").await, Ok(Err(Refusal::Unknown)));
    assert!(admit("prometheus").await.is_err(), "it waits for its turn");
}
