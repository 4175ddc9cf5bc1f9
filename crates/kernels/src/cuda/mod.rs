//! Launches of our CUDA kernels (`launches.h` says what each computes, and of which arrays), and the few calls of the
//! driver that candle has no name for.
//!
//! Everything a model does happens on one stream, in the order in which it is asked for; nothing here waits for the device
//! but [`Pinned::read`]. Arrays are candle's own, contiguous, and freed on that stream, behind their last use.
#![allow(unsafe_code)] // launches, and the driver's settings

mod graph;
mod memory;

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::cudarc::driver::{DevicePtr, LaunchConfig, PushKernelArg};
use candle_core::cuda_backend::{CudaDevice, CudaStorage, CudaStorageSlice, WrapErr};
use candle_core::{DType, Layout, Result, Storage, Tensor, bail};

pub use graph::Recording;
pub use memory::{Absent, Pinned, Staged, free_and_total, is_out_of_memory, open};

/// PTX of each `.cu` file, compiled by `build.rs`.
mod ptx {
    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

// The numbers of `launches.h`.
const STORE_THREADS: u32 = 128;
const DECODE_THREADS: u32 = 128;
const COMBINE_THREADS: u32 = 128;
const PREFILL_THREADS: u32 = 128;
const NORM_THREADS: u32 = 256;
const ELEMENT_THREADS: u32 = 256;
const SAMPLE_THREADS: u32 = 1024;
const DECODE_HEADS: usize = 16;
const PREFILL_ROWS: usize = 64;
const NORM_WARP_WIDTH: usize = 1024;
const MAX_GRID: usize = 65_535;
const MOST_TOKENS: usize = 1 << 19;

/// A contiguous tensor, as custom ops get it.
pub type Placed<'a> = (&'a CudaStorage, &'a Layout);

/// How queries meet a cache.
#[derive(Clone, Copy)]
pub struct Shape {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// 0 is none.
    pub cap: f32,
    pub window: Option<usize>,
    pub causal: bool,
}

/// Whose rows a step has, and where their past lies.
pub struct Sequences<'a> {
    /// `[S, max_blocks]`
    pub tables: &'a Tensor,
    /// `[S]`
    pub contexts: &'a Tensor,
    /// `[S + 1]`
    pub starts: &'a Tensor,
    pub block_size: usize,
}

/// The sequences that decode.
#[derive(Clone, Copy)]
pub struct Decodes<'a> {
    /// `[N]`
    pub items: &'a Tensor,
    /// Positions of a range, and how many the longest context has.
    pub split: usize,
    pub splits: usize,
}

/// The gate of an MLP.
#[derive(Clone, Copy)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
}

/// How one row's token is drawn.
#[derive(Clone, Copy)]
pub struct Draw {
    /// Of the logits.
    pub row: u32,
    pub temperature: f32,
    pub min_p: f32,
    pub top_k: u32,
    pub top_p: f32,
    /// In `[0, 1)`.
    pub uniform: f64,
}

/// One argument of a kernel.
enum Arg {
    Address(u64),
    U32(u32),
    U64(u64),
    F32(f32),
}

impl From<usize> for Arg {
    /// Sizes of a step fit 32 bits; see `Paging`.
    fn from(size: usize) -> Arg {
        Arg::U32(size as u32)
    }
}

/// A kernel, and how many threads it wants.
struct Kernel {
    module: (&'static str, &'static str),
    name: String,
    threads: u32,
}

impl Kernel {
    /// # Safety
    /// `args` are those of `launches.h`, in its order and of its sizes.
    unsafe fn launch(&self, device: &CudaDevice, grid: [usize; 3], args: &[Arg]) -> Result<()> {
        let (module, ptx) = self.module;
        let function = device.get_or_load_custom_func(&self.name, module, ptx)?;
        let mut launch = function.builder();
        for arg in args {
            match arg {
                Arg::Address(address) => launch.arg(address),
                Arg::U32(number) => launch.arg(number),
                Arg::U64(number) => launch.arg(number),
                Arg::F32(number) => launch.arg(number),
            };
        }
        let [x, y, z] = grid.map(|blocks| blocks as u32);
        let config = LaunchConfig { grid_dim: (x, y, z), block_dim: (self.threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the caller's promise; the grid is within what the device takes, for steps are bounded.
        unsafe { launch.launch(config) }.w()?;
        Ok(())
    }
}

/// Where a contiguous tensor's numbers lie. Valid until the tensor is freed, which the stream does in its order.
fn address((storage, layout): Placed) -> Result<Arg> {
    let Some((start, _)) = layout.contiguous_offsets() else { bail!("a kernel wants contiguous numbers: {layout:?}") };
    let stream = storage.device().cuda_stream();
    let base = match &storage.slice {
        CudaStorageSlice::F32(slice) => slice.device_ptr(&stream).0,
        CudaStorageSlice::F16(slice) => slice.device_ptr(&stream).0,
        CudaStorageSlice::BF16(slice) => slice.device_ptr(&stream).0,
        CudaStorageSlice::U32(slice) => slice.device_ptr(&stream).0,
        _ => bail!("no kernel takes {:?}", storage.dtype()),
    };
    Ok(Arg::Address(base + (start * storage.dtype().size_in_bytes()) as u64))
}

fn address_of(tensor: &Tensor) -> Result<Arg> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cuda(storage) => address((storage, layout)),
        _ => bail!("a tensor of a CUDA device was expected"),
    }
}

/// As kernels' names have it.
fn letters(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        other => bail!("no kernel computes in {other:?}"),
    })
}

/// The kernels' next larger head.
fn head_letters(head_dim: usize) -> Result<&'static str> {
    Ok(match head_dim {
        _ if !head_dim.is_multiple_of(8) => bail!("heads of {head_dim} dimensions are no multiple of 8"),
        ..=64 => "d64",
        65..=128 => "d128",
        129..=256 => "d256",
        _ => bail!("heads of {head_dim} dimensions are wider than 256"),
    })
}

/// Rows of `k` and `v`, `[T, width]`, to their slots of both caches, `[slots, width]`.
pub fn store(k: Placed, v: &Tensor, keys: Placed, values: &Tensor, slots: &Tensor) -> Result<()> {
    let (rows, width) = k.1.shape().dims2()?;
    if v.dims() != [rows, width] || slots.elem_count() != rows || width % 8 != 0 {
        bail!("{rows} rows of {width} keys, values {:?}, {} slots", v.dims(), slots.elem_count());
    }
    let name = format!("paged_store_{}_{}", letters(k.0.dtype())?, letters(keys.0.dtype())?);
    let kernel = Kernel { module: ("store", ptx::STORE), name, threads: STORE_THREADS };
    let args = [address(k)?, address_of(v)?, address(keys)?, address_of(values)?, address_of(slots)?, width.into()];
    // SAFETY: shapes were compared; slots lie within the caches, as the step was checked. Both caches are written, and
    // nobody else uses the stream.
    unsafe { kernel.launch(k.0.device(), [rows, 1, 1], &args) }
}

/// Each row of `q`, `[T, heads * head_dim]`, against the cached positions that it sees. `decodes` and `tiles` name every
/// sequence once.
pub fn attention(
    q: Placed,
    (keys, values): (&Tensor, &Tensor),
    sequences: &Sequences,
    decodes: Option<Decodes>,
    tiles: Option<&Tensor>,
    shape: &Shape,
) -> Result<CudaStorage> {
    let device = q.0.device();
    if q.1.shape().dims2()?.1 != shape.heads * shape.head_dim {
        bail!("queries of {:?} for {} heads of {}", q.1.shape(), shape.heads, shape.head_dim);
    }
    // SAFETY: every row is written: it is a decode's or a tile's.
    let out = unsafe { device.alloc_uninit(q.1.shape(), q.0.dtype()) }?;
    let call = Attention { q, keys, values, sequences, shape, out: &out };
    if let Some(decodes) = decodes {
        call.decode(decodes)?;
    }
    if let Some(tiles) = tiles {
        call.prefill(tiles)?;
    }
    Ok(out)
}

/// One layer's attention.
struct Attention<'a> {
    q: Placed<'a>,
    keys: &'a Tensor,
    values: &'a Tensor,
    sequences: &'a Sequences<'a>,
    shape: &'a Shape,
    out: &'a CudaStorage,
}

impl Attention<'_> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    fn window(&self) -> Arg {
        self.shape.window.unwrap_or(0).into()
    }

    fn out(&self) -> Result<Arg> {
        address((self.out, &Layout::contiguous(self.q.1.shape())))
    }

    /// `q`, both caches, tables, contexts, starts.
    fn inputs(&self) -> Result<[Arg; 6]> {
        let Sequences { tables, contexts, starts, .. } = *self.sequences;
        Ok([
            address(self.q)?,
            address_of(self.keys)?,
            address_of(self.values)?,
            address_of(tables)?,
            address_of(contexts)?,
            address_of(starts)?,
        ])
    }

    /// `kv_heads, group, head_dim, block_size, max_blocks`
    fn sizes(&self) -> Result<[Arg; 5]> {
        let max_blocks = self.sequences.tables.dims2()?.1;
        let Shape { kv_heads, head_dim, .. } = *self.shape;
        Ok([kv_heads, self.group(), head_dim, self.sequences.block_size, max_blocks].map(Arg::from))
    }

    fn kernel(&self, what: &str, modules: [(&'static str, &'static str); 3], threads: u32) -> Result<Kernel> {
        let cached = self.keys.dtype();
        let [f32, f16, bf16] = modules;
        let module = match cached {
            DType::F16 => f16,
            DType::BF16 => bf16,
            _ => f32,
        };
        let (a, c, d) = (letters(self.q.0.dtype())?, letters(cached)?, head_letters(self.shape.head_dim)?);
        Ok(Kernel { module, name: format!("paged_{what}_{a}_{c}_{d}"), threads })
    }

    fn decode(&self, Decodes { items, split, splits }: Decodes) -> Result<()> {
        let Shape { heads, kv_heads, head_dim, scale, cap, .. } = *self.shape;
        let (device, count) = (self.q.0.device(), items.elem_count());
        // SAFETY: what the first kernel does not write the second does not read.
        let partial = unsafe { device.alloc_uninit(&(count, heads, splits, head_dim).into(), DType::F32) }?;
        // SAFETY: likewise.
        let stats = unsafe { device.alloc_uninit(&(count, heads, splits, 2).into(), DType::F32) }?;
        let workspace = |storage: &CudaStorage, width: usize| {
            address((storage, &Layout::contiguous((count, heads, splits, width))))
        };
        let modules =
            [("decode_f32", ptx::DECODE_F32), ("decode_f16", ptx::DECODE_F16), ("decode_bf16", ptx::DECODE_BF16)];
        let kernel = self.kernel("decode", modules, DECODE_THREADS)?;
        let mut args: Vec<Arg> = self.inputs()?.into();
        args.extend([address_of(items)?, workspace(&partial, head_dim)?, workspace(&stats, 2)?]);
        args.extend(self.sizes()?);
        args.extend([split.into(), Arg::F32(scale), Arg::F32(cap), self.window()]);
        // SAFETY: the arrays of a checked step, workspaces of the sizes that the header asks for.
        unsafe { kernel.launch(device, [splits, kv_heads * self.group().div_ceil(DECODE_HEADS), count], &args) }?;

        let name = format!("paged_combine_{}", letters(self.q.0.dtype())?);
        let combine = Kernel { module: ("combine", ptx::COMBINE), name, threads: COMBINE_THREADS };
        let Sequences { contexts, starts, .. } = *self.sequences;
        let args = [
            workspace(&partial, head_dim)?,
            workspace(&stats, 2)?,
            address_of(contexts)?,
            address_of(starts)?,
            address_of(items)?,
            self.out()?,
            head_dim.into(),
            splits.into(),
            split.into(),
            self.window(),
        ];
        // SAFETY: likewise.
        unsafe { combine.launch(device, [heads, count, 1], &args) }
    }

    fn prefill(&self, tiles: &Tensor) -> Result<()> {
        let Shape { kv_heads, scale, cap, causal, .. } = *self.shape;
        let modules =
            [("prefill_f32", ptx::PREFILL_F32), ("prefill_f16", ptx::PREFILL_F16), ("prefill_bf16", ptx::PREFILL_BF16)];
        let kernel = self.kernel("prefill", modules, PREFILL_THREADS)?;
        let mut args: Vec<Arg> = self.inputs()?.into();
        args.extend([address_of(tiles)?, self.out()?]);
        args.extend(self.sizes()?);
        args.extend([Arg::F32(scale), Arg::F32(cap), self.window(), usize::from(causal).into()]);
        let blocks = [tiles.dims2()?.0, kv_heads * self.group().div_ceil(PREFILL_ROWS), 1];
        // SAFETY: the arrays of a checked step, tiles of as many rows as the header says.
        unsafe { kernel.launch(self.q.0.device(), blocks, &args) }
    }
}

/// Each consecutive group of `x` as wide as `weight` on its own.
pub fn rms_norm(x: Placed, weight: Placed, eps: f32) -> Result<CudaStorage> {
    let device = x.0.device();
    let (count, width) = (x.1.shape().elem_count(), weight.1.shape().elem_count());
    if x.0.dtype() != weight.0.dtype() || !count.is_multiple_of(width) {
        bail!("{count} numbers in groups of {width}, weights in {:?}", weight.0.dtype());
    }
    // SAFETY: all of it is written.
    let out = unsafe { device.alloc_uninit(x.1.shape(), x.0.dtype()) }?;
    let name = format!("rms_norm_{}", letters(x.0.dtype())?);
    let kernel = Kernel { module: ("norm", ptx::NORM), name, threads: NORM_THREADS };
    let groups = count / width;
    let blocks = if width <= NORM_WARP_WIDTH { groups.div_ceil(NORM_THREADS as usize / 32) } else { groups };
    let written = address((&out, &Layout::contiguous(x.1.shape())))?;
    let none = || Arg::Address(0);
    let args = [address(x)?, none(), address(weight)?, written, none(), groups.into(), width.into(), Arg::F32(eps)];
    // SAFETY: sizes were compared; no residual, no sum.
    unsafe { kernel.launch(device, [blocks, 1, 1], &args) }?;
    Ok(out)
}

/// Rotates the first `dims` dimensions of each head of `x`, `[T, heads * head_dim]`, in place.
pub fn rope(x: Placed, cos: &Tensor, sin: &Tensor, head_dim: usize, dims: usize) -> Result<()> {
    let (rows, width) = x.1.shape().dims2()?;
    let heads = width / head_dim;
    if [cos, sin].iter().any(|angles| angles.dims() != [rows, dims / 2] || angles.dtype() != DType::F32) {
        bail!("{rows} rows, cosines {:?}, sines {:?}", cos.dims(), sin.dims());
    }
    let name = format!("rope_{}", letters(x.0.dtype())?);
    let kernel = Kernel { module: ("rope", ptx::ROPE), name, threads: ELEMENT_THREADS };
    let args = [address(x)?, address_of(cos)?, address_of(sin)?, heads.into(), head_dim.into(), dims.into()];
    let blocks = (heads * dims / 2).div_ceil(ELEMENT_THREADS as usize);
    // SAFETY: sizes were compared; `x` is the caller's alone.
    unsafe { kernel.launch(x.0.device(), [rows, blocks, 1], &args) }
}

/// `activation(gate) * up`, in place of `gate`.
pub fn gate(gate: Placed, up: Placed, activation: Activation) -> Result<()> {
    let count = gate.1.shape().elem_count();
    if up.1.shape().elem_count() != count || up.0.dtype() != gate.0.dtype() {
        bail!("gates {:?}, what they gate {:?}", gate.1.shape(), up.1.shape());
    }
    let name = format!("gate_{}", letters(gate.0.dtype())?);
    let kernel = Kernel { module: ("gate", ptx::GATE), name, threads: ELEMENT_THREADS };
    let activation = match activation {
        Activation::Silu => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
    };
    let args = [address(gate)?, address(up)?, address(gate)?, Arg::U64(count as u64), Arg::U32(activation)];
    let blocks = count.div_ceil(8 * ELEMENT_THREADS as usize).min(MAX_GRID);
    // SAFETY: sizes were compared; `gate` is the caller's alone.
    unsafe { kernel.launch(gate.0.device(), [blocks, 1, 1], &args) }
}

/// A token for each draw from `logits`, `[R, vocab]`: u32 `[N]`, `u32::MAX` where a row is not finite.
pub fn sample(logits: Placed, draws: &[Draw]) -> Result<CudaStorage> {
    let device = logits.0.device();
    let (rows, vocab) = logits.1.shape().dims2()?;
    if draws.iter().any(|draw| draw.row as usize >= rows) || vocab > MOST_TOKENS {
        bail!("draws from other rows than {rows} of {vocab}");
    }
    // One copy for all parameters, each array at a multiple of 16 bytes.
    let stride = draws.len().next_multiple_of(4);
    let mut packed = vec![0u32; 7 * stride];
    for (at, draw) in draws.iter().enumerate() {
        let bits = draw.uniform.to_bits();
        let words = [draw.row, draw.temperature.to_bits(), draw.min_p.to_bits(), draw.top_k, draw.top_p.to_bits()];
        words.into_iter().enumerate().for_each(|(array, word)| packed[array * stride + at] = word);
        packed[5 * stride + 2 * at..][..2].copy_from_slice(&[bits as u32, (bits >> 32) as u32]);
    }
    let packed = device.storage_from_slice(&packed)?;
    let part = |array: usize| address((&packed, &Layout::contiguous_with_offset(stride, array * stride)));
    // SAFETY: all of it is written.
    let tokens = unsafe { device.alloc_uninit(&draws.len().into(), DType::U32) }?;
    let name = format!("sample_{}", letters(logits.0.dtype())?);
    let kernel = Kernel { module: ("sample", ptx::SAMPLE), name, threads: SAMPLE_THREADS };
    let written = address((&tokens, &Layout::contiguous(draws.len())))?;
    // rows, temperature, min_p, top_k, top_p, uniform
    let args = [address(logits)?, part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, part(5)?, written, vocab.into()];
    // SAFETY: rows are within the logits, arrays as long as there are draws.
    unsafe { kernel.launch(device, [draws.len(), 1, 1], &args) }?;
    Ok(tokens)
}
