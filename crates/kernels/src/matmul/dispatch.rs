//! The same products on several instruction sets; one is chosen by what the machine has, never by row count.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa` has found

use std::ops::Range;

use super::job::Job;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;
use crate::packed::{Packing, unpack};

/// The outputs `columns` of all rows. `isa` is one that this machine has.
pub(super) fn block(isa: Isa, job: &Job, columns: Range<usize>) {
    match isa {
        // SAFETY: callers pass what `Isa` has found on this processor.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => unsafe { avx512::block(job, columns) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2::block(job, columns) },
        _ => {
            let row_bytes = job.inputs * job.numbers.bytes();
            for column in columns {
                let weight = &job.weight[column * row_bytes..][..row_bytes];
                for (row, x) in job.x.chunks_exact(job.inputs).enumerate() {
                    job.out.set(row, column, scalar::dot(x, job.numbers, weight));
                }
            }
        }
    }
}

/// [`unpack()`], compiled for wider registers.
pub(super) fn unpack_on(isa: Isa, packing: Packing, bytes: &[u8], out: &mut [f32]) {
    match isa {
        // SAFETY: callers pass what `Isa` has found on this processor.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => unsafe { unpack_avx512(packing, bytes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni => unsafe { unpack_avx2(packing, bytes, out) },
        _ => unpack(packing, bytes, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn unpack_avx2(packing: Packing, bytes: &[u8], out: &mut [f32]) {
    unpack(packing, bytes, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn unpack_avx512(packing: Packing, bytes: &[u8], out: &mut [f32]) {
    unpack(packing, bytes, out);
}
