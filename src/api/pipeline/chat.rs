//! Every field of a chat, which all routes that lead to one come down to.

use serde_json::{Map, Value, json};

use super::head::Head;
use super::messages::take_messages;
use super::params::Fields;
use super::rename::renamed;
use super::sampling::{Delivery, check_model, check_special, check_stream, take_delivery, take_sampling};
use super::tool_choice::enforce;
use super::tools::take_tools;
use crate::api::State;
use crate::generate::{Prompt, RawRequest};
use forebay_core::request::{Parameters, RequestError};
use forebay_text::{ChatMessage, TemplateOptions};

/// A chat, understood; what every route that leads to one comes down to.
pub struct Asked {
    pub raw: RawRequest,
    pub delivery: Delivery,
    pub ignored: Vec<String>,
}

/// Every field of a chat.
pub fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    let adapter = check_model(state, &mut fields)?;
    let messages = take_messages(&mut fields)?;
    name_unread(state, &mut fields, &messages);
    let prompt = Prompt::Chat(messages);
    check_special(&mut fields, false)?;
    let mut delivery = take_delivery(&mut fields, head)?;
    delivery.logprobs = take_logprobs(&mut fields)?;
    let (tools, choice) = take_tools(&mut fields)?;
    let template = TemplateOptions { tools, ..take_template(state, &mut fields)? };
    let max_thinking_tokens = fields.integer("max_thinking_tokens")?;
    let sampling = take_sampling(&mut fields, head)?;
    let parameters = Parameters {
        adapter,
        max_thinking_tokens,
        logprobs: delivery.logprobs,
        logprobs_param: "top_logprobs",
        ..sampling.parameters
    };
    let mut raw = RawRequest { prompt, template, parameters, ..sampling };
    enforce(&mut raw, &choice, state.generator.call_format())?;
    delivery.prompt_logprobs = raw.parameters.prompt_logprobs;
    check_stream(&delivery)?;
    Ok(Asked { raw, delivery, ignored: fields.finish(head.strict)? })
}

/// A request of another protocol that was put into a chat's words. What is wrong with it, and what is ignored, is told in its own:
/// `named` translates back.
pub fn parse_translated(
    state: &State,
    head: &Head,
    chat: Map<String, Value>,
    mut ignored: Vec<String>,
    named: impl Fn(&str) -> Option<String>,
) -> Result<Asked, RequestError> {
    let asked = parse(state, head, Fields::translated(chat)).map_err(|error| renamed(error, &named))?;
    ignored.extend(asked.ignored.into_iter().map(|name| named(&name).unwrap_or(name)));
    Ok(Asked { ignored, ..asked })
}

/// What the chat template has no place for, so that the model never sees it.
fn name_unread(state: &State, fields: &mut Fields, messages: &[ChatMessage]) {
    let template = &state.generator;
    // The name of a tool's result is ours, of its call.
    let named = messages.iter().any(|message| message.name.is_some() && message.role != "tool");
    if named && !template.template_mentions("name") {
        fields.ignore("messages.name");
    }
    let thought = messages.iter().any(|message| message.reasoning.is_some());
    if thought && !template.template_mentions("reasoning_content") {
        fields.ignore("messages.reasoning_content");
    }
}

/// What the chat template hears beside the messages. A variable that it does not have would change nothing, so it is named
/// as ignored.
pub fn take_template(state: &State, fields: &mut Fields) -> Result<TemplateOptions, RequestError> {
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
    Ok(TemplateOptions { no_generation_prompt: !generation_prompt, continue_final_message, variables, tools: None })
}

fn take_logprobs(fields: &mut Fields) -> Result<Option<i64>, RequestError> {
    let (wanted, top) = (fields.flag("logprobs")?, fields.integer("top_logprobs")?);
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(RequestError::invalid("top_logprobs", "needs logprobs to be true")),
    }
}
