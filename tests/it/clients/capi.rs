//! The C interface: its header is made from its source, and C programs use the library, once under valgrind.
//!
//! The programs link what `make capi-dev` built; `FOREBAY_TEST_CAPI` names its folder, and without it they are skipped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_header_is_made_from_the_source() {
    let config = cbindgen::Config::from_file(root("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new()
        .with_src(root("src/ffi/types.rs"))
        .with_src(root("src/ffi/mod.rs"))
        .with_config(config)
        .generate();
    let mut made = Vec::new();
    bindings.expect("bindings").write(&mut made);
    let path = root("include/forebay.h");
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, &made).expect("a header");
    }
    let there = std::fs::read(&path).unwrap_or_default();
    assert!(made == there, "include/forebay.h is not what src/ffi says; FOREBAY_BLESS=1 writes it");
}

/// The library's folder, if it was built.
fn library() -> Option<PathBuf> {
    let folder = std::env::var_os("FOREBAY_TEST_CAPI").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: FOREBAY_TEST_CAPI names no library (make capi-dev builds it)");
    }
    folder
}

fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Output {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Compiles `source` into `folder` against the shared or the static library.
fn compile(source: &str, library: &Path, folder: &Path, shared: bool) -> PathBuf {
    let program = folder.join("program");
    let (source, include) = (root(source), root("include"));
    let archive = library.join("libforebay.a");
    let rpath = format!("-Wl,-rpath,{}", library.display());
    let mut arguments: Vec<&OsStr> = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"].map(OsStr::new).into();
    arguments.extend([OsStr::new("-I"), include.as_ref(), source.as_ref(), OsStr::new("-o"), program.as_ref()]);
    match shared {
        true => arguments.extend([OsStr::new("-L"), library.as_ref(), OsStr::new("-lforebay"), OsStr::new(&rpath)]),
        // What Rust's standard library needs of the system.
        false => arguments.extend(
            [archive.as_os_str()]
                .into_iter()
                .chain(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lutil", "-lrt"].map(OsStr::new)),
        ),
    }
    run("cc", &arguments);
    program
}

#[test]
fn a_c_program_makes_every_mistake_and_lives() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(compile("tests/capi/check.c", &library, folder.path(), true), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 failures\n");
}

#[test]
fn the_example_links_the_static_library_and_says_what_the_server_says() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("examples/c/complete.c", &library, folder.path(), false);
    let arguments = ["", "Once upon a time"].map(OsStr::new);
    let said = run(program, &arguments).stdout;
    assert!(said.len() > 40, "{}", String::from_utf8_lossy(&said));
    let shared = tempfile::tempdir().expect("a folder");
    let again = run(compile("examples/c/complete.c", &library, shared.path(), true), &arguments).stdout;
    assert_eq!(said, again);
}

#[test]
fn valgrind_finds_nothing() {
    let Some(library) = library() else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: there is no valgrind");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("tests/capi/check.c", &library, folder.path(), true);
    // Threads of the pools live until the process ends: theirs is still reachable.
    let arguments = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let arguments: Vec<&OsStr> = arguments.map(OsStr::new).into_iter().chain([program.as_os_str()]).collect();
    run("valgrind", &arguments);
}
