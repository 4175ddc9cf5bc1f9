//! Logprobs as chats and responses tell them, and those of prompts as vLLM does.

use serde::Serialize;
use utoipa::ToSchema;

use super::ordered::Ordered;
use crate::generate::TokenLogprob;

/// A token's logprob, with alternatives.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatLogprob {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
    top_logprobs: Vec<TopLogprob>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TopLogprob {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

/// A token of a prompt, or an alternative to it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PromptLogprob {
    logprob: f64,
    rank: usize,
    decoded_token: String,
}

/// For each token of a prompt an object by token id; nothing for the first.
pub type PromptLogprobs = Vec<Option<Ordered<PromptLogprob>>>;

/// Of each token, with its alternatives.
pub fn token_logprobs(tokens: Vec<TokenLogprob>) -> Vec<ChatLogprob> {
    let of = |token: TokenLogprob| ChatLogprob {
        token: token.text,
        logprob: logprob(token.logprob),
        bytes: token.bytes,
        top_logprobs: token
            .top
            .into_iter()
            .map(|top| TopLogprob { token: top.text, logprob: logprob(top.logprob), bytes: top.bytes })
            .collect(),
    };
    tokens.into_iter().map(of).collect()
}

/// A prompt's logprobs in vLLM's shape. `count` alternatives.
pub fn prompt_logprobs(tokens: &[TokenLogprob], count: i64) -> PromptLogprobs {
    let entry = |text: &str, value: f32, rank: usize| PromptLogprob {
        logprob: logprob(value),
        rank,
        decoded_token: text.to_owned(),
    };
    let of = |token: &TokenLogprob| {
        let top = token.top.iter().take(count.max(0) as usize).enumerate();
        let alternatives = top.map(|(rank, top)| (top.token.to_string(), entry(&top.text, top.logprob, rank + 1)));
        let mut all: Ordered<PromptLogprob> = alternatives.collect();
        all.insert_new(token.token.to_string(), entry(&token.text, token.logprob, token.rank));
        Some(all)
    };
    std::iter::once(None).chain(tokens.iter().map(of)).collect()
}

/// JSON has no infinity; OpenAI writes this for what cannot happen.
pub fn logprob(value: f32) -> f64 {
    if value.is_finite() { f64::from(value) } else { -9999.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn logprobs_are_always_numbers() {
        assert_eq!([-0.5, f32::NEG_INFINITY, f32::NAN].map(logprob), [-0.5, -9999.0, -9999.0]);
    }

    #[test]
    fn a_prompts_logprobs_are_by_token_and_its_own_is_among_them() {
        let top = |token, logprob| generate::TopLogprob { token, text: format!("t{token}"), bytes: vec![65], logprob };
        let token = TokenLogprob {
            token: 9,
            text: "t9".into(),
            bytes: vec![65],
            hidden: false,
            logprob: -0.1,
            rank: 3,
            top: vec![top(7, -0.25), top(8, -0.5)],
        };
        let told = serde_json::to_string(&prompt_logprobs(std::slice::from_ref(&token), 1)).unwrap();
        let drawn = r#"{"logprob":-0.10000000149011612,"rank":3,"decoded_token":"t9"}"#;
        assert_eq!(told, format!(r#"[null,{{"7":{{"logprob":-0.25,"rank":1,"decoded_token":"t7"}},"9":{drawn}}}]"#));
        let told = serde_json::to_string(&token_logprobs(vec![token])).unwrap();
        let top = r#"{"token":"t7","logprob":-0.25,"bytes":[65]},{"token":"t8","logprob":-0.5,"bytes":[65]}"#;
        assert_eq!(
            told,
            format!(r#"[{{"token":"t9","logprob":-0.10000000149011612,"bytes":[65],"top_logprobs":[{top}]}}]"#)
        );
    }
}
