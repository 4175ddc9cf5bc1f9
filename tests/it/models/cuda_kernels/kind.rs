//! The number types of the kernels, as bytes.

use half::{bf16, f16};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    F32,
    F16,
    Bf16,
}

pub const KINDS: [Kind; 3] = [Kind::F32, Kind::F16, Kind::Bf16];

impl Kind {
    /// As in the kernels' names.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F32 => "f32",
            Kind::F16 => "f16",
            Kind::Bf16 => "bf16",
        }
    }

    pub fn rounded(self, number: f32) -> f32 {
        match self {
            Kind::F32 => number,
            Kind::F16 => f16::from_f32(number).to_f32(),
            Kind::Bf16 => bf16::from_f32(number).to_f32(),
        }
    }

    /// Half the distance between neighbours, over the number.
    pub fn precision(self) -> f64 {
        match self {
            Kind::F32 => 2f64.powi(-24),
            Kind::F16 => 2f64.powi(-11),
            Kind::Bf16 => 2f64.powi(-8),
        }
    }

    pub fn bytes(self, numbers: &[f32]) -> Vec<u8> {
        match self {
            Kind::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Kind::F16 => numbers.iter().flat_map(|&number| f16::from_f32(number).to_le_bytes()).collect(),
            Kind::Bf16 => numbers.iter().flat_map(|&number| bf16::from_f32(number).to_le_bytes()).collect(),
        }
    }

    pub fn numbers(self, bytes: &[u8]) -> Vec<f32> {
        let two = |pair: &[u8]| [pair[0], pair[1]];
        match self {
            Kind::F32 => bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect(),
            Kind::F16 => bytes.chunks(2).map(|pair| f16::from_le_bytes(two(pair)).to_f32()).collect(),
            Kind::Bf16 => bytes.chunks(2).map(|pair| bf16::from_le_bytes(two(pair)).to_f32()).collect(),
        }
    }

    pub fn width(self) -> usize {
        if self == Kind::F32 { 4 } else { 2 }
    }
}
