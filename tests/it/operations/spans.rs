//! Spans, as a collector sees them: OTLP over HTTP, protobuf.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::server::Server;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that keeps what it hears.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    async fn start() -> Collector {
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let services: Arc<Mutex<Vec<String>>> = Arc::default();
        let (heard, named) = (spans.clone(), services.clone());
        let hear = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            assert_eq!(headers["x-tenant"], "test", "OTEL_EXPORTER_OTLP_HEADERS");
            let request = ExportTraceServiceRequest::decode(body).expect("protobuf of OTLP");
            for of_resource in request.resource_spans {
                let attributes = of_resource.resource.expect("a resource").attributes;
                let name = attributes.iter().find(|pair| pair.key == "service.name").expect("a name");
                named.lock().expect("no panic").push(format!("{:?}", name.value));
                let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
                heard.lock().expect("no panic").extend(spans);
            }
            Vec::<u8>::new()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().route("/v1/traces", post(hear));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Collector { url, spans, services }
    }

    fn server(&self, args: &[&str]) -> Server {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.url.as_str()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=test"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ];
        Server::start_in(args, &variables)
    }

    async fn until(&self, count: usize) -> Vec<Span> {
        self.until_of(|_| true, count).await
    }

    async fn until_of(&self, wanted: impl Fn(&Span) -> bool, count: usize) -> Vec<Span> {
        for _ in 0..3_000 {
            let spans: Vec<Span> =
                self.spans.lock().expect("no panic").iter().filter(|span| wanted(span)).cloned().collect();
            if spans.len() >= count {
                return spans;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{count} spans never came: {:#?}", self.spans.lock());
    }
}

async fn ask(server: &Server, traceparent: Option<&str>, body: serde_json::Value) {
    let mut request = reqwest::Client::new().post(server.at("/v1/completions")).json(&body);
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent).header("tracestate", "vendor=1");
    }
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.bytes().await.expect("a body");
}

fn prompt(tokens: usize, max_tokens: usize) -> serde_json::Value {
    json!({"prompt": vec![5; tokens], "max_tokens": max_tokens, "ignore_eos": true})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

fn number(span: &Span, key: &str) -> i64 {
    match attribute(span, key) {
        Value::IntValue(number) => number,
        other => panic!("{key} is {other:?}"),
    }
}

fn text(span: &Span, key: &str) -> String {
    match attribute(span, key) {
        Value::StringValue(text) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> Value {
    let pair = span.attributes.iter().find(|pair| pair.key == key);
    let value = pair.and_then(|pair| pair.value.clone()).and_then(|value| value.value);
    value.unwrap_or_else(|| panic!("no {key} in {span:#?}"))
}

#[tokio::test]
async fn a_request_is_a_span_with_its_phases_inside_a_given_trace() {
    let collector = Collector::start().await;
    let server = collector.server(&["--max-num-batched-tokens", "16"]);
    // Whoever began this one wants no spans of it.
    ask(&server, Some(&format!("00-{}-{PARENT}-00", "a".repeat(32))), json!({"prompt": [6, 7], "max_tokens": 2})).await;
    ask(&server, Some(&format!("00-{TRACE}-{PARENT}-01")), prompt(40, 10)).await;
    let spans = collector.until(4).await;
    assert_eq!(spans.len(), 4, "{spans:#?}");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:#?}");
    let request = named(&spans, "POST /v1/completions");
    assert_eq!((hex(&request.parent_span_id).as_str(), request.kind), (PARENT, 2), "a server's");
    assert_eq!(request.trace_state, "vendor=1");
    assert_eq!(number(request, "http.response.status_code"), 200);
    assert_eq!((number(request, "gen_ai.usage.input_tokens"), number(request, "gen_ai.usage.output_tokens")), (40, 10));
    let [queue, prefill, decode] = ["queue", "prefill", "decode"].map(|name| named(&spans, name));
    for phase in [queue, prefill, decode] {
        assert_eq!(phase.parent_span_id, request.span_id, "{phase:#?}");
        assert!(request.start_time_unix_nano <= phase.start_time_unix_nano, "{phase:#?}");
        assert!(phase.end_time_unix_nano <= request.end_time_unix_nano, "{phase:#?}");
    }
    assert_eq!(queue.end_time_unix_nano, prefill.start_time_unix_nano);
    assert_eq!(prefill.end_time_unix_nano, decode.start_time_unix_nano);
    assert!(
        decode.end_time_unix_nano > decode.start_time_unix_nano
            && prefill.end_time_unix_nano > prefill.start_time_unix_nano
    );
    assert_eq!((number(prefill, "forebay.steps"), number(prefill, "forebay.tokens")), (3, 40), "16 + 16 + 8");
    // The first token is the prefill's.
    assert_eq!((number(decode, "forebay.steps"), number(decode, "forebay.tokens")), (9, 10));
    assert_eq!(text(decode, "gen_ai.response.finish_reason"), "length");
    assert_eq!(text(queue, "forebay.priority"), "normal");
    assert!(collector.services.lock().expect("no panic").iter().all(|name| name.contains("forebay")));
}

#[tokio::test]
async fn each_choice_has_phases_of_its_own_and_what_begins_here_is_a_root() {
    let collector = Collector::start().await;
    let server = collector.server(&[]);
    let mut body = prompt(8, 3);
    body["n"] = json!(2);
    ask(&server, None, body).await;
    let spans = collector.until(7).await;
    let request = named(&spans, "POST /v1/completions");
    assert!(request.parent_span_id.is_empty(), "{request:#?}");
    for name in ["queue", "prefill", "decode"] {
        let phases: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(phases.len(), 2, "{name}");
        assert_ne!(text(phases[0], "forebay.sequence"), text(phases[1], "forebay.sequence"));
        assert!(
            phases.iter().all(|phase| phase.parent_span_id == request.span_id && phase.trace_id == request.trace_id)
        );
    }
}

#[tokio::test]
async fn the_trace_goes_on_at_the_server_that_a_router_asks() {
    let collector = Collector::start().await;
    let upstream = collector.server(&[]);
    let router = collector.server(&["--upstreams", &upstream.url]);
    router.until_metric(r#"forebay_worker_status{status="idle",worker="upstream-0"}"#, 1.0).await;
    ask(&router, Some(&format!("00-{TRACE}-{PARENT}-01")), prompt(8, 3)).await;
    // The router's checks of its upstream are traces of their own.
    let spans = collector.until_of(|span| hex(&span.trace_id) == TRACE, 5).await;
    let ours = |span: &&Span| hex(&span.parent_span_id) == PARENT;
    let first = spans.iter().find(ours).expect("the router's span");
    let second = spans.iter().find(|span| span.parent_span_id == first.span_id).expect("the upstream's span");
    assert_eq!((second.name.as_str(), hex(&second.trace_id).as_str()), ("POST /v1/completions", TRACE));
    assert_eq!(named(&spans, "decode").parent_span_id, second.span_id);
}

/// A collector that takes connections and says nothing.
#[tokio::test]
async fn a_collector_that_hangs_holds_nobody_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let variables =
        [("OTEL_BSP_SCHEDULE_DELAY", "10"), ("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")];
    let mut server = Server::start_in(&["--otlp-endpoint", &url], &variables);
    for _ in 0..40 {
        ask(&server, None, prompt(4, 2)).await;
    }
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn an_endpoint_of_another_protocol_is_refused_at_the_start() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--port", "0"])
        .env("FOREBAY__STORE__URL", "memory")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://collector:4317")
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("grpc://collector:4317"), "{said}");
}
