//! The formats: how many numbers and bytes a block of each has, and what it is called.

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Mxfp4,
}

impl Packing {
    pub const ALL: [Packing; 15] = [
        Packing::F32,
        Packing::F16,
        Packing::Bf16,
        Packing::Q4_0,
        Packing::Q4_1,
        Packing::Q5_0,
        Packing::Q5_1,
        Packing::Q8_0,
        Packing::Q2K,
        Packing::Q3K,
        Packing::Q4K,
        Packing::Q5K,
        Packing::Q6K,
        Packing::Iq4Nl,
        Packing::Mxfp4,
    ];

    /// Numbers and bytes of one block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Packing::F32 => (1, 4),
            Packing::F16 | Packing::Bf16 => (1, 2),
            Packing::Q4_0 | Packing::Iq4Nl => (32, 18),
            Packing::Q4_1 => (32, 20),
            Packing::Q5_0 => (32, 22),
            Packing::Q5_1 => (32, 24),
            Packing::Q8_0 => (32, 34),
            Packing::Q2K => (256, 84),
            Packing::Q3K => (256, 110),
            Packing::Q4K => (256, 144),
            Packing::Q5K => (256, 176),
            Packing::Q6K => (256, 210),
            Packing::Mxfp4 => (32, 17),
        }
    }

    /// Bytes of a row of `width` numbers; `None` unless those are whole blocks.
    pub const fn row_bytes(self, width: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        if width.is_multiple_of(numbers) { (width / numbers).checked_mul(bytes) } else { None }
    }

    /// As ggml calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Packing::F32 => "F32",
            Packing::F16 => "F16",
            Packing::Bf16 => "BF16",
            Packing::Q4_0 => "Q4_0",
            Packing::Q4_1 => "Q4_1",
            Packing::Q5_0 => "Q5_0",
            Packing::Q5_1 => "Q5_1",
            Packing::Q8_0 => "Q8_0",
            Packing::Q2K => "Q2_K",
            Packing::Q3K => "Q3_K",
            Packing::Q4K => "Q4_K",
            Packing::Q5K => "Q5_K",
            Packing::Q6K => "Q6_K",
            Packing::Iq4Nl => "IQ4_NL",
            Packing::Mxfp4 => "MXFP4",
        }
    }
}
