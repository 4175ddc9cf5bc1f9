//! A model that says what it was made to say: its weights lead from each token to the next, so that whole answers of other
//! models can be played through the real engine.

use half::bf16;
use serde_json::{Map, json};
use tempfile::TempDir;

use crate::support::checkpoint::Checkpoint;
use crate::support::server::Server;

const HIDDEN: usize = 64;
const VOCAB: usize = 160;
/// Before what is said: words that are not known, something never said, the end, and where the answer begins.
const RESERVED: [&str; 4] = ["<unk>", "<pad>", "<eos>", "<go>"];

/// A Llama whose answer to everything is these tokens, each different, then the end. `special` ones are control tokens. The
/// chat template is `template` and `<go>`.
pub fn parrot(says: &[&str], special: &[&str], template: &str) -> TempDir {
    let tokens: Vec<&str> = RESERVED.iter().chain(says).copied().collect();
    assert!(tokens.len() <= HIDDEN, "a direction for each token");
    let mut checkpoint = Checkpoint::llama(1);
    for layer in 0..2 {
        // Layers add nothing: what goes in is the last token, and so is what comes out.
        for name in ["self_attn.o_proj", "mlp.down_proj"] {
            checkpoint.tensor(&format!("model.layers.{layer}.{name}.weight")).bytes.fill(0);
        }
    }
    let matrix = |ones: &dyn Fn(usize) -> Option<usize>| {
        let value = |(row, column): (usize, usize)| bf16::from_f32(if ones(row) == Some(column) { 8.0 } else { 0.0 });
        (0..VOCAB * HIDDEN).flat_map(|at| value((at / HIDDEN, at % HIDDEN)).to_le_bytes()).collect::<Vec<u8>>()
    };
    let last = tokens.len() - 1;
    checkpoint.tensor("model.embed_tokens.weight").bytes = matrix(&|token| (token <= last).then_some(token));
    // The row of a token points where the token before it does; the end comes after the last.
    checkpoint.tensor("lm_head.weight").bytes = matrix(&|token| match token {
        2 => Some(last),
        token if token > RESERVED.len() - 1 && token <= last => Some(token - 1),
        _ => None,
    });
    checkpoint.config["max_position_embeddings"] = json!(512);
    let folder = checkpoint.write();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    write("tokenizer.json", tokenizer(&tokens, special));
    write(
        "tokenizer_config.json",
        json!({"chat_template": format!("{template}<go>"), "eos_token": "<eos>"}).to_string(),
    );
    folder
}

impl Server {
    pub fn parrot(folder: &TempDir, arguments: &[&str]) -> Server {
        let path = folder.path().to_str().expect("utf-8 path");
        Server::start(&[&["--model", path, "--served-model-name", "parrot"], arguments].concat())
    }
}

/// As Qwen3 speaks: a thought, a word, two calls.
pub const SAYS: &[&str] = &[
    "<think>",
    "\n",
    "Oslo",
    "?",
    " Yes",
    ".",
    "</think>",
    "\n\n",
    "Look",
    ":",
    "<tool_call>",
    "\n{\"name\"",
    ": \"get_weather\"",
    ", \"arguments\": ",
    "{\"place\": \"O",
    "slo\", \"days\"",
    ": [1, {}]}",
    "}\n",
    "</tool_call>",
    "\n<tool_call>",
    "{\"name\":\"get_time\",\"arg",
    "uments\":{}}",
    "</tool_call> ",
];
const SPECIAL: &[&str] = &["<tool_call>", "</tool_call>", "<think>", "</think>"];
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endfor %}";

/// It needs no thought to be asked for: the answer begins with it.
pub fn caller() -> TempDir {
    let template = format!("{TEMPLATE}{{# <think> #}}");
    parrot(SAYS, SPECIAL, &template)
}

fn tokenizer(tokens: &[&str], special: &[&str]) -> String {
    let vocab: Map<_, _> = tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    let is_special = |(_, token): &(usize, &&str)| RESERVED.contains(*token) || special.contains(*token);
    let added = tokens.iter().enumerate().filter(is_special).map(|(id, token)| {
        json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    })
    .to_string()
}
