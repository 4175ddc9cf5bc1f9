//! Which instructions the kernels use: the best that this processor has, or what `FOREBAY_SIMD` asks for.

use std::sync::OnceLock;

/// Sets of instructions, each holding the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compiler was allowed to use.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
    /// The above, and AMX for 8-bit integers, which the system must have granted to this process.
    Amx,
}

/// The variable that forces a path.
pub const VARIABLE: &str = "FOREBAY_SIMD";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    #[error("{VARIABLE} must be scalar, avx2, avx512 or amx, found {found:?}")]
    Unknown { found: String },
    #[error("{VARIABLE} asks for {asked}, which this machine does not have; it has {}", best.name())]
    Unavailable { asked: &'static str, best: Isa },
}

impl Isa {
    const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// As [`VARIABLE`] spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// What the kernels of this process use. Where the variable is wrong, the best there is: whoever starts the program
    /// asks [`Isa::check`] first.
    pub fn current() -> Isa {
        static CURRENT: OnceLock<Isa> = OnceLock::new();
        *CURRENT.get_or_init(|| Isa::check().unwrap_or_else(|_| Isa::best()))
    }

    /// What [`VARIABLE`] asks for, or the best.
    pub fn check() -> Result<Isa, IsaError> {
        let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        Isa::choose(asked.map(|value| value.to_string_lossy().into_owned()).as_deref(), Isa::best())
    }

    fn choose(asked: Option<&str>, best: Isa) -> Result<Isa, IsaError> {
        let Some(asked) = asked else { return Ok(best) };
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == asked);
        let isa = isa.ok_or_else(|| IsaError::Unknown { found: asked.chars().take(40).collect() })?;
        if isa <= best { Ok(isa) } else { Err(IsaError::Unavailable { asked: isa.name(), best }) }
    }

    /// The widest set that this processor and system offer.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                return Isa::Avx512;
            }
            if avx2 {
                return Isa::Avx2;
            }
        }
        Isa::Scalar
    }

    /// All that this machine has, for tests that they agree.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| *isa <= Isa::best()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_what_there_is() {
        assert_eq!(Isa::choose(None, Isa::Avx2), Ok(Isa::Avx2));
        assert_eq!(Isa::choose(Some("scalar"), Isa::Avx512), Ok(Isa::Scalar));
        let error = |asked, best| Isa::choose(Some(asked), best).unwrap_err().to_string();
        assert_eq!(error("sse", Isa::Amx), "FOREBAY_SIMD must be scalar, avx2, avx512 or amx, found \"sse\"");
        assert_eq!(error("amx", Isa::Avx2), "FOREBAY_SIMD asks for amx, which this machine does not have; it has avx2");
    }
}
