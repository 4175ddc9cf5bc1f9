//! The tensor types of ggml: how large each is, and which we compute with.

use forebay_kernels::packed::Packing;

/// A tensor type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorType {
    /// ggml's number.
    pub id: u32,
    pub name: &'static str,
    /// Numbers of a block, all of one row.
    pub numbers: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// `None`: known, so that the file can be checked, but not computed with.
    pub packing: Option<Packing>,
}

/// ggml's number of what we can write and read.
pub(crate) fn id(packing: Packing) -> u32 {
    (0..40).find(|&id| tensor_type(id).is_some_and(|kind| kind.packing == Some(packing))).unwrap_or(0)
}

/// The type with ggml's number `id`.
pub(crate) fn tensor_type(id: u32) -> Option<TensorType> {
    let packed = |packing: Packing| {
        let (numbers, bytes) = packing.block();
        TensorType { id, name: packing.name(), numbers, bytes, packing: Some(packing) }
    };
    let other = |name, numbers, bytes| TensorType { id, name, numbers, bytes, packing: None };
    Some(match id {
        0 => packed(Packing::F32),
        1 => packed(Packing::F16),
        2 => packed(Packing::Q4_0),
        3 => packed(Packing::Q4_1),
        6 => packed(Packing::Q5_0),
        7 => packed(Packing::Q5_1),
        8 => packed(Packing::Q8_0),
        9 => other("Q8_1", 32, 36),
        10 => packed(Packing::Q2K),
        11 => packed(Packing::Q3K),
        12 => packed(Packing::Q4K),
        13 => packed(Packing::Q5K),
        14 => packed(Packing::Q6K),
        15 => other("Q8_K", 256, 292),
        16 => other("IQ2_XXS", 256, 66),
        17 => other("IQ2_XS", 256, 74),
        18 => other("IQ3_XXS", 256, 98),
        19 => other("IQ1_S", 256, 50),
        20 => packed(Packing::Iq4Nl),
        21 => other("IQ3_S", 256, 110),
        22 => other("IQ2_S", 256, 82),
        23 => other("IQ4_XS", 256, 136),
        24 => other("I8", 1, 1),
        25 => other("I16", 1, 2),
        26 => other("I32", 1, 4),
        27 => other("I64", 1, 8),
        28 => other("F64", 1, 8),
        29 => other("IQ1_M", 256, 56),
        30 => packed(Packing::Bf16),
        34 => other("TQ1_0", 256, 54),
        35 => other("TQ2_0", 256, 66),
        39 => packed(Packing::Mxfp4),
        _ => return None,
    })
}
