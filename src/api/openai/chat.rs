//! `POST /v1/chat/completions`.

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::frames::{self, Chunks};
use super::head::Head;
use super::params::{Fields, wrong};
use super::running::{Finished, Running};
use super::sampling::{Delivery, check_model, check_stream, take_delivery, take_sampling};
use super::wire::{self, About, Identity};
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::generate::{TextDelta, TokenLogprob};
use crate::metrics::Route;
use crate::request::{ChatMessage, FinishReason, Prompt, RawRequest, RequestError, TemplateOptions};

const MAX_MESSAGES: usize = 2_048;

struct Asked {
    raw: RawRequest,
    delivery: Delivery,
    ignored: Vec<String>,
}

pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, request.uri(), request.headers(), "chatcmpl")?;
    let asked = parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
    let delivery = asked.delivery;
    let running = Running::start(&state, &head, vec![asked.raw], delivery).await?;
    let about = About::new(&running, asked.ignored);
    let mut response = if delivery.stream {
        frames::stream(&state, &head, running, ChatChunks { delivery }, delivery)
    } else {
        let identity = Identity::new(&state, &head, "chat.completion");
        let (running, choices) = running.collect().await?;
        let mut body = whole(&identity, &running, choices, delivery);
        if delivery.traced {
            body["forebay_trace"] = wire::trace(&state.engine, &head.id).await;
        }
        Json(body).into_response()
    };
    wire::headers(&mut response, about);
    Ok(response)
}

fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    check_model(state, &mut fields)?;
    let prompt = Prompt::Chat(messages(&mut fields)?);
    let mut delivery = take_delivery(&mut fields, head)?;
    delivery.logprobs = take_logprobs(&mut fields)?;
    let template = take_template(state, &mut fields)?;
    let raw = RawRequest {
        prompt,
        template,
        logprobs: delivery.logprobs,
        logprobs_param: "top_logprobs",
        ..take_sampling(&mut fields, head)?
    };
    delivery.prompt_logprobs = raw.prompt_logprobs;
    check_stream(&delivery)?;
    Ok(Asked { raw, delivery, ignored: fields.finish(head.strict)? })
}

/// What the chat template hears beside the messages. A variable that it does not have would change nothing, so it is named
/// as ignored.
fn take_template(state: &State, fields: &mut Fields) -> Result<TemplateOptions, RequestError> {
    const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
    let continue_final_message = fields.flag("continue_final_message")?;
    let generation_prompt = fields.optional_flag("add_generation_prompt")?.unwrap_or(!continue_final_message);
    let mut variables = Vec::new();
    if let Some(kwargs) = fields.object("chat_template_kwargs")? {
        for (name, value) in kwargs.into_rest() {
            if !state.generator.template_mentions(&name) {
                fields.ignore(format!("chat_template_kwargs.{name}"));
            }
            variables.push((name, value.to_string()));
        }
    }
    if let Some(effort) = fields.string("reasoning_effort")? {
        if !EFFORTS.contains(&effort.as_str()) {
            let message = format!("must be one of {}", EFFORTS.join(", "));
            return Err(RequestError::invalid("reasoning_effort", message));
        }
        if state.generator.template_mentions("reasoning_effort") {
            variables.push(("reasoning_effort".into(), json!(effort).to_string()));
        } else if effort == "none" && state.generator.template_mentions("enable_thinking") {
            variables.push(("enable_thinking".into(), "false".into()));
        } else if effort != "none" {
            fields.ignore("reasoning_effort");
        }
    }
    Ok(TemplateOptions { no_generation_prompt: !generation_prompt, continue_final_message, variables })
}

fn take_logprobs(fields: &mut Fields) -> Result<Option<i64>, RequestError> {
    let (wanted, top) = (fields.flag("logprobs")?, fields.integer("top_logprobs")?);
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(RequestError::invalid("top_logprobs", "needs logprobs to be true")),
    }
}

pub fn messages(fields: &mut Fields) -> Result<Vec<ChatMessage>, RequestError> {
    let list = match fields.take("messages") {
        None => return Err(RequestError::invalid("messages", "is required")),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(RequestError::invalid("messages", "must have at least one entry"));
        }
        Some(Value::Array(list)) if list.len() > MAX_MESSAGES => {
            let message = format!("has {} entries, at most {MAX_MESSAGES} are allowed", list.len());
            return Err(RequestError::invalid("messages", message));
        }
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("messages", "a list", &other)),
    };
    list.into_iter().enumerate().map(|(index, value)| message(fields, index, value)).collect()
}

fn message(fields: &mut Fields, index: usize, value: Value) -> Result<ChatMessage, RequestError> {
    let at = |name: &str| format!("messages[{index}]{name}");
    let Value::Object(object) = value else { return Err(wrong(&at(""), "an object", &value)) };
    let mut message = Fields::new(object);
    let role = role(&at(".role"), message.take("role"))?;
    for name in ["tool_calls", "function_call", "audio", "tool_call_id"] {
        if message.take(name).is_some_and(|value| value != json!([])) {
            let text = "tools and audio are not implemented".into();
            return Err(RequestError::Unsupported { param: at(&format!(".{name}")), message: text });
        }
    }
    let content = match message.take("content") {
        Some(content) => content_text(&at(".content"), content)?,
        // What an assistant's message without words looks like.
        None if role == "assistant" => String::new(),
        None => return Err(RequestError::invalid(at(".content"), "is required")),
    };
    let name = match message.take("name") {
        Some(Value::String(name)) => Some(name),
        Some(other) => return Err(wrong(&at(".name"), "a string", &other)),
        None => None,
    };
    fields.absorb("messages", message);
    Ok(ChatMessage { role, content, name })
}

fn role(param: &str, value: Option<Value>) -> Result<String, RequestError> {
    match value.as_ref().and_then(Value::as_str) {
        // OpenAI's newer name; templates know only the older.
        Some("developer" | "system") => Ok("system".into()),
        Some(role @ ("user" | "assistant")) => Ok(role.into()),
        Some("tool" | "function") => {
            Err(RequestError::Unsupported { param: param.into(), message: "tools are not implemented".into() })
        }
        _ => Err(RequestError::invalid(param, "must be system, developer, user or assistant")),
    }
}

/// A string, or parts of type `text`, joined.
fn content_text(param: &str, content: Value) -> Result<String, RequestError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(wrong(param, "a string or a list of parts", &other)),
    };
    let mut joined = String::new();
    for (index, part) in parts.iter().enumerate() {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => joined.push_str(text),
            (Some("text"), None) => {
                return Err(RequestError::invalid(format!("{param}[{index}].text"), "must be a string"));
            }
            (Some(_), _) => {
                let param = format!("{param}[{index}].type");
                return Err(RequestError::Unsupported { param, message: "only text parts are implemented".into() });
            }
            (None, _) => return Err(RequestError::invalid(format!("{param}[{index}].type"), "must be a string")),
        }
    }
    Ok(joined)
}

fn whole(identity: &Identity, running: &Running, choices: Vec<Finished>, delivery: Delivery) -> Value {
    let prompt = choices.first().and_then(|choice| choice.prompt.clone()).unwrap_or_default();
    let choice = |(index, finished): (usize, Finished)| {
        let mut choice = json!({
            "index": index,
            "message": {"role": "assistant", "content": finished.text, "refusal": null},
            "logprobs": delivery.logprobs.map(|_| content_logprobs(&finished.logprobs)),
            "finish_reason": finished.reason.map(FinishReason::name),
        });
        if delivery.token_ids {
            choice["token_ids"] = json!(finished.tokens);
        }
        choice
    };
    let mut body = identity.wrap(choices.into_iter().enumerate().map(choice).collect());
    body["usage"] = wire::usage_of(running);
    body["timings"] = wire::timings(&running.timings());
    if let Some(count) = delivery.prompt_logprobs {
        body["prompt_logprobs"] = wire::prompt_logprobs(&prompt, count);
    }
    if delivery.token_ids {
        body["prompt_token_ids"] = json!(running.started.first().map(|started| &started.prompt_tokens));
    }
    body
}

struct ChatChunks {
    delivery: Delivery,
}

impl ChatChunks {
    fn chunk(&self, index: usize, delta: Value, logprobs: Option<Value>, reason: Option<FinishReason>) -> Value {
        json!({
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason.map(FinishReason::name),
        })
    }
}

impl Chunks for ChatChunks {
    const ROUTE: Route = Route::Chat;
    const OBJECT: &'static str = "chat.completion.chunk";

    /// A role for each choice.
    fn opening(&mut self, running: &Running) -> Vec<Value> {
        let role = json!({"role": "assistant", "content": ""});
        let chunk = |index| {
            let mut chunk = self.chunk(index, role.clone(), None, None);
            if self.delivery.token_ids {
                chunk["prompt_token_ids"] = json!(running.started.first().map(|started| &started.prompt_tokens));
            }
            chunk
        };
        (0..running.total()).map(chunk).collect()
    }

    fn text(&mut self, index: usize, delta: TextDelta) -> Option<Value> {
        let shown = !delta.text.is_empty() || !delta.logprobs.is_empty() || self.delivery.token_ids;
        if !shown {
            return None;
        }
        let logprobs = self.delivery.logprobs.map(|_| content_logprobs(&delta.logprobs));
        let mut chunk = self.chunk(index, json!({"content": delta.text}), logprobs, None);
        if self.delivery.token_ids {
            chunk["token_ids"] = json!(delta.tokens);
        }
        Some(chunk)
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> Value {
        self.chunk(index, json!({}), None, Some(reason))
    }
}

fn content_logprobs(tokens: &[TokenLogprob]) -> Value {
    let entry = |text: &str, logprob: f32, bytes: &[u8]| json!({"token": text, "logprob": wire::logprob(logprob), "bytes": bytes});
    let content = tokens.iter().map(|token| {
        let mut drawn = entry(&token.text, token.logprob, &token.bytes);
        let top = token.top.iter().map(|top| entry(&top.text, top.logprob, &top.bytes)).collect::<Vec<_>>();
        drawn["top_logprobs"] = json!(top);
        drawn
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(messages_value: Value) -> Result<Vec<(String, String)>, RequestError> {
        let mut fields = Fields::new(json!({"messages": messages_value}).as_object().unwrap().clone());
        Ok(messages(&mut fields)?.into_iter().map(|message| (message.role, message.content)).collect())
    }

    #[test]
    fn content_is_a_string_or_text_parts() {
        let given = json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": null},
            {"role": "assistant", "content": null, "tool_calls": []},
        ]);
        let expected = [("system", "be brief"), ("user", "ab"), ("assistant", "")];
        assert_eq!(parsed(given), Ok(expected.map(|(role, content)| (role.into(), content.into())).to_vec()));
    }

    #[test]
    fn bad_messages_name_the_place() {
        for (given, param) in [
            (json!([]), "messages"),
            (json!("hi"), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]), "messages[1].role"),
            (json!([{"content": "a"}]), "messages[0].role"),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": null}]), "messages[0].content"),
            (json!([{"role": "user", "content": 5}]), "messages[0].content"),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
            (json!([{"role": "user", "content": ["a"]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "tool", "content": "a"}]), "messages[0].role"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls"),
            (json!([{"role": "user", "content": "a", "name": 5}]), "messages[0].name"),
        ] {
            match parsed(given.clone()) {
                Err(RequestError::InvalidValue { param: got, .. } | RequestError::Unsupported { param: got, .. }) => {
                    assert_eq!(got, param, "{given}");
                }
                other => panic!("{given}: {other:?}"),
            }
        }
    }
}
