//! `forebay model quantize`: a model's file with smaller weights.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use super::failure::{Failure, input};
use forebay_model::Quantised;

/// Writes `to`, and says how much smaller it is.
pub fn quantize(from: &Path, to: &Path, kind: Quantised) -> Result<(), Failure> {
    let written = forebay_model::quantize(from, to, kind).map_err(input)?;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let text = format!(
        "{}: {} of {} tensors quantised, {:.3} GiB instead of {:.3}\n",
        to.display(),
        written.quantised,
        written.tensors,
        gib(written.bytes_after),
        gib(written.bytes_before),
    );
    let silent = "it has no tokenizer: there is no form for that of the checkpoint\n";
    let text = if written.tokenizer { text } else { text + silent };
    io::stdout().write_all(text.as_bytes()).context("standard output")?;
    Ok(())
}
