//! The tensors of a file that is written from a checkpoint: names, types, and the order of rows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::files::gguf::tensor_type;
use crate::files::gguf::tensors::INTERLEAVED;
use crate::files::gguf::writer::{Entries, pad, string};
use crate::files::names::{self, InGguf};
use crate::files::numbers::{Numbers, Packed};
use crate::types::error::{LoadError, TensorRule};
use crate::types::spec::decoder::DecoderSpec;
use crate::weights::source::Weights;
use forebay_kernels::packed::{Packing, Quantised, repack};

const ALIGNMENT: usize = 32;

/// A tensor of the file, and what it is made of.
pub(super) struct Out {
    name: String,
    /// As we have it: rows first.
    shape: Vec<usize>,
    /// One, or a matrix for each expert.
    pub parts: Vec<Packed>,
    pub form: Form,
    /// Heads whose halves are interleaved.
    heads: Option<usize>,
}

/// What a tensor's numbers become.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// As they are.
    Kept(Packing),
    /// F32, with this added.
    Plain(f32),
    Packed(Quantised),
}

impl Form {
    fn packing(self) -> Packing {
        match self {
            Form::Kept(packing) => packing,
            Form::Plain(_) => Packing::F32,
            Form::Packed(to) => to.packing(),
        }
    }
}

impl Out {
    pub(super) fn bytes(&self) -> usize {
        let width = self.shape[self.shape.len() - 1];
        let rows = self.shape.iter().product::<usize>() / width;
        rows * self.form.packing().row_bytes(width).unwrap_or(0)
    }
}

/// Every tensor of the checkpoint, by the name that the file has for it; experts together.
pub(super) fn tensors(
    spec: &DecoderSpec,
    architecture: &str,
    weights: &Weights,
    config: &Path,
    kind: Quantised,
) -> Result<Vec<Out>, LoadError> {
    let mut all: Vec<Out> = Vec::new();
    for (ours, shape) in names::of_decoder(spec) {
        let part = match weights.tensor(&ours, &shape, config)? {
            Numbers::Packed(packed) => packed,
            Numbers::Plain(numbers) => Packed::plain(&numbers),
        };
        let InGguf { name, expert } = names::in_gguf(&ours, spec.norms);
        if let Some(stack) = expert.and_then(|_| all.iter_mut().find(|out| out.name == name)) {
            stack.parts.push(part);
            stack.shape[0] += 1;
            continue;
        }
        let is = |module: &str| name.contains(&format!(".{module}."));
        let heads = match INTERLEAVED.contains(&architecture) {
            true if is("attn_q") => Some(spec.heads),
            true if is("attn_k") => Some(spec.kv_heads),
            _ => None,
        };
        let form = form(&name, &shape, part.packing(), spec.norm_offset, kind);
        let shape = expert.map(|_| 1).into_iter().chain(shape).collect();
        all.push(Out { name, shape, parts: vec![part], form, heads });
    }
    Ok(all)
}

/// Norms, biases and routers are written in full, the embedding and the output in eight bits.
fn form(name: &str, shape: &[usize], from: Packing, norm_offset: f32, kind: Quantised) -> Form {
    if names::is_norm(name) {
        return Form::Plain(norm_offset);
    }
    if shape.len() < 2 || name.contains("ffn_gate_inp") {
        return Form::Plain(0.0);
    }
    let table = ["token_embd.weight", "output.weight"].contains(&name);
    let wanted = if table { Quantised::Q8_0 } else { kind };
    let width = shape[shape.len() - 1];
    let fits = |to: &Quantised| to.packing().row_bytes(width).is_some();
    [wanted, Quantised::Q8_0].into_iter().find(fits).map_or(Form::Kept(from), Form::Packed)
}

/// Writes a whole file: header, `extra` tensors of plain numbers, `tensors`.
pub(super) fn write(to: &Path, entries: &Entries, extra: &[(&str, Vec<f32>)], tensors: &[Out]) -> io::Result<()> {
    let mut head = b"GGUF".to_vec();
    head.extend(3u32.to_le_bytes());
    head.extend(((extra.len() + tensors.len()) as u64).to_le_bytes());
    head.extend(entries.written());
    let mut offset = 0;
    let mut place = |name: &str, shape: &[usize], packing: Packing, bytes: usize| {
        string(&mut head, name);
        head.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&size| head.extend((size as u64).to_le_bytes()));
        head.extend(tensor_type::id(packing).to_le_bytes());
        head.extend((offset as u64).to_le_bytes());
        offset += bytes.next_multiple_of(ALIGNMENT);
    };
    extra.iter().for_each(|(name, numbers)| place(name, &[numbers.len()], Packing::F32, numbers.len() * 4));
    tensors.iter().for_each(|out| place(&out.name, &out.shape, out.form.packing(), out.bytes()));
    let mut out = BufWriter::new(File::create(to)?);
    out.write_all(&head)?;
    pad(&mut out, head.len(), ALIGNMENT)?;
    for (_, numbers) in extra {
        out.write_all(&little_endian(numbers))?;
        pad(&mut out, numbers.len() * 4, ALIGNMENT)?;
    }
    for tensor in tensors {
        for part in &tensor.parts {
            out.write_all(&formed(tensor, part).map_err(io::Error::other)?)?;
            part.release(0..part.bytes().len());
        }
        pad(&mut out, tensor.bytes(), ALIGNMENT)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A part's bytes as the file has them.
fn formed(tensor: &Out, part: &Packed) -> Result<Vec<u8>, TensorRule> {
    let width = tensor.shape[tensor.shape.len() - 1];
    let mut bytes = match tensor.form {
        Form::Kept(_) => part.bytes().to_vec(),
        Form::Plain(offset) => {
            let numbers = Numbers::Packed(part.clone()).plain()?;
            little_endian(&numbers.into_iter().map(|x| x + offset).collect::<Vec<f32>>())
        }
        Form::Packed(to) => {
            let row = |packing: Packing| packing.row_bytes(width).unwrap_or(1);
            let mut out = vec![0; part.bytes().len() / row(part.packing()) * row(to.packing())];
            repack(part.packing(), part.bytes(), width, to, &mut out);
            out
        }
    };
    if let Some(heads) = tensor.heads {
        // Of a bias, a row is a number.
        let rows = if tensor.shape.len() == 1 { width } else { tensor.shape[tensor.shape.len() - 2] };
        bytes = interleaved(&bytes, heads, rows / heads);
    }
    Ok(bytes)
}

/// Of each head the rows of both halves in turn: first, middle, second, the one after the middle.
fn interleaved(bytes: &[u8], heads: usize, head_dim: usize) -> Vec<u8> {
    let row = bytes.len() / (heads * head_dim);
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(row * head_dim) {
        let (first, second) = head.split_at(head_dim / 2 * row);
        for (a, b) in first.chunks_exact(row).zip(second.chunks_exact(row)) {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
    out
}

fn little_endian(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_interleaved_head_by_head() {
        let rows = |order: [u8; 8]| order.iter().flat_map(|&row| [row, row + 100]).collect::<Vec<u8>>();
        assert_eq!(interleaved(&rows([0, 1, 2, 3, 4, 5, 6, 7]), 2, 4), rows([0, 2, 1, 3, 4, 6, 5, 7]));
    }
}
