//! A prompt becomes a vector: submitted as a completion is, through the same queue, and pooled instead of continued.

use super::delta::Delta;
use super::embedding::Embedded;
use super::generation::Generation;
use super::generator::{Admitted, Generator};
use forebay_core::request::RequestError;

impl Generator {
    /// The vectors of prompts, in their order. All are queued before any is waited for, so that they share steps; an error of
    /// one is the request's, and ends the others.
    pub async fn embed(&self, admitted: Vec<Admitted>) -> Result<Vec<Embedded>, RequestError> {
        let mut running = Vec::with_capacity(admitted.len());
        for admitted in admitted {
            running.push(self.submit(admitted).await?);
        }
        let mut vectors = Vec::with_capacity(running.len());
        for generation in running {
            vectors.push(finished(generation).await?);
        }
        Ok(vectors)
    }
}

async fn finished(mut generation: Generation) -> Result<Embedded, RequestError> {
    let mut embedded = Embedded { prompt_tokens: generation.started.prompt_tokens.len(), ..Embedded::default() };
    while let Some((_, delta)) = generation.next().await {
        match delta {
            Delta::Admitted { cached_tokens } => embedded.cached_tokens = cached_tokens,
            Delta::Embedded(vector) => embedded.vector = vector,
            Delta::Failed(error) => return Err(error),
            Delta::Prompt(_) | Delta::Text(_) | Delta::Finished { .. } => {}
        }
    }
    // Ended by the operator before it was computed.
    if embedded.vector.is_empty() { Err(RequestError::Aborted) } else { Ok(embedded) }
}
