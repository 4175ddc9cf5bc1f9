//! What the protocols share, from a request's JSON to an answer's: OpenAI's chats, completions and responses, Anthropic's messages,
//! and the relay.
//!
//! ```text
//! head.rs      whose a request is, how urgent, how long it may take
//! params.rs    takes fields out of a JSON object and accounts for every one of them; rename.rs, origins.rs  names in errors
//! request.rs, request_headers.rs  what bodies and headers may hold, as the document describes it
//! sampling.rs  the fields that all generations know; structured.rs  what a completion is held to
//! chat.rs      a chat: messages.rs, tools.rs what it may call, tool_choice.rs and must; prompts.rs  prompts that are no chat
//! running.rs   the generations of one request, merged
//! frames.rs    a stream of chunks, as chat and completions have it
//! parts.rs     one answer as a list of parts; answer_format.rs  written whole or as named events
//! translated.rs  a request of another protocol as a chat
//! wire.rs      identity and headers of an answer; usage.rs, logprobs.rs, traces.rs  parts of its body; ordered.rs  objects by name
//! lists.rs     what lists and queries have in common
//! ```

pub mod answer_format;
pub mod chat;
pub mod frames;
pub mod head;
pub mod lists;
pub mod logprobs;
pub mod messages;
pub mod ordered;
pub mod origins;
pub mod params;
pub mod parts;
pub mod prompts;
pub mod rename;
pub mod request;
pub mod request_headers;
pub mod running;
pub mod sampling;
mod structured;
mod tool_choice;
pub mod tools;
pub mod traces;
pub mod translated;
pub mod usage;
pub mod wire;
