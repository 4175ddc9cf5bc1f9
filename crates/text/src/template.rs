//! What a chat asks of the model's template beside its messages.

use forebay_core::request::RequestError;

/// The neutral value is a plain chat: the assistant begins to speak where the text ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateOptions {
    /// The text ends after the last message.
    pub no_generation_prompt: bool,
    /// The last message is not closed: the model goes on writing it.
    pub continue_final_message: bool,
    /// Variables for the template: a name and a value, written as JSON.
    pub variables: Vec<(String, String)>,
    /// What the model may call. Absent is also a chat whose tools are not to be called.
    pub tools: Option<Tools>,
}

/// The tools of a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Their definitions as the client wrote them: a list, as JSON.
    pub json: String,
    pub names: Vec<String>,
    /// The answer ends with its first call.
    pub only_first: bool,
}

/// Names that the server itself gives a meaning; a client that could set them would forge a prompt.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "chat_template",
    "tokenize",
    "conversation",
    "raise_exception",
    "strftime_now",
    "return_dict",
    "return_tensors",
    "padding",
    "truncation",
    "max_length",
];
const MAX_VARIABLES: usize = 32;
/// Of all names and values together.
const MAX_BYTES: usize = 64 << 10;

impl TemplateOptions {
    /// What a client may say to the template.
    pub fn check(&self) -> Result<(), RequestError> {
        const PARAM: &str = "chat_template_kwargs";
        if self.continue_final_message && !self.no_generation_prompt {
            let message = "cannot be true together with add_generation_prompt";
            return Err(RequestError::invalid("continue_final_message", message));
        }
        if let Some((name, _)) = self.variables.iter().find(|(name, _)| RESERVED.contains(&name.as_str())) {
            return Err(RequestError::invalid(format!("{PARAM}.{name}"), "is not for clients to set"));
        }
        if self.variables.len() > MAX_VARIABLES {
            return Err(RequestError::invalid(PARAM, format!("may have at most {MAX_VARIABLES} entries")));
        }
        if self.variables.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_BYTES {
            return Err(RequestError::invalid(PARAM, format!("may have at most {MAX_BYTES} bytes")));
        }
        Ok(())
    }
}
