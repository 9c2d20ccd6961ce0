use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;
use crate::client::Options;

/// Requests to the API server.
#[derive(Default)]
struct Asked {
    paths: Mutex<Vec<String>>,
    /// Answers to all of them with this status.
    refuses_with: Mutex<Option<StatusCode>>,
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
        if let Some(code) = *self.refuses_with.lock() {
            *response.status_mut() = code;
        }
        response
    }
}

async fn reviews() -> (DelegatedAuthorizer, Arc<Asked>) {
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
    (DelegatedAuthorizer::new(Client::new(config, Options::default()).await.unwrap()), asked)
}

#[tokio::test]
async fn the_api_server_authorizes_and_the_result_is_cached() {
    let (reviews, asked) = reviews().await;
    for (token, expected) in [
        (Some("prometheus"), Ok(())),
        (Some("stranger"), Err(Refusal::Forbidden)),
        (Some("nonsense"), Err(Refusal::Unauthenticated)),
        (Some(""), Err(Refusal::Unauthenticated)),
        (None, Err(Refusal::Unauthenticated)),
    ] {
        for _ in 0..3 {
            assert_eq!(reviews.admit(token).await, expected, "{token:?}");
        }
    }
    assert_eq!(asked.paths.lock().len(), 2 + 2 + 1, "each question once");
}

#[tokio::test]
async fn a_result_expires_after_a_minute() {
    let (reviews, asked) = reviews().await;
    reviews.admit(Some("prometheus")).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(BELIEVED).await;
    tokio::time::resume();
    reviews.admit(Some("prometheus")).await.unwrap();
    assert_eq!(asked.paths.lock().len(), 4);
}

#[tokio::test]
async fn a_failed_review_admits_no_client_and_is_not_cached() {
    let (reviews, asked) = reviews().await;
    *asked.refuses_with.lock() = Some(StatusCode::INTERNAL_SERVER_ERROR);
    let refused = reviews.admit(Some("prometheus")).await;
    assert_eq!(refused, Err(Refusal::Unknown));
    *asked.refuses_with.lock() = None;
    assert_eq!(reviews.admit(Some("prometheus")).await, Ok(()));
}

#[tokio::test]
async fn the_cache_is_bounded_and_guessed_tokens_displace_no_valid_one() {
    let (reviews, asked) = reviews().await;
    for i in 0..2 * REMEMBERED {
        let _ = reviews.admit(Some(&format!("guess-{i}"))).await;
    }
    assert_eq!(reviews.known.lock().len(), REMEMBERED);
    let before = asked.paths.lock().len();
    for _ in 0..3 {
        reviews.admit(Some("prometheus")).await.unwrap();
    }
    assert_eq!(asked.paths.lock().len(), before + 2, "it is asked about once");
}

/// Reviews that the API server never answers.
fn unanswered() -> Arc<DelegatedAuthorizer> {
    let service = tower::service_fn(|_: Request<Bytes>| {
        std::future::pending::<Result<Response<String>, std::io::Error>>()
    });
    Arc::new(DelegatedAuthorizer::new(Client::from_service(service, Options::default())))
}

#[tokio::test]
async fn the_number_of_concurrent_reviews_is_limited() {
    let reviews = unanswered();
    let mut asked = tokio::task::JoinSet::new();
    for i in 0..ASKING + 3 {
        let reviews = reviews.clone();
        asked.spawn(async move { reviews.admit(Some(&i.to_string())).await });
    }
    for _ in 0..3 {
        assert_eq!(asked.join_next().await.unwrap().unwrap(), Err(Refusal::Unknown));
    }
    assert_eq!(asked.len(), ASKING);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_formerly_admitted_token_is_cached() {
    let (reviews, key) = (unanswered(), (1, 2));
    reviews.remember(key, Ok(()));
    tokio::time::advance(BELIEVED).await;
    reviews.remember(key, Err(Refusal::Forbidden));
    let known = reviews.known.lock();
    assert_eq!(
        known.values().map(|(_, answer)| *answer).collect::<Vec<_>>(),
        [Err(Refusal::Forbidden)]
    );
}

#[tokio::test(start_paused = true)]
async fn guessed_tokens_do_not_block_reviews_of_valid_ones() {
    let reviews = unanswered();
    reviews.remember(reviews.key("prometheus"), Ok(()));
    tokio::time::advance(BELIEVED).await;
    for i in 0..2 * REMEMBERED as u64 {
        reviews.remember((i, i), Err(Refusal::Unauthenticated));
    }
    for i in 0..ASKING {
        let reviews = reviews.clone();
        tokio::spawn(async move { reviews.admit(Some(&i.to_string())).await });
    }
    let moment = Duration::from_millis(1);
    tokio::time::sleep(moment).await;
    let admit = |token| tokio::time::timeout(moment, reviews.admit(Some(token)));
    assert_eq!(admit("guess").await, Ok(Err(Refusal::Unknown)));
    assert!(admit("prometheus").await.is_err(), "it is asked about");
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_replaced() {
    let reviews = unanswered();
    for i in 0..REMEMBERED as u64 {
        reviews.remember((i, i), Ok(()));
    }
    tokio::time::advance(BELIEVED).await;
    reviews.remember(reviews.key("renewed"), Ok(()));
    assert_eq!(reviews.known.lock().len(), 1);
}

#[tokio::test]
async fn a_missing_permission_is_reported_once_until_a_review_succeeds() {
    let (reviews, asked) = reviews().await;
    let is_reported = || reviews.is_reported.load(Ordering::Relaxed);
    for _ in 0..2 {
        *asked.refuses_with.lock() = Some(StatusCode::FORBIDDEN);
        for token in ["prometheus", "stranger"] {
            assert_eq!(reviews.admit(Some(token)).await, Err(Refusal::Unknown));
            assert!(is_reported());
        }
        *asked.refuses_with.lock() = None;
        assert_eq!(reviews.admit(Some("nonsense")).await, Err(Refusal::Unauthenticated));
        assert!(is_reported(), "the second review may still be refused");
        reviews.admit(Some("prometheus")).await.unwrap();
        assert!(!is_reported());
        reviews.known.lock().clear();
    }
}
