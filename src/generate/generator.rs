//! The generator: checks requests, renders and tokenises their prompts, and submits them to a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::request::{Built, Checked, Guided, Limits, RequestError, ThinkingBudget, ThinkingTags, check_tokens};
use forebay_core::units::{SeqId, TokenId};
use forebay_engine::permit::Permit;
use forebay_engine::workers::Pool;
use forebay_text::TemplateOptions;
use forebay_text::grammar::{GrammarConfig, GrammarSpec, TaggedCalls};
use forebay_text::{
    ChatTemplate, ContentGuard, ParserChoice, ParserChoices, ReasoningFamily, Tokenizer, ToolFamily, ToolsIn,
    detokenize,
};

use super::bill::Bill;
use super::call_format;
use super::choice::{self, Choice};
use super::delta::TopLogprob;
use super::embedding::Embeddings;
use super::entropy::{entropy, jitter};
use super::generation::{Effective, Generation, Started};
use super::grammars::Grammars;
use super::manner::{Manner, Tools};
use super::prepare::{self, AddSpecial, Preparer};
use super::raw::{Prompt, RawGrammar, RawRequest};

/// The name under which the model is always served.
const DEFAULT_ALIAS: &str = "default";

/// What a [`Generator`] is made of.
pub struct GeneratorParts {
    pub workers: Pool,
    pub tokenizer: Arc<Tokenizer>,
    /// Without one, chats are refused.
    pub template: Option<ChatTemplate>,
    /// The model's own end tokens.
    pub eos: Vec<TokenId>,
    pub limits: Limits,
    pub model_id: String,
    /// Further names under which the model is served.
    pub aliases: Vec<String>,
    /// Names of the model's adapters, in the order in which they were loaded.
    pub adapters: Vec<String>,
    /// Who reads the answers of chats.
    pub parsers: ParserChoices,
    pub grammars: GrammarConfig,
    pub embeddings: Embeddings,
}

/// Starts generations. Cheap to clone.
#[derive(Clone)]
pub struct Generator(Arc<Shared>);

struct Shared {
    workers: Pool,
    preparer: Arc<Preparer>,
    grammars: Arc<Grammars>,
    eos: Vec<TokenId>,
    limits: Limits,
    model_id: String,
    aliases: Vec<String>,
    adapters: Vec<String>,
    tools: Option<ToolFamily>,
    reasoning: Option<ReasoningFamily>,
    embeddings: Embeddings,
    next_seq: AtomicU64,
}

/// A request that was checked and has its places in the queue. Dropped, it gives them back.
pub struct Admitted {
    raw: RawRequest,
    checked: Checked,
    permit: Permit,
}

/// What a chat template or a post-processor may add, for the bound before tokenising.
const TEMPLATE_TOKENS: usize = 64;

impl Generator {
    pub fn new(parts: GeneratorParts) -> Generator {
        let GeneratorParts {
            workers,
            tokenizer,
            template,
            eos,
            limits,
            model_id,
            aliases,
            adapters,
            parsers,
            grammars,
            embeddings,
        } = parts;
        let source = template.as_ref().map(ChatTemplate::source);
        let reasoning = parsers.reasoning.resolve(source, ReasoningFamily::of_template);
        let shown = template.as_ref().is_some_and(|template| template.tools_in() != ToolsIn::Nowhere);
        // A template without a place for tools tells nobody of them; only JSON can be asked for in plain words.
        let asked = parsers.tools == ParserChoice::Named(ToolFamily::Json);
        let tools = parsers.tools.resolve(source, ToolFamily::of_template).filter(|_| shown || asked);
        let grammars = Arc::new(Grammars::new(grammars, &tokenizer, limits.vocab_size as usize, &eos));
        let mut guard = ContentGuard::new(tokenizer.special_texts());
        if tokenizer.normalises_specials() {
            let tokenizer = tokenizer.clone();
            guard = guard.normalising(Box::new(move |text| tokenizer.normalised(text)));
        }
        let plain_words = tools == Some(ToolFamily::Json);
        let preparer = Arc::new(Preparer { tokenizer, template, guard, plain_words, limits: limits.clone() });
        let next_seq = AtomicU64::new(0);
        Generator(Arc::new(Shared {
            workers,
            preparer,
            grammars,
            eos,
            limits,
            model_id,
            aliases,
            adapters,
            tools,
            reasoning,
            embeddings,
            next_seq,
        }))
    }

    /// Checks, renders, tokenises and submits a request. When this returns, its sequences are queued.
    ///
    /// Dropped while it waits, it leaves nothing behind in the engine.
    pub async fn start(&self, raw: RawRequest) -> Result<Generation, RequestError> {
        let admitted = self.admit(raw)?;
        self.submit(admitted).await
    }

    /// Checks a request and takes its places in the queue. First, and before anything costs time: a request that is out of
    /// bounds, or for which there is no room, is refused for the price of looking at it.
    pub fn admit(&self, raw: RawRequest) -> Result<Admitted, RequestError> {
        let shared = &self.0;
        let checked = shared.check(&raw)?;
        let choices = checked.choices() as usize;
        // Each token has at least a byte of text, or is written by the template or the post-processor.
        let bound = prepare::bytes(&raw.prompt, &raw.template)
            .saturating_add(TEMPLATE_TOKENS)
            .min(shared.limits.max_model_len as usize);
        let permit = shared.workers.permit(checked.priority(), choices, choices * bound, jitter())?;
        Ok(Admitted { raw, checked, permit })
    }

    /// Renders, tokenises, compiles and submits what was admitted.
    pub async fn submit(&self, admitted: Admitted) -> Result<Generation, RequestError> {
        let shared = &self.0;
        let Admitted { raw, mut checked, permit } = admitted;
        let bill = Bill::new(raw.payer.clone(), shared.name(raw.parameters.adapter));
        let text = match &raw.prompt {
            Prompt::Text(text) if raw.echo && raw.parameters.truncate_prompt_tokens.is_none() => Some(text.clone()),
            _ => None,
        };
        let chat = matches!(raw.prompt, Prompt::Chat(_));
        // An answer that is held to something else has no calls in it, whatever it looks like.
        let may_call = raw.grammar.as_ref().is_none_or(|grammar| matches!(grammar.spec, GrammarSpec::Calls { .. }));
        let tools = raw.template.tools.as_ref().filter(|_| may_call);
        let tools = tools.map(|tools| (tools.names.clone(), tools.only_first));
        let prompt_tokens = prepare::tokens(&shared.preparer, raw.prompt, AddSpecial::Yes, raw.template).await?;
        let reasoning = match shared.reasoning.filter(|_| chat) {
            Some(family) => Some((family, family.opened_by(&shared.preparer.last_words(&prompt_tokens)?))),
            None => None,
        };
        if let Some(max_tokens) = checked.max_thinking_tokens() {
            let [open, close] = shared.tags()?;
            let begins_open = reasoning.is_some_and(|(_, in_block)| in_block);
            checked.limit_thinking(ThinkingBudget { max_tokens, tags: ThinkingTags { open, close, begins_open } });
        }
        let grammar = match &raw.grammar {
            Some(raw) => {
                let thinking = shared.thinking_before(raw, reasoning)?;
                Some(Guided { grammar: Arc::new(shared.grammars.compile(raw).await?), thinking })
            }
            None => None,
        };
        let ids = || SeqId(shared.next_seq.fetch_add(1, Ordering::Relaxed));
        let Built { requests, clamped } =
            checked.with_grammar(grammar).into_requests(prompt_tokens, &shared.eos, &shared.limits, ids)?;
        let Some(first) = requests.first() else { return Err(RequestError::Internal) };
        let manner = Manner {
            stop: raw.stop,
            include_stop: raw.include_stop,
            keep_special_tokens: raw.keep_special_tokens,
            reasoning,
            tools: shared.tools.zip(tools).map(|(family, (names, only_first))| Tools { family, names, only_first }),
        };
        let choices =
            requests.iter().map(|request| Choice::new(&shared.preparer.tokenizer, request, &manner)).collect();
        let mut started = Started {
            prompt_tokens: first.prompt().to_vec(),
            prompt_text: text,
            clamped,
            predicted_ttft: None,
            effective: Some(Effective::of(first)),
            cached_tokens: 0,
        };
        if raw.echo && started.prompt_text.is_none() {
            started.prompt_text = Some(shared.preparer.spell(&started.prompt_tokens)?);
        }
        let dispatched = shared.workers.submit(requests, permit).await?;
        started.predicted_ttft = dispatched.accepted.predicted_ttft;
        bill.prompt(started.prompt_tokens.len());
        Ok(Generation::new(started, choices, dispatched, bill))
    }

    /// The tokens of a prompt. A chat is rendered as for a completion; `add_special` is for texts, since a template writes
    /// its own. A text of more bytes than a full context could hold is refused unread.
    pub async fn tokenize(
        &self,
        prompt: Prompt,
        add_special: AddSpecial,
        template: TemplateOptions,
    ) -> Result<Vec<TokenId>, RequestError> {
        let raw = RawRequest { prompt, template, ..RawRequest::default() };
        // As for a completion: the same tools, the same names for the template.
        self.0.check_template(&raw)?;
        raw.prompt.check_size(&self.0.limits)?;
        prepare::tokens(&self.0.preparer, raw.prompt, add_special, raw.template).await
    }

    /// The tokens that the model would read for a request, which is checked as if it were to run. They may be more than the
    /// context holds.
    pub async fn prompt_tokens(&self, raw: &RawRequest) -> Result<Vec<TokenId>, RequestError> {
        let checked = self.0.check(raw)?;
        let (prompt, template) = (raw.prompt.clone(), raw.template.clone());
        let mut tokens = prepare::tokens(&self.0.preparer, prompt, AddSpecial::Yes, template).await?;
        checked.truncate(&mut tokens);
        Ok(tokens)
    }

    /// The text of a prompt, special tokens spelled out.
    pub fn spell_prompt(&self, tokens: &[TokenId]) -> Result<String, RequestError> {
        detokenize(&self.0.preparer.tokenizer, tokens).map_err(prepare::tokenizer_error)
    }

    /// Whether the thinking of this model can be told from its answer, and ended.
    pub fn thinks(&self) -> bool {
        self.0.tags().is_ok()
    }

    /// The text of tokens, special ones spelled out. At most as many as the context holds.
    pub fn detokenize(&self, tokens: &[i64]) -> Result<String, RequestError> {
        let limits = &self.0.limits;
        let tokens = check_tokens("tokens", tokens, limits.max_model_len as usize, limits)?;
        detokenize(&self.0.preparer.tokenizer, &tokens).map_err(prepare::tokenizer_error)
    }

    /// A token on its own, U+FFFD where it holds part of a character.
    pub fn token_text(&self, token: TokenId) -> String {
        self.0.preparer.tokenizer.token_text(token)
    }

    /// A token of a prompt, spelled as logprobs spell it.
    pub fn spelled(&self, token: TokenId) -> TopLogprob {
        choice::spelled(&self.0.preparer.tokenizer, token, 0.0)
    }

    /// Whether the token adds nothing to a text.
    pub fn is_hidden(&self, token: TokenId) -> bool {
        !self.0.preparer.tokenizer.is_text(token)
    }

    /// How an answer that has to be calls is to be written; `None` where the model writes none.
    pub fn call_format(&self) -> Option<TaggedCalls> {
        self.0.tools.map(call_format::format_of)
    }

    /// Whether the chat template has the word `name`, so that a variable of that name may change what it writes.
    pub fn template_mentions(&self, name: &str) -> bool {
        self.0.preparer.template.as_ref().is_some_and(|template| template.mentions(name))
    }

    /// What embeddings of this model are like.
    pub fn embeddings(&self) -> Embeddings {
        self.0.embeddings
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub fn model_id(&self) -> &str {
        &self.0.model_id
    }

    /// The other names of the model, `default` not among them.
    pub fn model_aliases(&self) -> &[String] {
        &self.0.aliases
    }

    /// The names under which the model answers with an adapter.
    pub fn adapters(&self) -> &[String] {
        &self.0.adapters
    }

    /// What an answer calls the model.
    pub fn name(&self, adapter: Option<u32>) -> &str {
        self.0.name(adapter)
    }

    /// The adapter that the model `name` stands for. The model's own names go first.
    pub fn adapter(&self, name: &str) -> Option<u32> {
        if self.is_own(name) {
            return None;
        }
        self.0.adapters.iter().position(|adapter| adapter == name).map(|index| index as u32)
    }

    /// Whether a request for the model `name` is for this one, with or without an adapter.
    pub fn served(&self, name: &str) -> bool {
        self.is_own(name) || self.adapter(name).is_some()
    }

    fn is_own(&self, name: &str) -> bool {
        name == self.model_id() || name == DEFAULT_ALIAS || self.0.aliases.iter().any(|alias| alias == name)
    }
}

impl Shared {
    fn name(&self, adapter: Option<u32>) -> &str {
        adapter.and_then(|index| self.adapters.get(index as usize)).map_or(&self.model_id, String::as_str)
    }

    /// Everything that can be known of a request before it is rendered.
    fn check(&self, raw: &RawRequest) -> Result<Checked, RequestError> {
        let checked = raw.check(&self.limits, entropy())?;
        self.check_template(raw)?;
        if checked.max_thinking_tokens().is_some() {
            self.tags()?;
        }
        Ok(checked)
    }

    fn check_template(&self, raw: &RawRequest) -> Result<(), RequestError> {
        raw.template.check()?;
        if raw.template.tools.is_some() && self.tools.is_none() {
            let message = "the chat template of this model has no place for tools, or the way in which it writes calls is \
                           not known (see model.tool_parser)";
            return Err(RequestError::Unsupported { param: "tools".into(), message: message.into() });
        }
        Ok(())
    }

    /// The thinking that may come before an answer that has to be `grammar`'s.
    fn thinking_before(
        &self,
        grammar: &RawGrammar,
        reasoning: Option<(ReasoningFamily, bool)>,
    ) -> Result<Option<ThinkingTags>, RequestError> {
        let Some((_, begins_open)) = reasoning else { return Ok(None) };
        match self.tags() {
            Ok([open, close]) => Ok(Some(ThinkingTags { open, close, begins_open })),
            // Nothing says when the thinking ends that the template began.
            Err(_) if begins_open => Err(RequestError::Unsupported {
                param: grammar.param.clone(),
                message: "this prompt begins a block of thinking whose tags are no tokens of the vocabulary".into(),
            }),
            Err(_) => Ok(None),
        }
    }

    /// The tokens of the tags around thinking. One that the vocabulary spells with several cannot be drawn by force.
    fn tags(&self) -> Result<[TokenId; 2], RequestError> {
        let refuse = |message: &str| RequestError::Unsupported {
            param: "max_thinking_tokens".into(),
            message: message.to_owned(),
        };
        let family = self.reasoning.ok_or_else(|| {
            refuse(
                "the chat template of this model has no tags around thinking that we know (see model.reasoning_parser)",
            )
        })?;
        let known = |tag: &&str| self.preparer.tokenizer.token_id(tag).filter(|&id| id < self.limits.vocab_size);
        match family.tags().each_ref().map(known) {
            [Some(open), Some(close)] => Ok([open, close]),
            _ => Err(refuse("the vocabulary of this model has no single token for each tag around thinking")),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
