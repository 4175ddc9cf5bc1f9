//! What a model's files say about it, without taking its weights: for `forebay model inspect`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::arch;
use crate::files::gguf::file::Gguf;
use crate::files::gguf::vocab::read_vocab;
use crate::files::safetensors::Checkpoint;
use crate::load::folder::Files;
use crate::load::source::Source;
use crate::load::{builtin, file_id};
use crate::types::error::LoadError;
use crate::types::spec::Spec;

/// A model whose files have been checked as loading would, but for the shapes of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub id: String,
    pub format: Format,
    /// As the files call it.
    pub architecture: String,
    pub spec: Spec,
    /// The types of the tensors, largest share of bytes first.
    pub types: Vec<TypeShare>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Safetensors,
    Gguf,
}

/// All tensors of one type together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeShare {
    pub name: String,
    pub tensors: usize,
    pub bytes: u64,
}

/// Reads headers only.
pub fn inspect(source: &Source) -> Result<Inspection, LoadError> {
    match source.resolved()? {
        Source::Builtin => inspect_files(builtin::files()?, &builtin::checkpoint()?),
        Source::Folder(folder) => inspect_files(Files::folder(&folder)?, &Checkpoint::open(&folder)?),
        Source::Gguf(path) => inspect_gguf(&path),
    }
}

fn inspect_files(files: Files, checkpoint: &Checkpoint) -> Result<Inspection, LoadError> {
    Ok(Inspection {
        spec: arch::read_spec(&files.config)?.0,
        architecture: arch::name(&files.config)?.unwrap_or_default().to_string(),
        id: files.id,
        format: Format::Safetensors,
        types: shares(checkpoint.census()),
    })
}

fn inspect_gguf(path: &Path) -> Result<Inspection, LoadError> {
    let file = Gguf::open(path)?;
    let spec = arch::gguf::decoder::read_spec(&file)?;
    read_vocab(&file, spec.vocab)?;
    Ok(Inspection {
        id: file_id(path),
        format: Format::Gguf,
        architecture: file.architecture()?.to_string(),
        spec: Spec::Decoder(spec),
        types: shares(file.census()),
    })
}

fn shares<'a>(tensors: impl Iterator<Item = (&'a str, u64)>) -> Vec<TypeShare> {
    let mut by_name: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (name, bytes) in tensors {
        let share = by_name.entry(name).or_default();
        *share = (share.0 + 1, share.1 + bytes);
    }
    let share = |(name, (tensors, bytes)): (&str, (usize, u64))| TypeShare { name: name.to_string(), tensors, bytes };
    let mut shares: Vec<TypeShare> = by_name.into_iter().map(share).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

impl Inspection {
    pub fn file_bytes(&self) -> u64 {
        self.types.iter().map(|share| share.bytes).sum()
    }

    /// Memory that the weights take on a CPU: checkpoints are widened to `f32`, GGUF files are used where they are mapped.
    pub fn weight_bytes(&self) -> u64 {
        match self.format {
            Format::Safetensors => self.spec.parameters().saturating_mul(4),
            Format::Gguf => self.file_bytes(),
        }
    }
}
