//! The OpenAPI document at `/openapi.json`, and a page that shows it at `/docs`.
//!
//! Handlers carry their operation (`#[utoipa::path]`). Answers are the structs that handlers return. Bodies are structs beside their
//! parsers, which take JSON objects apart themselves, since they account for every field; `tests.rs` holds the two together, field
//! by field. What follows from rules is added here: the errors of each operation, and the parameters of the operator's groups.

mod page;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::api::access::{self, Class};
use crate::api::operator::{admin, dashboard, measures, metrics};
use crate::api::{anthropic, error, health, openai};
use forebay_turn::control::Group;

pub use page::page;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Forebay",
        description = "An OpenAI-compatible LLM inference server whose operator sees, predicts and changes how requests are batched.\n\n\
            Routes below `/v1` are served without the prefix, too. `null` is the same as absent. A field that is not \
            listed is ignored and named in the header `x-ignored-params`; with `?strict=1` it is an error.",
    ),
    paths(
        openai::chat::handle,
        openai::completions::handle,
        openai::responses::handle,
        openai::responses::input_tokens,
        openai::render::render,
        openai::render::render_completion,
        openai::render::input_tokens,
        anthropic::handle,
        anthropic::count_tokens,
        openai::embeddings::handle,
        openai::rerank::handle,
        openai::files::upload,
        openai::files::list,
        openai::files::one,
        openai::files::content,
        openai::files::delete,
        openai::batches::create,
        openai::batches::list,
        openai::batches::one,
        openai::batches::cancel,
        openai::models::list,
        openai::models::one,
        openai::resume::read,
        openai::resume::delete,
        openai::tokenize::tokenize,
        openai::tokenize::detokenize,
        health::live,
        health::ready,
        metrics::text,
        measures::now,
        measures::history,
        document,
        page::page,
        dashboard::page,
        dashboard::page_below,
        dashboard::file,
        admin::live::stream,
        admin::state::get,
        admin::state::list,
        admin::audit::list,
        admin::balancer::get,
        admin::balancer::put,
        admin::balancer::one,
        admin::balancer::select,
        admin::control::get,
        admin::control::put,
        admin::control::one,
        admin::control::select,
        admin::control::thermal,
        admin::control::put_thermal,
        admin::control::thermal_level,
        admin::control::force_thermal,
        admin::advice::cost,
        admin::advice::advise,
        admin::advice::canary,
        admin::control::pause,
        admin::control::resume,
        admin::control::drain,
        admin::reload::reload,
        admin::control::reset_stats,
        admin::requests::list,
        admin::requests::one,
        admin::requests::cancel,
        admin::requests::trace,
    ),
    components(schemas(error::ErrorAnswer, anthropic::error::MessageErrorAnswer)),
    tags(
        (name = "openai", description = "OpenAI's API, with what vLLM and llama-server add to it"),
        (name = "anthropic", description = "Anthropic's API; its errors have Anthropic's shape"),
        (name = "probes", description = "For probes, scrapers and readers"),
        (name = "admin", description = "What the operator sees and changes; answers to loopback only unless `server.admin` says else"),
    )
)]
struct Described;

/// Served as it was made at the first look.
pub(super) static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = serde_json::to_value(Described::openapi()).unwrap_or_default();
    if let Some(paths) = document["paths"].as_object_mut() {
        spread_health(paths);
        spread_groups(paths);
        for (path, item) in paths.iter_mut() {
            let class = access::class(path);
            item.as_object_mut().into_iter().flatten().for_each(|(_, operation)| {
                add_security(operation, class);
                add_errors(operation);
            });
        }
    }
    document["components"]["securitySchemes"] = security_schemes();
    document
});
static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());

/// This document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "probes", responses((status = 200, description = "An OpenAPI 3.1 document", body = Value)))]
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// The other names of readiness.
fn spread_health(paths: &mut Map<String, Value>) {
    let ready = paths.get("/health/ready").cloned().unwrap_or_default();
    for name in ["health", "ready", "ping"] {
        let mut other = ready.clone();
        other["get"]["operationId"] = json!(name);
        paths.insert(format!("/{name}"), other);
    }
}

/// What is described once for all groups of parameters stands under each group's own path.
fn spread_groups(paths: &mut Map<String, Value>) {
    let whole = paths.remove("/admin/{group}").unwrap_or_default();
    let named = paths.remove("/admin/{group}/{name}").unwrap_or_default();
    for (below, group) in [("strategy", Group::Strategy), ("policy", Group::Policy), ("limits", Group::Limits)] {
        let mut spread = |path: String, item: &Value| {
            let mut item = item.clone();
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                let id = operation["operationId"].as_str().unwrap_or_default();
                operation["operationId"] = json!(format!("{method}_{id}_{below}"));
            }
            paths.insert(path, item);
        };
        spread(format!("/admin/{below}"), &whole);
        if !group.names().is_empty() {
            spread(format!("/admin/{below}/{{name}}"), &named);
        }
    }
    add_trial(&mut paths["/admin/strategy/{name}"]["post"]);
}

/// Only a strategy can be put on trial.
fn add_trial(select: &mut Value) {
    let query = |name: &str, description: &str| json!({"name": name, "in": "query", "required": false, "description": description, "schema": {"type": "string"}});
    if let Some(parameters) = select["parameters"].as_array_mut() {
        parameters.push(query(
            "canary",
            "Puts it on trial for so long, such as 10m; the answer is that of /admin/strategy/canary",
        ));
        parameters.push(query("share", "Of the time of a trial, from 0.01 to 0.9; 0.2 if absent"));
    }
    let either = ["Control", "CanaryState"].map(|name| json!({"$ref": format!("#/components/schemas/{name}")}));
    select["responses"]["200"]["content"]["application/json"]["schema"] = json!({"oneOf": either});
}

/// Both mean the same key. They are asked for where `keys.required` is set.
fn security_schemes() -> Value {
    let about = "An API key (`forebay keys create`), asked for where `keys.required` is set";
    json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": about},
        "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": about},
    })
}

fn add_security(operation: &mut Value, class: Class) {
    operation["security"] = match class {
        Class::Public => json!([]),
        Class::Inference | Class::Admin => json!([{"bearer": []}, {"apiKey": []}]),
    };
}

/// The errors that an operation may answer with, by what it is.
fn add_errors(operation: &mut Value) {
    let tagged = |tag: &str| operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|name| name == tag));
    if tagged("probes") {
        return;
    }
    let mut statuses = vec![401, 403, 500, 503];
    if operation.get("requestBody").is_some() {
        statuses.extend([400, 404, 408, 413, 415, 429, 504]);
    } else if operation["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["in"] == "path")) {
        statuses.extend([400, 404]);
    }
    statuses.sort_unstable();
    let name = if tagged("anthropic") { "MessageErrorAnswer" } else { "ErrorAnswer" };
    let body = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    for status in statuses {
        let description = axum::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        operation["responses"][status.to_string()] = json!({"description": description, "content": body});
    }
}

#[cfg(test)]
pub mod tests;
