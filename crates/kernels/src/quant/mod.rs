//! `y[T, N] = x[T, K] · w[N, K]ᵀ` in integers, for weights in the block formats of GGUF.
//!
//! ```text
//! w → blocks (the file's blocks) → panels (16 outputs side by side, once, at load) ┐                  ┌ scalar, the definitions
//! x → rounding → row_codes (8-bit integers, a scale per 32 or 256)                 ├→ job → dispatch ─┼ avx2/
//!                    └→ rows (the same, also in the layouts of AVX-512 and AMX)    ┘                  ├ avx512/
//!                                                                                                     └ amx/
//! ```
//! `format` says what a panel looks like in memory, `expand` reads one. Weights come in blocks of 32 or in blocks of 256
//! (`superblock`), and each instruction set has a folder with the kernels for both.
//!
//! An output depends on its row of `x` and its row of `w` alone: the dot product of each group of 32 inputs is an exact
//! integer, and the groups are added in ascending order by one formula of fused operations (`scalar`). Of weights in blocks
//! of 256 a block's dot product is one exact integer. So every path, every number of rows and every number of threads gives
//! the same bits.
//!
//! Measured on two cores of a Xeon (AVX-512 VNNI: at most 1,900 GOPS; plain reads: 32 GB/s for one core), 3072 inputs, 1024
//! outputs, weights from memory, the best of several runs beside other work, in GOPS:
//!
//! | rows | Q4_K | Q6_K | Q8_0 | |
//! |---|---|---|---|---|
//! | 1 | 176 | 111 | 100 | 46 to 53 GB/s of weights |
//! | 8 | 637 | 501 | 665 | Q8_0: 44 GB/s |
//! | 32 | 1,181 | 1,049 | 1,127 | |
//! | 512 | 1,264 | 1,819 | 1,200 | a machine without AMX, at most 1,440: Q4_K 735, Q6_K 595 |
//!
//! On the same machine AVX2 reaches 167 and 300 (Q4_K, one and eight rows). Against unpacking to `f32` in scalar loops, as
//! it was before: 14 to 48 times for one row, 44 to 109 times from 8 rows on.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod dispatch;
mod expand;
mod format;
mod job;
mod panels;
mod rounding;
mod row_codes;
mod rows;
mod scalar;
mod superblock;

use std::cell::RefCell;

use crate::isa::Isa;
use crate::parallel::{for_each_part, for_each_range};
use dispatch::ThreadScratch;
use job::Job;

pub use panels::Panels;
pub use rounding::RoundingGroup;
pub use rows::{QuantisedRows, quantise_rows};

/// The product of `rows` and the weights of `panels`, `[T, N]`.
///
/// # Panics
/// When the rows have another width than the weights.
pub fn matmul(rows: &QuantisedRows, panels: &Panels) -> Vec<f32> {
    let mut y = vec![0.0; rows.count() * panels.outputs()];
    matmul_into(rows, panels, &mut y);
    y
}

/// [`matmul`] into `y`, `[T, N]`.
///
/// # Panics
/// When the rows have another width than the weights, or `y` another length.
pub fn matmul_into(rows: &QuantisedRows, panels: &Panels, y: &mut [f32]) {
    matmul_on(Isa::current(), rows, panels, y);
}

/// [`matmul_into`] with instructions of one's choice: the same bits, another speed.
///
/// # Panics
/// Also when this machine does not have them.
pub fn matmul_on(isa: Isa, rows: &QuantisedRows, panels: &Panels, y: &mut [f32]) {
    matmuls_on(isa, rows, [(panels, y)]);
}

/// Several products of the same rows at once: no thread waits for the last part of one before the next begins.
///
/// # Panics
/// As [`matmul_into`].
pub fn matmuls_into<const N: usize>(rows: &QuantisedRows, products: [(&Panels, &mut [f32]); N]) {
    matmuls_on(Isa::current(), rows, products);
}

fn matmuls_on<const N: usize>(isa: Isa, rows: &QuantisedRows, products: [(&Panels, &mut [f32]); N]) {
    assert!(isa.is_here(), "{} on a machine without it", isa.name());
    thread_local! {
        static SCRATCH: RefCell<ThreadScratch> = RefCell::default();
        static TERMS: RefCell<Vec<Vec<i32>>> = RefCell::default();
    }
    if rows.count() == 0 {
        return;
    }
    TERMS.with_borrow_mut(|terms| {
        terms.resize_with(N.max(terms.len()), Vec::new);
        let mut terms = terms.iter_mut();
        let jobs = products.map(|(panels, y)| Job::new(isa, rows, panels, y, terms.next().expect("one for each")));
        let panels: usize = jobs.iter().map(|job| job.panels.count()).sum();
        let cost: usize = jobs.iter().map(|job| rows.count() * job.panels.outputs() * job.panels.inputs()).sum();
        for_each_range(panels, dispatch::TOGETHER, cost, |range| {
            for_each_part(jobs.iter().map(|job| job.panels.count()), range, |index, part| {
                SCRATCH.with_borrow_mut(|scratch| dispatch::panels(isa, &jobs[index], part, scratch));
            });
        });
    });
}

#[cfg(test)]
mod tests;
