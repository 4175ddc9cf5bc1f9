//! Keys in front of the whole router: every route of the document, limits, and what is charged to whom.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::routing::get;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::api::access::{Class, class};
use crate::api::openapi::DOCUMENT;
use crate::api::routes::layered;
use crate::api::testing::{Answer, Scene, answer, get_request, json_post, raw, read, submitted};
use forebay_core::request::{Event, FinishReason, Priority, Weight};
use forebay_core::units::Micros;
use forebay_store::jobs::Ask;
use forebay_store::keys::testing::with_spool;
use forebay_store::keys::{Minted, NewKey, Role, Roles, Spool};
use forebay_store::{Grouping, UsageQuery, UsageRow, UsageSum};

/// A scene that asks for keys, and the keys.
async fn guarded(wanted: &[NewKey]) -> (Scene, Vec<Minted>) {
    let mut scene = Scene::new();
    let (keys, store, minted) = with_spool(&scene.state.clock, wanted, 100).await;
    (scene.state.front.keys, scene.state.front.store) = (Some(keys), store);
    (scene, minted)
}

fn with_role(role: Role) -> NewKey {
    NewKey { roles: Roles::new(&[role]).unwrap(), ..NewKey::named(role.name()) }
}

fn keyed(mut request: Request<Body>, token: &str) -> Request<Body> {
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// The ledger, after everything has been written.
async fn ledger(scene: &Scene, by: Grouping) -> Vec<UsageRow> {
    let spool: Spool = scene.state.keys.as_ref().unwrap().spool().clone();
    spool.run(scene.state.clock.clone(), async {}).await;
    scene.state.store.usage(&UsageQuery { days: (0, i64::MAX), key_id: None, by }).await.unwrap()
}

/// Every path that is served, with something in place of its parameters, by every name that it has.
fn served() -> Vec<(Method, String)> {
    let mut all = Vec::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let concrete: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        let concrete = concrete.join("/");
        let bare = concrete.strip_prefix("/v1").map(str::to_owned);
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            all.extend([Some(concrete.clone()), bare.clone()].into_iter().flatten().map(|path| (method.clone(), path)));
        }
    }
    all
}

async fn status(scene: &Scene, method: &Method, path: &str, token: Option<&str>) -> StatusCode {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let request = match token {
        Some(token) => keyed(request, token),
        None => request,
    };
    // Without the body: a stream of live states has no end.
    testing::status(&scene.state, request).await
}

#[tokio::test]
async fn every_route_asks_for_a_key_of_its_role() {
    let (mut scene, keys) = guarded(&[with_role(Role::Inference), with_role(Role::Admin)]).await;
    // Nobody hears commands, so that those which would be carried out end at once.
    scene.commands.close();
    let [inference, admin] = [&keys[0].token, &keys[1].token];
    let wrong = Some("sk-fb-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789abcdef");
    let closed = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
    let mut seen = 0;
    for (method, path) in served() {
        if class(&path) == Class::Public {
            let open = status(&scene, &method, &path, None).await;
            assert!(!closed.contains(&open), "{method} {path}: {open}");
            continue;
        }
        let (right, other) = match class(&path) {
            Class::Admin => (admin, inference),
            _ => (inference, admin),
        };
        for nobody in [None, wrong, Some(""), Some(keys[0].id.as_str())] {
            assert_eq!(status(&scene, &method, &path, nobody).await, 401, "{method} {path} {nobody:?}");
        }
        assert_eq!(status(&scene, &method, &path, Some(other)).await, 403, "{method} {path}");
        let let_in = status(&scene, &method, &path, Some(right)).await;
        assert!(!closed.contains(&let_in), "{method} {path}: {let_in}");
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
    let public: Vec<String> =
        served().into_iter().map(|(_, path)| path).filter(|p| class(p) == Class::Public).collect();
    assert!(public.iter().any(|path| path == "/metrics") && public.iter().any(|path| path == "/health/live"));
}

#[tokio::test]
async fn a_route_that_nobody_lists_asks_for_a_key_too() {
    let (scene, keys) = guarded(&[with_role(Role::Inference)]).await;
    let fresh = Router::new().route("/v1/fresh", get(|| async { "secret" }));
    let router = layered(fresh, scene.state.front.clone());
    let ask = |request: Request<Body>| router.clone().oneshot(request);
    assert_eq!(ask(get_request("/v1/fresh")).await.unwrap().status(), 401);
    let found = ask(keyed(get_request("/v1/fresh"), &keys[0].token)).await.unwrap();
    assert_eq!(read(found).await.body, "secret");
    for path in [
        "/",
        "/none",
        "/v1",
        "/V1/models",
        "//v1/models",
        "/v1/../admin/state",
        "/%61dmin/state",
        "/ADMIN/state",
        "/admin/../v1/models",
        "/v1/models/",
        "/health/../v1/models",
        "/v1/models?x=/health",
        "/.",
        "/metrics/",
    ] {
        assert_eq!(status(&scene, &Method::GET, path, None).await, 401, "{path}");
    }
    // The host decides nothing.
    for host in ["a/?", "a/health", "health"] {
        let request = Request::get("http://a/v1/models").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(answer(&scene.state, request).await.status, 401, "{host}");
    }
    assert_eq!(status(&scene, &Method::DELETE, "/v1/models", None).await, 401);
}

#[tokio::test]
async fn refusals_have_the_shape_of_their_api() {
    let (mut scene, keys) = guarded(&[with_role(Role::Admin)]).await;
    let refused = scene.send(json_post("/v1/chat/completions", &json!({}))).await;
    assert_eq!((refused.status.as_u16(), &refused.headers["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    let error = refused.error();
    assert_eq!((&error["type"], &error["code"]), (&json!("authentication_error"), &json!("invalid_api_key")));
    let refused = scene.send(json_post("/v1/messages", &json!({}))).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["type"]), (401, &json!("authentication_error")));
    assert_eq!(refused.json()["type"], "error");
    let mut request = json_post("/v1/messages", &json!({}));
    request.headers_mut().insert("x-api-key", keys[0].token.parse().unwrap());
    let refused = scene.send(request).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["type"]), (403, &json!("permission_error")));
}

/// One request with a key, whose sequences each hear what `script` says.
async fn play(scene: &mut Scene, token: &str, path: &str, body: &Value, script: &[Vec<Event>]) -> Answer {
    let mut scripts = script.iter();
    let (state, commands) = (scene.state.clone(), &mut scene.commands);
    let answering = answer(&state, keyed(json_post(path, body), token));
    tokio::pin!(answering);
    loop {
        tokio::select! {
            answer = &mut answering => return answer,
            Some(command) = commands.recv() => for submission in submitted(command) {
                let events = scripts.next().expect("a script for each sequence");
                events.iter().for_each(|event| submission.events.try_send(event.clone()).unwrap());
            },
        }
    }
}

#[tokio::test]
async fn whole_answers_streams_and_vectors_are_charged_to_their_key() {
    let (mut scene, keys) = guarded(&[NewKey::named("a"), NewKey::named("b")]).await;
    let (a, b) = (keys[0].token.clone(), keys[1].token.clone());
    // A token for each byte, and one for the end.
    let said = scene.says("xyz", FinishReason::Stop);
    let body = json!({"prompt": "hello", "max_tokens": 9});
    let found = [vec![Event::Admitted { cached_tokens: 2 }], said.clone()].concat();
    let whole = play(&mut scene, &a, "/v1/completions", &body, &[found]).await;
    let usage = whole.json()["usage"].clone();
    let (prompt, completion) = (usage["prompt_tokens"].as_i64().unwrap(), usage["completion_tokens"].as_i64().unwrap());
    assert!(prompt >= 2 && completion == 3, "{usage}");
    let streamed = json!({"prompt": "hello", "max_tokens": 9, "stream": true});
    let stream = play(&mut scene, &b, "/v1/completions", &streamed, &[said]).await;
    assert_eq!(stream.status, 200);
    let vector = vec![Event::Embedded(vec![1.0; 4]), Event::Finished(FinishReason::Stop)];
    let body = json!({"input": ["ab", "cd"]});
    let vectors = play(&mut scene, &a, "/embeddings", &body, &[vector.clone(), vector]).await;
    let embedded = vectors.json()["usage"]["prompt_tokens"].as_i64().unwrap();
    // Refused for what it is: it took nothing.
    let refused = play(&mut scene, &a, "/v1/completions", &json!({"prompt": "a", "n": 0}), &[]).await;
    assert_eq!(refused.status, 400);

    let by = Grouping { key: true, route: true, model: true, ..Grouping::default() };
    let row = |key: &Minted, route: &str, prompt_tokens, cached_tokens, completion_tokens| UsageRow {
        key_id: Some(key.id.clone()),
        day: None,
        route: Some(route.into()),
        model: Some("org/storyteller".into()),
        sum: UsageSum { requests: 1, prompt_tokens, cached_tokens, completion_tokens },
    };
    let mut expected = vec![
        row(&keys[0], "completions", prompt, 2, completion),
        row(&keys[0], "embeddings", embedded, 0, 0),
        row(&keys[1], "completions", prompt, 0, completion),
    ];
    expected.sort_by(|x, y| (&x.key_id, &x.route).cmp(&(&y.key_id, &y.route)));
    assert_eq!(ledger(&scene, by).await, expected);
}

#[tokio::test]
async fn a_batchs_lines_are_charged_to_who_made_it() {
    let (mut scene, keys) = guarded(&[NewKey::named("a")]).await;
    let ask = |owner: Option<&str>| Ask {
        batch: "batch_1".into(),
        owner: owner.map(str::to_owned),
        url: "/v1/completions".into(),
        body: json!({"prompt": "hello", "max_tokens": 9}).to_string(),
    };
    let answerer = answerer(router(scene.state.clone()));
    let unknown = answerer(ask(Some("key_0000000000000000"))).await;
    assert_eq!(unknown.status, 401);
    let said = scene.says("xyz", FinishReason::Stop);
    let answering = tokio::spawn(answerer(ask(Some(&keys[0].id))));
    let group = submitted(scene.commands.recv().await.unwrap());
    let request = &group[0].request;
    assert_eq!((request.priority(), &*request.origin().tenant), (Priority::Batch, "batch_1"));
    said.into_iter().for_each(|event| group[0].events.try_send(event).unwrap());
    assert_eq!(answering.await.unwrap().status, 200);
    let by_key = Grouping { key: true, ..Grouping::default() };
    let rows = ledger(&scene, by_key).await;
    assert_eq!((rows.len(), rows[0].key_id.as_deref(), rows[0].sum.requests), (1, Some(keys[0].id.as_str()), 1));
    // One that was made before there were keys is asked for, and nobody pays.
    let answering = tokio::spawn(answerer(ask(None)));
    let group = submitted(scene.commands.recv().await.unwrap());
    group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
    assert_eq!(answering.await.unwrap().status, 200);
    assert_eq!(ledger(&scene, by_key).await, rows);
}

#[tokio::test]
async fn limits_are_told_in_openais_headers_and_refused_with_a_time() {
    let limited = NewKey { requests_per_minute: Some(2), tokens_per_minute: Some(600), ..NewKey::named("a") };
    let (mut scene, keys) = guarded(&[limited]).await;
    let token = keys[0].token.clone();
    let said = scene.says("xyz", FinishReason::Stop);
    let body = json!({"prompt": "hello", "max_tokens": 9});
    let header = |answer: &Answer, name: &str| answer.headers[name].to_str().unwrap().to_owned();
    let first = play(&mut scene, &token, "/v1/completions", &body, std::slice::from_ref(&said)).await;
    assert_eq!(header(&first, "x-ratelimit-limit-requests"), "2");
    assert_eq!(header(&first, "x-ratelimit-remaining-requests"), "1");
    assert_eq!(header(&first, "x-ratelimit-reset-requests"), "30s");
    assert_eq!(header(&first, "x-ratelimit-limit-tokens"), "600");
    assert_eq!(header(&first, "x-ratelimit-remaining-tokens"), "600");
    let second = play(&mut scene, &token, "/v1/completions", &body, std::slice::from_ref(&said)).await;
    assert!(header(&second, "x-ratelimit-remaining-tokens").parse::<u32>().unwrap() < 600);
    let third = scene.send(keyed(json_post("/v1/completions", &body), &token)).await;
    assert_eq!((third.status.as_u16(), third.error()["code"].as_str()), (429, Some("rate_limit_exceeded")));
    assert_eq!(header(&third, "retry-after"), "30");
    assert_eq!(header(&third, "x-ratelimit-remaining-requests"), "0");
    // What no model works for is not counted.
    let models = scene.send(keyed(get_request("/v1/models"), &token)).await;
    assert_eq!((models.status.as_u16(), models.headers.contains_key("x-ratelimit-limit-requests")), (200, false));
    scene.state.clock.advance(Micros(30_000_000));
    let fourth = play(&mut scene, &token, "/v1/completions", &body, &[said]).await;
    assert_eq!(fourth.status, 200);
}

#[tokio::test]
async fn a_stream_holds_its_place_until_its_body_ends() {
    let limited = NewKey { concurrency: Some(1), ..NewKey::named("a") };
    let (mut scene, keys) = guarded(&[limited]).await;
    let token = keys[0].token.clone();
    let body = json!({"prompt": "hello", "max_tokens": 9, "stream": true});
    let asking = router(scene.state.clone()).oneshot(keyed(json_post("/v1/completions", &body), &token));
    let (response, group) = tokio::join!(asking, async { submitted(scene.commands.recv().await.unwrap()) });
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    let refused = answer(&scene.state, keyed(json_post("/v1/completions", &body), &token)).await;
    assert_eq!((refused.status.as_u16(), refused.headers["retry-after"].to_str().unwrap()), (429, "1"));
    // The client leaves.
    drop((response, group));
    let again = answer(&scene.state, keyed(raw("/v1/completions", "{}"), &token)).await;
    assert_eq!(again.status, 400, "it is let in");
}

/// Such a stream goes on without its client: a key with one place had twelve of them at once.
#[tokio::test]
async fn a_stream_that_can_be_read_again_holds_its_place_until_it_ends() {
    let limited = NewKey { concurrency: Some(1), ..NewKey::named("a") };
    let (mut scene, keys) = guarded(&[limited]).await;
    let token = keys[0].token.clone();
    let body = json!({"prompt": "hello", "max_tokens": 9, "stream": true});
    let mut request = keyed(json_post("/v1/completions", &body), &token);
    request.headers_mut().insert("x-conversation-id", "talk".parse().unwrap());
    let asking = router(scene.state.clone()).oneshot(request);
    let (response, group) = tokio::join!(asking, async { submitted(scene.commands.recv().await.unwrap()) });
    assert_eq!(response.as_ref().unwrap().status(), 200);
    // The client leaves, the work does not.
    drop(response);
    let again = async || answer(&scene.state, keyed(raw("/v1/completions", "{}"), &token)).await.status.as_u16();
    assert_eq!(again().await, 429);
    ends(&group);
    while again().await == 429 {
        tokio::task::yield_now().await;
    }
    assert_eq!(again().await, 400, "it is let in");
}

fn ends(group: &[forebay_engine::command::Submission]) {
    group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
}

#[tokio::test]
async fn a_key_is_the_tenant_with_its_weight_its_salt_and_its_ceiling() {
    let low = NewKey {
        priority_ceiling: Some(Priority::Low),
        weight: Weight::from_thousandths(2_500).unwrap(),
        ..NewKey::named("low")
    };
    let shared = NewKey { cache_salt: Some(String::new()), ..NewKey::named("shared") };
    let (mut scene, keys) = guarded(&[low, shared]).await;
    let state = scene.state.clone();
    let ask = |key: &Minted, body: Value| {
        let (state, request) = (state.clone(), keyed(json_post("/v1/completions", &body), &key.token));
        tokio::spawn(async move { answer(&state, request).await })
    };
    let asked = ask(&keys[0], json!({"prompt": "a", "user": "somebody"}));
    let group = submitted(scene.commands.recv().await.unwrap());
    let request = &group[0].request;
    assert_eq!(&*request.origin().tenant, keys[0].id);
    assert_eq!(request.origin().weight.thousandths(), 2_500);
    assert_eq!((&**request.cache_salt(), request.priority()), (&keys[0].digest[..32], Priority::Low));
    ends(&group);
    assert_eq!(asked.await.unwrap().status, 200);
    let asked = ask(&keys[1], json!({"prompt": "a", "priority": "high"}));
    let group = submitted(scene.commands.recv().await.unwrap());
    assert_eq!((&**group[0].request.cache_salt(), group[0].request.priority()), ("", Priority::High));
    ends(&group);
    assert_eq!(asked.await.unwrap().status, 200);
    let asked = ask(&keys[1], json!({"prompt": "a", "cache_salt": "mine"}));
    let group = submitted(scene.commands.recv().await.unwrap());
    assert_eq!(&**group[0].request.cache_salt(), "mine");
    ends(&group);
    assert_eq!(asked.await.unwrap().status, 200);
    for above in [json!({"prompt": "a", "priority": "normal"}), json!({"prompt": "a", "service_tier": "priority"})] {
        let refused = ask(&keys[0], above).await.unwrap();
        assert_eq!((refused.status.as_u16(), refused.error()["type"].as_str()), (403, Some("permission_error")));
    }
}

#[tokio::test]
async fn files_batches_and_streams_are_for_their_own_key() {
    let (mut scene, keys) = guarded(&[NewKey::named("a"), NewKey::named("b")]).await;
    let (a, b) = (&keys[0].token, &keys[1].token);
    let form = "--x\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\ncontent-disposition: \
                form-data; name=\"file\"; filename=\"f\"\r\n\r\n{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\
                \"/v1/completions\",\"body\":{\"prompt\":\"a\"}}\n\r\n--x--\r\n";
    let upload = Request::post("/v1/files").header("content-type", "multipart/form-data; boundary=x");
    let file = scene.send(keyed(upload.body(Body::from(form)).unwrap(), a)).await;
    let id = file.json()["id"].as_str().unwrap_or_else(|| panic!("{file:?}")).to_owned();
    let batch = json!({"input_file_id": id, "endpoint": "/v1/completions", "completion_window": "24h"});
    let taken = scene.send(keyed(json_post("/v1/batches", &batch), b)).await;
    assert_eq!((taken.status.as_u16(), taken.error()["param"].as_str()), (400, Some("input_file_id")));
    let made = scene.send(keyed(json_post("/v1/batches", &batch), a)).await;
    let batch_id = made.json()["id"].as_str().unwrap().to_owned();
    for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content"), format!("/v1/batches/{batch_id}")] {
        assert_eq!(status(&scene, &Method::GET, &path, Some(a)).await, 200, "{path}");
        assert_eq!(status(&scene, &Method::GET, &path, Some(b)).await, 404, "{path}");
    }
    for path in ["/v1/files", "/v1/batches"] {
        let count = |answer: Answer| answer.json()["data"].as_array().unwrap().len();
        assert_eq!(count(scene.send(keyed(get_request(path), a)).await), 1, "{path}");
        assert_eq!(count(scene.send(keyed(get_request(path), b)).await), 0, "{path}");
    }
    let cancel = format!("/v1/batches/{batch_id}/cancel");
    assert_eq!(status(&scene, &Method::POST, &cancel, Some(b)).await, 404);
    assert_eq!(status(&scene, &Method::DELETE, &format!("/v1/files/{id}"), Some(b)).await, 404);
    assert_eq!(status(&scene, &Method::POST, &cancel, Some(a)).await, 200);

    let said = scene.says("xyz", FinishReason::Stop);
    let body = json!({"prompt": "hello", "max_tokens": 9, "stream": true});
    let mut request = keyed(json_post("/v1/completions", &body), a);
    request.headers_mut().insert("x-conversation-id", "talk".parse().unwrap());
    let state = scene.state.clone();
    let asked = tokio::spawn(async move { answer(&state, request).await });
    let group = submitted(scene.commands.recv().await.unwrap());
    said.into_iter().for_each(|event| group[0].events.try_send(event).unwrap());
    assert_eq!(asked.await.unwrap().status, 200);
    assert_eq!(status(&scene, &Method::GET, "/v1/stream/talk", Some(a)).await, 200);
    assert_eq!(status(&scene, &Method::GET, "/v1/stream/talk", Some(b)).await, 404);
}

#[tokio::test]
async fn the_operators_listener_and_the_main_one_answer_their_own() {
    let scene = Scene::new();
    let through = |door: Door, path: &str| {
        let mut request = get_request(path);
        request.extensions_mut().insert(door);
        let state = scene.state.clone();
        async move { answer(&state, request).await.status.as_u16() }
    };
    assert_eq!(through(Door::Main, "/v1/models").await, 200);
    assert_eq!(through(Door::Main, "/admin/thermal/x").await, 404);
    assert_eq!(through(Door::Main, "/admin/audit").await, 404);
    assert_eq!(through(Door::Admin, "/admin/audit").await, 200);
    assert_eq!(through(Door::Admin, "/v1/models").await, 404);
    assert_eq!(through(Door::Whole, "/admin/audit").await, 200);
    for door in [Door::Main, Door::Admin, Door::Whole] {
        assert_eq!(through(door, "/metrics").await, 200);
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_let_in_by_name() {
    let (mut scene, keys) = guarded(&[NewKey::named("a")]).await;
    let preflight = |origin: &str| {
        let request = Request::builder().method(Method::OPTIONS).uri("/v1/chat/completions").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization,x-stainless-os").body(Body::empty()).unwrap()
    };
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    let none = answer(&scene.state, preflight("https://a.example")).await;
    assert_eq!((none.status.as_u16(), allowed(&none)), (401, None));
    scene.state.front.origins = Some(Origins::of(&["https://a.example".to_owned()]));
    let told = answer(&scene.state, preflight("https://a.example")).await;
    assert_eq!((told.status.as_u16(), allowed(&told)), (200, Some("https://a.example".parse().unwrap())));
    assert_eq!(told.headers["access-control-allow-headers"], "authorization,x-stainless-os");
    assert_eq!(allowed(&answer(&scene.state, preflight("https://b.example")).await), None);
    // Without a key it still gets nothing, but may read why.
    let mut request = get_request("/v1/models");
    request.headers_mut().insert("origin", "https://a.example".parse().unwrap());
    let refused = answer(&scene.state, request).await;
    assert_eq!((refused.status.as_u16(), allowed(&refused)), (401, Some("https://a.example".parse().unwrap())));
    let mut request = keyed(get_request("/v1/models"), &keys[0].token);
    request.headers_mut().insert("origin", "https://a.example".parse().unwrap());
    let found = answer(&scene.state, request).await;
    assert_eq!((found.status.as_u16(), allowed(&found)), (200, Some("https://a.example".parse().unwrap())));
    assert!(found.headers["access-control-expose-headers"].to_str().unwrap().contains("x-request-id"));
}
