//! What a generation takes, told to whoever pays for it.

use std::sync::Arc;

use super::delta::Delta;
use forebay_core::request::Payer;

#[derive(Debug)]
pub struct Bill {
    payer: Option<Arc<dyn Payer>>,
}

impl Bill {
    pub fn new(payer: Option<Arc<dyn Payer>>, model: &str) -> Bill {
        if let Some(payer) = &payer {
            payer.model(model);
        }
        Bill { payer }
    }

    /// It is queued.
    pub fn prompt(&self, tokens: usize) {
        if let Some(payer) = &self.payer {
            payer.prompt(tokens);
        }
    }

    /// What the client is about to hear.
    pub fn hear(&self, (index, delta): &(u32, Delta)) {
        let Some(payer) = &self.payer else { return };
        match delta {
            // Of a prompt's choices the first counts: the others find what it computed.
            Delta::Admitted { cached_tokens } if *index == 0 => payer.cached(*cached_tokens),
            Delta::Text(text) => payer.completion(text.tokens.len()),
            Delta::Admitted { .. }
            | Delta::Prompt(_)
            | Delta::Embedded(_)
            | Delta::Finished { .. }
            | Delta::Failed(_) => {}
        }
    }
}
