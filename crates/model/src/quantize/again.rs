//! A file written again with quantised matrices; everything else stays as it is, byte by byte.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::output::{Written, atomically};
use crate::arch::gguf::decoder::read_spec;
use crate::files::gguf::file::Gguf;
use crate::files::gguf::header::TensorInfo;
use crate::files::gguf::writer::{pad, string};
use crate::types::error::LoadError;
use forebay_kernels::packed::{Packing, Quantised, repack};

const FILE_TYPE: &str = "general.file_type";
const QUANTISATION_VERSION: &str = "general.quantization_version";
/// Of ggml's block formats as they are today.
const VERSION: u32 = 2;
const U32: u32 = 4;

/// A tensor on its way.
struct Out<'a> {
    name: &'a str,
    info: &'a TensorInfo,
    /// `None`: its bytes are copied.
    to: Option<Quantised>,
    bytes: usize,
}

/// Writes `from` to `to`, which must not exist.
pub(super) fn rewrite(from: &Path, to: &Path, kind: Quantised) -> Result<Written, LoadError> {
    let file = Gguf::open(from)?;
    read_spec(&file)?;
    let tensors = plan(&file, kind);
    let written = Written {
        tensors: tensors.len(),
        quantised: tensors.iter().filter(|tensor| tensor.to.is_some()).count(),
        bytes_before: tensors.iter().map(|tensor| tensor.info.bytes.len() as u64).sum(),
        bytes_after: tensors.iter().map(|tensor| tensor.bytes as u64).sum(),
        tokenizer: true,
    };
    atomically(to, |partial| write(&file, partial, kind, &tensors))?;
    Ok(written)
}

/// All tensors in the order of the file.
fn plan(file: &Gguf, kind: Quantised) -> Vec<Out<'_>> {
    let mut tensors: Vec<Out> = file
        .header
        .tensors
        .iter()
        .map(|(name, info)| {
            let to = target(name, info, kind);
            let width = info.shape[info.shape.len() - 1];
            let rows = info.shape.iter().product::<usize>() / width;
            let row = to.and_then(|to| to.packing().row_bytes(width));
            Out { name, info, to, bytes: row.map_or(info.bytes.len(), |row| rows * row) }
        })
        .collect();
    tensors.sort_by_key(|tensor| tensor.info.bytes.start);
    tensors
}

/// What becomes of a tensor: norms, biases and routers stay, the embedding and the output get eight bits.
fn target(name: &str, info: &TensorInfo, kind: Quantised) -> Option<Quantised> {
    let dense = matches!(info.kind.packing, Some(Packing::F32 | Packing::F16 | Packing::Bf16));
    let router = name.contains("ffn_gate_inp");
    if !dense || router || info.shape.len() < 2 || !name.ends_with(".weight") {
        return None;
    }
    let table = ["token_embd.weight", "output.weight"].contains(&name);
    let wanted = if table { Quantised::Q8_0 } else { kind };
    let width = info.shape[info.shape.len() - 1];
    [wanted, Quantised::Q8_0].into_iter().find(|to| to.packing().row_bytes(width).is_some())
}

fn write(file: &Gguf, to: &Path, kind: Quantised, tensors: &[Out]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(to)?);
    let head = head(file, kind, tensors);
    out.write_all(&head)?;
    pad(&mut out, head.len(), file.header.alignment)?;
    let mut room = Vec::new();
    for tensor in tensors {
        let bytes = &file.bytes[tensor.info.bytes.clone()];
        match (tensor.to, tensor.info.kind.packing) {
            (Some(to), Some(from)) => {
                room.resize(tensor.bytes, 0);
                repack(from, bytes, tensor.info.shape[tensor.info.shape.len() - 1], to, &mut room);
                out.write_all(&room)?;
            }
            _ => out.write_all(bytes)?,
        }
        file.bytes.release(tensor.info.bytes.clone());
        pad(&mut out, tensor.bytes, file.header.alignment)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Everything before the tensors' bytes, not yet padded.
fn head(file: &Gguf, kind: Quantised, tensors: &[Out]) -> Vec<u8> {
    // llama.cpp's numbers for files that are mostly of this type.
    let file_type = match kind {
        Quantised::Q8_0 => 7,
        Quantised::Q4K => 14,
    };
    let replaced = [(FILE_TYPE, file_type), (QUANTISATION_VERSION, VERSION)];
    let kept = || file.header.entries.iter().filter(|(key, _)| !replaced.iter().any(|(name, _)| name == key));
    let mut head = b"GGUF".to_vec();
    head.extend(3u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend(((kept().count() + replaced.len()) as u64).to_le_bytes());
    kept().for_each(|(_, place)| head.extend_from_slice(&file.bytes[place.clone()]));
    for (key, value) in replaced {
        string(&mut head, key);
        head.extend(U32.to_le_bytes());
        head.extend(value.to_le_bytes());
    }
    let mut offset = 0;
    for tensor in tensors {
        string(&mut head, tensor.name);
        head.extend((tensor.info.shape.len() as u32).to_le_bytes());
        tensor.info.shape.iter().rev().for_each(|&size| head.extend((size as u64).to_le_bytes()));
        let id = tensor.to.map_or(tensor.info.kind.id, |to| match to {
            Quantised::Q8_0 => 8,
            Quantised::Q4K => 12,
        });
        head.extend(id.to_le_bytes());
        head.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes.next_multiple_of(file.header.alignment);
    }
    head
}
