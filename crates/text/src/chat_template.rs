//! A model's chat template: messages to one prompt. Pure; the date is an argument.
//!
//! Templates are written for Jinja2 as Hugging Face Transformers sets it up (`utils/chat_template_utils.py`), and come from
//! model files, so they run on limited fuel, recursion and output.

use std::io::{self, Write};
use std::thread;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, context, filters};
use minijinja_contrib::pycompat::unknown_method_callback;
use thiserror::Error as ThisError;

use super::chat_values::{message_value, parsed, with_tools_in_system};
use super::strftime::strftime;
use super::template_error::TemplateError;
use crate::{ChatMessage, MessageCall, TemplateOptions, Tools};

/// Instructions per rendering. A message costs a few dozen.
const FUEL: u64 = 200_000;
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// Each level of nesting costs the template engine's stack; real templates need a handful.
const MAX_RECURSION: usize = 100;
/// Of the thread that renders. Dropping or serialising a value recurses once per level of its nesting, which only fuel
/// limits: a crafted template overflows an ordinary stack, and that would end the process. Untouched pages cost nothing.
const STACK_BYTES: usize = 256 << 20;
/// Of a message from a template to the client.
const MAX_MESSAGE_CHARS: usize = 500;
const NAME: &str = "chat";

pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
    tools_in: ToolsIn,
    /// Arguments of earlier calls are given as the text that they are, not as objects.
    arguments_as_text: bool,
}

/// Where a template looks for the tools of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolsIn {
    /// In the variable `tools`.
    Variable,
    /// In the system message, as text (Phi-4-mini).
    SystemMessage,
    Nowhere,
}

/// What `raise_exception` was given, as an error's cause: macros wrap errors, causes survive.
#[derive(Debug, ThisError)]
#[error("{0}")]
struct Raised(String);

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of those tokens, where the model names them.
    pub fn new(source: &str, bos: Option<String>, eos: Option<String>) -> Result<ChatTemplate, TemplateError> {
        let mut environment = Environment::new();
        // As Transformers' environment: ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(syntax_error)?);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_RECURSION);
        // Keeps copies of the variables, prompts among them, out of errors.
        environment.set_debug(false);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(syntax_error)?;
        let mut template = ChatTemplate {
            environment,
            source: source.to_owned(),
            bos_token: bos,
            eos_token: eos,
            tools_in: ToolsIn::Variable,
            arguments_as_text: false,
        };
        template.tools_in = template.find_tools();
        template.arguments_as_text = template.wants_text();
        Ok(template)
    }

    pub fn tools_in(&self) -> ToolsIn {
        self.tools_in
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a tool in each place and looks where it comes out: sources only tell what they mention.
    fn find_tools(&self) -> ToolsIn {
        const PROBE: &str = r#"[{"type": "function", "function": {"name": "probe_f", "description": "d",
            "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "d"}}, "required": ["a"]}}}]"#;
        if !self.mentions("tools") {
            return ToolsIn::Nowhere;
        }
        let tools = Tools { json: PROBE.to_owned(), ..Tools::default() };
        let options = TemplateOptions { tools: Some(tools), ..TemplateOptions::default() };
        let places = [ToolsIn::Variable, ToolsIn::SystemMessage];
        let chat = [ChatMessage::new("system", "s"), ChatMessage::new("user", "u")];
        let render = |place: ToolsIn, chat: &[ChatMessage]| self.render_place(chat, &options, place, false, 0);
        // Some templates refuse system messages; with those, what fails is taken at its source's word.
        let shows = |place: ToolsIn| match render(place, &chat).or_else(|_| render(place, &chat[1..])) {
            Ok(text) => text.contains("probe_f"),
            Err(_) => place == ToolsIn::Variable,
        };
        places.into_iter().find(|&place| shows(place)).unwrap_or(ToolsIn::Nowhere)
    }

    /// Transformers gives arguments as objects, and most templates write them with `tojson`; some join them to strings.
    fn wants_text(&self) -> bool {
        let call =
            MessageCall { id: "probe0000".into(), name: "f".into(), arguments: r#"{"probe_a": "b"}"#.to_owned() };
        let chat = [
            ChatMessage::new("user", "u"),
            ChatMessage { tool_calls: vec![call], ..ChatMessage::new("assistant", "") },
            ChatMessage { tool_call_id: Some("probe0000".into()), ..ChatMessage::new("tool", "r") },
        ];
        let options = TemplateOptions::default();
        let writes = |as_text: bool| {
            let text = self.render_place(&chat, &options, ToolsIn::Variable, as_text, 0);
            text.is_ok_and(|text| text.contains(r#""probe_a""#))
        };
        self.mentions("tool_calls") && !writes(false) && writes(true)
    }

    /// Renders `messages`; with `add_generation_prompt` the text ends where the assistant begins to speak. `unix_s` is the
    /// time that `strftime_now` formats, in UTC.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
        unix_s: u64,
    ) -> Result<String, TemplateError> {
        let options = TemplateOptions { no_generation_prompt: !add_generation_prompt, ..TemplateOptions::default() };
        self.render_with(messages, &options, unix_s)
    }

    /// Whether the template's source has the word `name`: a variable that it does not have changes nothing.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// [`ChatTemplate::render`] with a client's own variables. Continuing a message is not its business: it closes all.
    pub fn render_with(
        &self,
        messages: &[ChatMessage],
        options: &TemplateOptions,
        unix_s: u64,
    ) -> Result<String, TemplateError> {
        self.render_place(messages, options, self.tools_in, self.arguments_as_text, unix_s)
    }

    fn render_place(
        &self,
        messages: &[ChatMessage],
        options: &TemplateOptions,
        place: ToolsIn,
        arguments_as_text: bool,
        unix_s: u64,
    ) -> Result<String, TemplateError> {
        let render = || self.render_here(messages, options, place, arguments_as_text, unix_s);
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, render);
            let rendered = thread.map_err(|e| TemplateError::Failed { line: 0, message: e.to_string() })?.join();
            rendered.unwrap_or_else(|_| Err(TemplateError::Failed { line: 0, message: "it panicked".into() }))
        })
    }

    fn render_here(
        &self,
        messages: &[ChatMessage],
        options: &TemplateOptions,
        place: ToolsIn,
        arguments_as_text: bool,
        unix_s: u64,
    ) -> Result<String, TemplateError> {
        let json = options.tools.as_ref().map(|tools| tools.json.as_str());
        let tools = match json.filter(|_| place == ToolsIn::Variable) {
            Some(json) => parsed("tools", json)?,
            None => Value::from(()),
        };
        let values: Vec<Value> = messages.iter().map(|message| message_value(message, arguments_as_text)).collect();
        let context = context! {
            messages => with_tools_in_system(values, json.filter(|_| place == ToolsIn::SystemMessage)),
            tools,
            documents => (),
            add_generation_prompt => !options.no_generation_prompt,
            strftime_now => Value::from_function(move |format: String| strftime(&format, unix_s)),
            ..context_of_tokens(self.bos_token.as_deref(), self.eos_token.as_deref()),
        };
        // What stands first wins, so a client cannot replace what is above.
        let context = context! { ..context, ..variables(options)? };
        let mut output = BoundedOutput::default();
        let template = self.environment.get_template(NAME).map_err(failure)?;
        let rendered = template.render_captured_to(context, &mut output).map(drop);
        if output.full {
            return Err(TemplateError::TooLong { bytes: MAX_OUTPUT_BYTES });
        }
        rendered.map_err(failure)?;
        String::from_utf8(output.bytes).map_err(|e| TemplateError::Failed { line: 0, message: e.to_string() })
    }
}

fn variables(options: &TemplateOptions) -> Result<Value, TemplateError> {
    let parsed = options.variables.iter().map(|(name, json)| Ok((name.clone(), parsed(name, json)?)));
    Ok(Value::from_pairs(parsed.collect::<Result<Vec<_>, TemplateError>>()?))
}

/// A token that the model does not name stays undefined, as in Transformers.
fn context_of_tokens(bos_token: Option<&str>, eos_token: Option<&str>) -> Value {
    match (bos_token, eos_token) {
        (Some(bos_token), Some(eos_token)) => context! { bos_token, eos_token },
        (Some(bos_token), None) => context! { bos_token },
        (None, Some(eos_token)) => context! { eos_token },
        (None, None) => context! {},
    }
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

/// Transformers' `tojson`: Python's separators, and nothing escaped for HTML. The options that change neither here
/// (`ensure_ascii`, `sort_keys`, `separators`) are accepted and ignored.
fn tojson(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get::<Option<Value>>("indent")?,
    };
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        options.get::<Option<Value>>(ignored)?;
    }
    options.assert_all_used()?;
    let indent = indent.filter(|indent| !indent.is_none());
    let escaped = filters::tojson(value, indent, Kwargs::from_iter(std::iter::empty::<(String, Value)>()))?;
    Ok(Value::from(without_html_escapes(escaped.as_str().unwrap_or_default())))
}

/// Takes back the four escapes that the engine's `tojson` adds for HTML; JSON itself never needs them.
fn without_html_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        // An escape is a backslash and one ASCII character, or `\u` and four digits.
        let plain = match rest.get(at..at + 6) {
            Some("\\u003c") => Some('<'),
            Some("\\u003e") => Some('>'),
            Some("\\u0026") => Some('&'),
            Some("\\u0027") => Some('\''),
            _ => None,
        };
        let length = if plain.is_some() { 6 } else { 2 };
        match plain {
            Some(c) => out.push(c),
            None => out.push_str(rest.get(at..at + length).unwrap_or_default()),
        }
        rest = rest.get(at + length..).unwrap_or_default();
    }
    out + rest
}

/// `{% generation %}` marks the assistant's words for training. It becomes a block that does nothing, which keeps the
/// white space control of the tags as it is.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let (tag, after) = (&rest[start + 2..start + length], start + length + 2);
        let name = tag.trim_matches(['-', '+']).trim();
        let replaced = match name {
            "generation" => tag.replace(name, "if true"),
            "endgeneration" => tag.replace(name, "endif"),
            _ => tag.to_owned(),
        };
        out.push_str(&rest[..start]);
        out.extend(["{%", &replaced, "%}"]);
        rest = &rest[after..];
    }
    out + rest
}

fn syntax_error(error: Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(0), message: brief(&error) }
}

fn failure(error: Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TemplateError::Raised { message: cut(message) };
        }
        if current.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::TooMuchWork { steps: FUEL };
        }
        cause = current.source();
    }
    TemplateError::Failed { line: error.line().unwrap_or(0), message: brief(&error) }
}

fn brief(error: &Error) -> String {
    cut(&match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    })
}

fn cut(message: &str) -> String {
    message.chars().take(MAX_MESSAGE_CHARS).collect()
}

/// Ends a rendering that writes too much.
#[derive(Default)]
struct BoundedOutput {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for &mut BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "chat_template_tests.rs"]
mod tests;
