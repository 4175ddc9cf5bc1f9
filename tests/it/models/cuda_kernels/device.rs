//! A device: the process of `tests/cuda/device.cpp` behind a pipe.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use super::kind::Kind;

/// Alignment and bounds beside addresses: what a GPU refuses, too. No frames that outlive their functions: fibers have
/// stacks that the sanitizer did not make. Nothing is contracted but where the source says fmaf.
const FLAGS: &[&str] = &[
    "-std=c++20",
    "-O1",
    "-g1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fsanitize=address,alignment,bounds",
    "-fno-sanitize-recover=all",
];

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    Array(Array),
    Null,
    U32(u32),
    U64(u64),
    F32(f32),
}

/// An array on the device.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    index: u64,
    bytes: usize,
}

pub struct Device {
    process: Child,
    commands: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    arrays: u64,
    /// Decides the order in which threads run.
    pub seed: u64,
}

impl Device {
    /// `None`, with a printed reason, where there is no compiler.
    pub fn start() -> Option<Device> {
        let program = program()?;
        let mut process = Command::new(program)
            .env("ASAN_OPTIONS", "detect_stack_use_after_return=0,detect_leaks=0,abort_on_error=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the emulated device");
        let commands = BufWriter::new(process.stdin.take().expect("a pipe"));
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Some(Device { process, commands, answers, arrays: 0, seed: 1 })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.commands.write_all(bytes).expect("the emulated device ended; it says why above");
    }

    fn number(&mut self, number: u64) {
        self.send(&number.to_le_bytes());
    }

    fn answer(&mut self, bytes: usize) -> Vec<u8> {
        self.commands.flush().expect("the emulated device ended; it says why above");
        let mut answer = vec![0; bytes];
        self.answers.read_exact(&mut answer).expect("the emulated device ended; it says why above");
        answer
    }

    pub fn array(&mut self, bytes: &[u8]) -> Array {
        self.send(b"A");
        self.number(bytes.len() as u64);
        self.send(bytes);
        self.arrays += 1;
        Array { index: self.arrays - 1, bytes: bytes.len() }
    }

    pub fn numbers(&mut self, kind: Kind, numbers: &[f32]) -> Array {
        self.array(&kind.bytes(numbers))
    }

    pub fn indices(&mut self, indices: &[u32]) -> Array {
        self.array(&indices.iter().flat_map(|index| index.to_le_bytes()).collect::<Vec<u8>>())
    }

    pub fn read(&mut self, array: Array) -> Vec<u8> {
        self.send(b"R");
        self.number(array.index);
        self.answer(array.bytes)
    }

    /// Runs a kernel to its end.
    pub fn launch(&mut self, kernel: &str, grid: [usize; 3], threads: usize, arguments: &[Argument]) {
        self.send(b"L");
        self.number(kernel.len() as u64);
        self.send(kernel.as_bytes());
        for number in grid.into_iter().chain([threads]) {
            self.send(&(number as u32).to_le_bytes());
        }
        self.number(self.seed);
        self.number(arguments.len() as u64);
        for argument in arguments {
            self.number(match *argument {
                Argument::Array(array) => array.index,
                Argument::Null => u64::MAX,
                Argument::U32(number) => number.into(),
                Argument::U64(number) => number,
                Argument::F32(number) => number.to_bits().into(),
            });
        }
        assert_eq!(self.answer(1), b".");
    }

    /// Forgets all arrays.
    pub fn clear(&mut self) {
        self.send(b"C");
        self.arrays = 0;
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // It ends by itself at the end of its input, but that would be a wait here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The compiled device; the first to ask compiles it.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(compiled).as_deref()
}

fn compiled() -> Option<PathBuf> {
    if Command::new("g++").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI has no g++");
        println!("skipped: no g++");
        return None;
    }
    let (sources, headers) = (files(&["cu", "cpp"]), files(&["cuh", "h"]));
    let mut hash = DefaultHasher::new();
    FLAGS.hash(&mut hash);
    for path in sources.iter().chain(&headers) {
        std::fs::read(path).expect("a source").hash(&mut hash);
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{:016x}", hash.finish()));
    if !program.exists() {
        build(&sources, &program);
    }
    Some(program)
}

/// What there is in the two folders, in order.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let folders = ["crates/kernels/src/cuda", "tests/cuda"].map(root);
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one)));
    paths.sort();
    paths
}

/// Each source by itself, as many at once as there are processors; under the final name once it is whole, since another
/// process may test, too.
fn build(sources: &[PathBuf], program: &Path) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let gcc = |arguments: &[&Path]| {
        let output = Command::new("g++").args(FLAGS).args(arguments).output().expect("g++");
        assert!(output.status.success(), "g++ {arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
    };
    let object = |source: &Path| folder.path().join(source.file_name().expect("a name")).with_extension("o");
    let one = |source: &PathBuf| {
        let (include, emulation) = (root("crates/kernels/src/cuda"), root("tests/cuda"));
        let words = ["-c", "-x", "c++", "-I", "-I", "-o"].map(Path::new);
        let [c, x, cpp, include_at, emulation_at, to] = words;
        gcc(&[c, x, cpp, include_at, &include, emulation_at, &emulation, source, to, &object(source)]);
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(source) = sources.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            one(source);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(sources.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let objects: Vec<PathBuf> = sources.iter().map(|source| object(source)).collect();
    let whole = folder.path().join("device");
    let mut arguments: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    arguments.extend([Path::new("-o"), &whole]);
    gcc(&arguments);
    std::fs::rename(whole, program).expect("one file system");
}
