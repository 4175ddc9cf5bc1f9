//! The macro that compiles a kernel once per instruction set and calls the one that is asked for.

/// Calls a generic `unsafe fn f::<V: Lanes>(…)`, compiled for each instruction set, with that of the [`Isa`] given.
///
/// `on_lanes!(fn name(isa; a: A, b: B) -> R = f)` declares `fn name(isa: Isa, a: A, b: B) -> R`; `isa` must be one that this
/// machine has.
///
/// [`Isa`]: crate::isa::Isa
macro_rules! on_lanes {
    ($vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $generic:ident) => {
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) $(-> $result)? {
            use $crate::isa::Isa;
            use $crate::lanes;

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
            fn wide($($arg: $type),*) $(-> $result)? {
                // SAFETY: these features are enabled here.
                unsafe { $generic::<lanes::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn narrow($($arg: $type),*) $(-> $result)? {
                // SAFETY: these features are enabled here.
                unsafe { $generic::<lanes::Avx2>($($arg),*) }
            }
            match isa {
                // SAFETY: callers pass what `Isa` has found on this processor.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Amx => unsafe { wide($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => unsafe { narrow($($arg),*) },
                // SAFETY: plain Rust needs no instructions.
                _ => unsafe { $generic::<lanes::Scalar>($($arg),*) },
            }
        }
    };
}
pub(crate) use on_lanes;
