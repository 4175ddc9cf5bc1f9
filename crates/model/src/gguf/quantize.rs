//! A file written again with quantised matrices; everything else stays as it is, byte by byte.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Gguf;
use super::header::TensorInfo;
use crate::error::LoadError;
use crate::load::Source;
use forebay_kernels::packed::{Packing, Quantised, repack};

const FILE_TYPE: &str = "general.file_type";
const QUANTISATION_VERSION: &str = "general.quantization_version";
/// Of ggml's block formats as they are today.
const VERSION: u32 = 2;
const U32: u32 = 4;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub tensors: usize,
    pub quantised: usize,
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Texts can be cut by the file: not so where it has no form for a checkpoint's tokenizer.
    pub tokenizer: bool,
}

/// A tensor on its way.
struct Out<'a> {
    name: &'a str,
    info: &'a TensorInfo,
    /// `None`: its bytes are copied.
    to: Option<Quantised>,
    bytes: usize,
}

/// Reads `from`, a file or a folder in the Hugging Face layout, and writes `to`, which must not exist and appears when it is
/// whole.
pub fn quantize(from: &Path, to: &Path, kind: Quantised) -> Result<Written, LoadError> {
    match Source::at(from.to_path_buf()).resolved()? {
        Source::Folder(folder) => super::export::export(&folder, to, kind),
        _ => again(from, to, kind),
    }
}

fn again(from: &Path, to: &Path, kind: Quantised) -> Result<Written, LoadError> {
    let file = Gguf::open(from)?;
    super::read_spec(&file)?;
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

/// `to` appears when `write` has written all of it elsewhere; it must not exist.
pub(super) fn atomically(to: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), LoadError> {
    let io = |source| LoadError::Io { path: to.to_path_buf(), source };
    if to.exists() {
        return Err(io(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let done = write(&partial).and_then(|()| fs::rename(&partial, to));
    if done.is_err() {
        // What is left of a failure is of no use to anybody.
        let _ = fs::remove_file(&partial);
    }
    done.map_err(io)
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

/// Zeros up to the next multiple of `alignment`.
pub(super) fn pad(out: &mut impl Write, written: usize, alignment: usize) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), (written.next_multiple_of(alignment) - written) as u64), out).map(drop)
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

pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
