//! A chat as a client wrote it.

/// One message of a chat, its content parts already joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
    pub name: Option<String>,
    /// What the assistant thought before it said `content`.
    pub reasoning: Option<String>,
    /// The calls that the assistant made.
    pub tool_calls: Vec<MessageCall>,
    /// Of the call whose result this is.
    pub tool_call_id: Option<String>,
}

/// A call that was made earlier in a chat; `arguments` are JSON as far as the model could write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

impl ChatMessage {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> ChatMessage {
        ChatMessage { role: role.into(), content: content.into(), ..ChatMessage::default() }
    }

    /// Every text that the client wrote.
    /// All of them but the arguments of calls, which are JSON.
    pub fn words_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let ChatMessage { role, content, name, reasoning, tool_calls, tool_call_id } = self;
        let calls = tool_calls.iter_mut().flat_map(|call| [&mut call.id, &mut call.name]);
        [role, content].into_iter().chain(name).chain(reasoning).chain(calls).chain(tool_call_id)
    }

    pub fn arguments_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.tool_calls.iter_mut().map(|call| &mut call.arguments)
    }

    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let ChatMessage { role, content, name, reasoning, tool_calls, tool_call_id } = self;
        let calls = tool_calls.iter().flat_map(|call| [&call.id, &call.name, &call.arguments]);
        [role, content].into_iter().chain(name).chain(reasoning).chain(calls).chain(tool_call_id)
    }
}
