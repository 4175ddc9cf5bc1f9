//! Which instructions the kernels use: the best that this processor has, or what `FOREBAY_SIMD` asks for.

use std::sync::OnceLock;

/// Sets of instructions, from plain to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the compiler was allowed to use.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// The above, and products of bytes in one instruction, without AVX-512.
    AvxVnni,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
    /// The above, and AMX for 8-bit integers, which the system must have granted to this process.
    Amx,
}

/// The variable that forces a path.
pub const VARIABLE: &str = "FOREBAY_SIMD";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    #[error("{VARIABLE} must be scalar, avx2, avxvnni, avx512 or amx, found {found:?}")]
    Unknown { found: String },
    #[error("{VARIABLE} asks for {asked}, which this machine does not have; its best is {}", best.name())]
    Unavailable { asked: &'static str, best: Isa },
}

impl Isa {
    const ALL: [Isa; 5] = [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Amx];

    /// As [`VARIABLE`] spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// What the kernels of this process use: what [`Isa::check`] says, or the best set where the variable is wrong. A program
    /// should ask [`Isa::check`] at its start, to tell its user of a wrong variable.
    pub fn current() -> Isa {
        static CURRENT: OnceLock<Isa> = OnceLock::new();
        *CURRENT.get_or_init(|| Isa::check().unwrap_or_else(|_| Isa::best()))
    }

    /// What [`VARIABLE`] asks for, or the best.
    pub fn check() -> Result<Isa, IsaError> {
        let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        Isa::choose(asked.map(|value| value.to_string_lossy().into_owned()).as_deref(), &Isa::available())
    }

    fn choose(asked: Option<&str>, available: &[Isa]) -> Result<Isa, IsaError> {
        let best = available.last().copied().unwrap_or(Isa::Scalar);
        let Some(asked) = asked else { return Ok(best) };
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == asked);
        let isa = isa.ok_or_else(|| IsaError::Unknown { found: asked.chars().take(40).collect() })?;
        if available.contains(&isa) { Ok(isa) } else { Err(IsaError::Unavailable { asked: isa.name(), best }) }
    }

    fn best() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Scalar)
    }

    /// All that this processor and system offer, the best last.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_here()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_here(self) -> bool {
        let avx2 =
            || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
        };
        match self {
            Isa::Scalar => true,
            Isa::Avx2 => avx2(),
            Isa::AvxVnni => avx2() && is_x86_feature_detected!("avxvnni"),
            Isa::Avx512 => avx2() && avx512(),
            Isa::Amx => avx2() && avx512() && crate::amx::permission::granted(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn is_here(self) -> bool {
        self == Isa::Scalar
    }
}

/// Whether a thread that reads weights for one row alone reads one panel faster than several side by side. Measured: Zen 5 does,
/// by 4 to 16 %; on Xeons two streams came faster than one.
#[cfg(target_arch = "x86_64")]
pub(super) fn one_stream() -> bool {
    static ONE: OnceLock<bool> = OnceLock::new();
    *ONE.get_or_init(|| {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == *b"AuthenticAMD"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_what_there_is() {
        let (plain, wide) = ([Isa::Scalar, Isa::Avx2], [Isa::Scalar, Isa::Avx2, Isa::Avx512]);
        assert_eq!(Isa::choose(None, &plain), Ok(Isa::Avx2));
        assert_eq!(Isa::choose(Some("scalar"), &wide), Ok(Isa::Scalar));
        let error = |asked, available| Isa::choose(Some(asked), available).unwrap_err().to_string();
        assert_eq!(error("sse", &wide), "FOREBAY_SIMD must be scalar, avx2, avxvnni, avx512 or amx, found \"sse\"");
        assert_eq!(
            error("avxvnni", &wide),
            "FOREBAY_SIMD asks for avxvnni, which this machine does not have; its best is avx512"
        );
    }
}
