//! Each format against candle's port of ggml: on what its quantiser writes, and on arbitrary bytes.

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::*;

/// `None`: candle does not know it.
fn theirs(packing: Packing) -> Option<GgmlDType> {
    Some(match packing {
        Packing::F32 => GgmlDType::F32,
        Packing::F16 => GgmlDType::F16,
        Packing::Bf16 => GgmlDType::BF16,
        Packing::Q4_0 => GgmlDType::Q4_0,
        Packing::Q4_1 => GgmlDType::Q4_1,
        Packing::Q5_0 => GgmlDType::Q5_0,
        Packing::Q5_1 => GgmlDType::Q5_1,
        Packing::Q8_0 => GgmlDType::Q8_0,
        Packing::Q2K => GgmlDType::Q2K,
        Packing::Q3K => GgmlDType::Q3K,
        Packing::Q4K => GgmlDType::Q4K,
        Packing::Q5K => GgmlDType::Q5K,
        Packing::Q6K => GgmlDType::Q6K,
        Packing::Iq4Nl | Packing::Mxfp4 => return None,
    })
}

fn unpacked(packing: Packing, bytes: &[u8]) -> Vec<f32> {
    let (numbers, block_bytes) = packing.block();
    let mut out = vec![0.0; bytes.len() / block_bytes * numbers];
    unpack(packing, bytes, &mut out);
    out
}

fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

#[test]
fn what_candle_packs_is_unpacked_as_candle_does() {
    let mut state = 1;
    let data: Vec<f32> = (0..2048).map(|_| random(&mut state) as f32 / (1u64 << 31) as f32 - 0.5).collect();
    let tensor = Tensor::from_vec(data.clone(), (4, 512), &Device::Cpu).unwrap();
    for packing in Packing::ALL {
        let Some(theirs) = theirs(packing) else { continue };
        let packed = QTensor::quantize(&tensor, theirs).unwrap();
        let expected: Vec<f32> = packed.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let ours = unpacked(packing, &packed.data().unwrap());
        assert!(ours == expected, "{packing:?}");
        let worst = ours.iter().zip(&data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 0.3, "{packing:?} is no approximation: {worst}");
    }
}

#[test]
fn arbitrary_bytes_are_the_same_numbers_for_both() {
    let mut state = 2;
    for packing in Packing::ALL {
        let Some(theirs) = theirs(packing) else { continue };
        let (numbers, block_bytes) = packing.block();
        let bytes: Vec<u8> = (0..block_bytes * 512).map(|_| (random(&mut state) >> 8) as u8).collect();
        let storage = QStorage::from_data(Cow::Owned(bytes.clone()), &Device::Cpu, theirs).unwrap();
        let packed = QTensor::new(storage, (512, numbers)).unwrap();
        let expected: Vec<f32> = packed.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        for (index, (ours, theirs)) in unpacked(packing, &bytes).iter().zip(&expected).enumerate() {
            let same = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
            assert!(same, "{packing:?} at {index}: {ours:e}, candle has {theirs:e}");
        }
    }
}

/// Candle has neither; the numbers are those of the formats' definitions.
#[test]
fn codes_of_the_formats_with_tables() {
    let codes: Vec<u8> = (0..16).map(|code| code | (15 - code) << 4).collect();
    // 0.5 as f16, little-endian.
    let block = [&[0x00, 0x38][..], &codes].concat();
    let numbers = unpacked(Packing::Iq4Nl, &block);
    assert_eq!((numbers[0], numbers[7], numbers[8], numbers[15]), (-63.5, -5.0, 0.5, 56.5));
    assert_eq!((numbers[16], numbers[31]), (56.5, -63.5));
    for (exponent, one) in
        [(127u8, 1.0f32), (128, 2.0), (130, 8.0), (2, 2f32.powi(-125)), (1, 2f32.powi(-126)), (0, 2f32.powi(-127))]
    {
        let numbers = unpacked(Packing::Mxfp4, &[&[exponent][..], &codes].concat());
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, value) in e2m1.into_iter().enumerate() {
            assert_eq!((numbers[code], numbers[code + 8]), (value * one, -value * one), "{exponent}, {code}");
            assert_eq!(numbers[31 - code], value * one);
        }
    }
}

#[test]
#[should_panic(expected = "blocks that do not fit")]
fn half_a_block_is_refused() {
    unpack(Packing::Q8_0, &[0; 35], &mut [0.0; 32]);
}
