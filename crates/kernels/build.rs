//! With the feature `cuda`: compiles `src/cuda/*.cu` to PTX, with the tool and the settings that candle uses for
//! its own kernels. Without it there is nothing to do.
//!
//! `CUDA_HOME` (or `nvcc` in `PATH`) says where the compiler is, `CUDA_COMPUTE_CAP` for which GPU, such as 90; without it
//! `nvidia-smi` is asked.

#[cfg(feature = "cuda")]
fn main() -> cudaforge::Result<()> {
    const SOURCES: &str = "src/cuda";
    println!("cargo::rerun-if-changed={SOURCES}");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers: Vec<_> = std::fs::read_dir(SOURCES)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let kernels = cudaforge::KernelBuilder::new()
        .source_dir(SOURCES)
        .watch(headers.into_iter().filter(|path| path.extension().is_some_and(|end| end == "cuh" || end == "h")))
        .arg("-std=c++17")
        .arg("-O3")
        .build_ptx()?;
    kernels.write(out.join("ptx.rs"))
}

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
