//! Rows as [`crate::quant::avx512::superblock_many`] takes them: all numbers of one block together.
#![allow(unsafe_code)] // parts of the rows, dealt to several threads, and intrinsics that load through pointers

use std::arch::x86_64::*;

use crate::isa::Isa;
use crate::parallel::{Shared, for_each_range};
use crate::quant::format::GROUP;
use crate::quant::rounding::RoundingGroup;
use crate::quant::row_codes::RowCodes;
use crate::quant::superblock::{GROUPS, OFFSET, pair};

/// Rows that a kernel multiplies at once. Up to so many are read as they are, more are laid out here.
pub(super) const MOST: usize = 8;
/// Chunks of a group: four inputs of its first half and four of the second.
pub(super) const CHUNKS: usize = 4;
/// Sums of codes of six bits that are made of a group.
const WORDS: usize = 2;

/// Empty for so few rows that they are one block, beside weights that are not in blocks of 256, and where other instructions
/// compute products.
#[derive(Default)]
pub(crate) struct Lines {
    count: usize,
    /// `[blocks, T]`
    lines: Vec<Line>,
}

/// A block of a row.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub codes: [[[i8; 8]; CHUNKS]; GROUPS],
    /// What sums begin with beside weights with an offset: what it takes from either half.
    pub starts: [[[i32; 2]; WORDS]; GROUPS],
    /// Two groups' sums in a number.
    pub sums: [i32; GROUPS / 2],
    pub scale: f32,
    rest: [f32; 11],
}

impl Lines {
    /// Lays `rows` out; what was here before is gone. Stays empty if they are already laid out `in_tiles`.
    pub fn fill(&mut self, isa: Isa, rows: &RowCodes, in_tiles: bool) {
        let (count, blocks) = (rows.count(), rows.groups() / GROUPS);
        self.count = 0;
        let here = matches!(isa, Isa::Avx512 | Isa::Amx) && !in_tiles;
        if !here || count <= MOST || rows.rounding_group() != RoundingGroup::Of256 {
            return;
        }
        self.count = count;
        self.lines.resize(count * blocks, bytemuck::Zeroable::zeroed());
        let lines = Shared::new(&mut self.lines);
        for_each_range(count, 1, rows.codes.len() * 4, |range| {
            for b in 0..blocks {
                // SAFETY: ranges of rows do not overlap.
                let lines = unsafe { lines.part(b * count + range.start..b * count + range.end) };
                for (line, t) in lines.iter_mut().zip(range.clone()) {
                    // SAFETY: `Isa` saw the instructions on this processor.
                    unsafe { line.fill(rows, (t * blocks + b) * GROUPS) }
                }
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Block `b` of all rows.
    pub(super) fn block(&self, b: usize) -> &[Line] {
        &self.lines[b * self.count..][..self.count]
    }
}

impl Line {
    /// Takes the block that begins with group `first`, counted over all rows.
    #[target_feature(enable = "avx2,avx512f,avx512vl,avx512vnni")]
    fn fill(&mut self, rows: &RowCodes, first: usize) {
        let codes: &[[i8; GROUP]; GROUPS] = rows.codes.as_chunks().0[first..].first_chunk().expect("a block");
        let sums: &[[i32; 2]; GROUPS] = rows.sums[first..].first_chunk().expect("a block");
        for ((codes, out), starts) in codes.iter().zip(&mut self.codes).zip(&mut self.starts) {
            // SAFETY: loads and stores are as long as the arrays: 32 bytes of codes, 16 of starts.
            unsafe {
                let halves = _mm256_loadu_si256(codes.as_ptr().cast());
                let chunks = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), chunks);
                let offset = _mm256_set1_epi8(OFFSET as i8);
                let of_four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), offset, chunks);
                let of_eight = _mm256_add_epi32(of_four, _mm256_shuffle_epi32::<0b01_00_11_10>(of_four));
                let words = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00_10_00>(of_eight));
                let negative = _mm_sub_epi32(_mm_setzero_si128(), words);
                _mm_storeu_si128(starts.as_mut_ptr().cast(), negative);
            }
        }
        let sum = |g: usize| sums[g][0] + sums[g][1];
        for (p, sums) in self.sums.iter_mut().enumerate() {
            *sums = pair(sum(2 * p), sum(2 * p + 1));
        }
        self.scale = rows.scales[first];
    }
}
