//! GGUF files that lie about themselves: each is refused with file, key or tensor, and rule. The names in capitals are the 34 handcrafted
//! kinds of llama.cpp's `test-gguf.cpp`; where we are stricter than it, the case says so.

use std::path::Path;
use std::sync::LazyLock;

use candle_core::quantized::GgmlDType;
use forebay_model::{DeviceChoice, LoadOptions, Source, load};

use crate::models::goldens;
use crate::support::gguf_file::{GgufFile, Value, array, string, text};

pub static HONEST: LazyLock<GgufFile> = LazyLock::new(|| GgufFile::convert(&goldens::folder("llama"), GgmlDType::F32));

fn open(path: &Path) -> Result<(), String> {
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    load(&Source::at(path.to_path_buf()), &options).map(|_| ()).map_err(|error| error.to_string())
}

fn open_bytes(bytes: &[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    open(&path)
}

/// The bytes must be refused with the file's name and all of `expected`.
fn check_bytes(bytes: &[u8], case: &str, expected: &str) {
    match open_bytes(bytes) {
        Ok(()) => panic!("{case}: accepted"),
        Err(message) => {
            let named = message.split_once("model.gguf: ").map(|(_, rule)| rule);
            assert!(named.is_some_and(|rule| rule.contains(expected)), "{case}: expected {expected:?} in: {message}");
        }
    }
}

pub type Change = fn(&mut GgufFile);

pub fn set(file: &mut GgufFile, key: &str, value: Value) {
    file.set(key, value);
}

pub fn unset(file: &mut GgufFile, key: &str) {
    file.unset(key);
}

/// Each change to an honest file, and the rule that it breaks.
pub fn check(cases: &[(&str, Change, &str)]) {
    for (case, change, expected) in cases {
        let mut file = HONEST.clone();
        change(&mut file);
        check_bytes(&file.bytes(), case, expected);
    }
}

#[test]
fn honest_variations_are_accepted() {
    let cases: [(&str, Change); 7] = [
        ("DATA_SUCCESS", |_| {}),
        ("version 2", |f| f.version = 2),
        ("KV_SUCCESS", |f| every_kind_of_key(f)),
        ("TENSORS_SUCCESS: types that no decoder asks for", |f| {
            for (index, (kind, numbers, bytes)) in
                [(9, 32, 36), (18, 256, 98), (24, 5, 5), (28, 1, 8)].iter().enumerate()
            {
                let mut entry = f.tensors[0].clone();
                (entry.name, entry.kind, entry.sizes) = (format!("extra_{index}"), *kind, vec![*numbers, 1, 1, 1]);
                entry.bytes = vec![0; *bytes];
                f.tensors.push(entry);
            }
        }),
        ("TENSORS_CUSTOM_ALIGN", |f| align(f, 1)),
        ("DATA_CUSTOM_ALIGN", |f| align(f, 4096)),
        ("a single part", |f| set(f, "split.count", Value::U8(1))),
    ];
    for (case, change) in cases {
        let mut file = HONEST.clone();
        change(&mut file);
        assert_eq!(open_bytes(&file.bytes()), Ok(()), "{case}");
    }
}

fn align(file: &mut GgufFile, alignment: u32) {
    file.alignment = alignment as usize;
    file.set("general.alignment", Value::U32(alignment));
}

fn every_kind_of_key(file: &mut GgufFile) {
    for (kind, size) in [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8].into_iter().enumerate().filter(|(_, size)| *size > 0) {
        file.set(&format!("my.scalar_{kind}"), Value::Raw(kind as u32, vec![0xa5; size]));
        file.set(&format!("my.array_{kind}"), array(kind as u32, 3, &vec![0xa5; 3 * size]));
    }
    file.set("my.text", Value::Raw(8, string(b"\xff not UTF-8, and nobody asks")));
    file.set("my.texts", Value::Texts(vec![String::new(), "b".into()]));
    file.set("my.nothing", array(6, 0, &[]));
}

#[test]
fn headers() {
    check(&[
        ("HEADER_BAD_MAGIC", |f| f.magic = *b"FUGG", "must begin with GGUF, begins with \"FUGG\""),
        ("an older format", |f| f.magic = *b"ggjt", "must begin with GGUF, begins with \"ggjt\""),
        ("HEADER_BAD_VERSION_0", |f| f.version = 0, "version must be 2 or 3, is 0"),
        ("HEADER_BAD_VERSION_1", |f| f.version = 1, "version must be 2 or 3, is 1"),
        ("HEADER_BAD_VERSION_FUTURE", |f| f.version = 4, "version must be 2 or 3, is 4"),
        ("big-endian", |f| f.version = 3u32.swap_bytes(), "must be little-endian"),
        (
            "HEADER_BAD_N_TENSORS",
            |f| f.tensor_count = Some(u64::MAX),
            "must hold 18446744073709551615 tensors; what is left",
        ),
        ("HEADER_BAD_N_KV", |f| f.key_count = Some(u64::MAX), "must hold 18446744073709551615 keys; what is left"),
        ("many tensors", |f| f.tensor_count = Some(1 << 32), "must hold 4294967296 tensors"),
        ("one key too many", |f| f.key_count = Some(f.keys.len() as u64 + 1), "a tensor's name at byte"),
        ("one key too few", |f| f.key_count = Some(f.keys.len() as u64 - 1), "must have 1 to 4 dimensions"),
        ("one tensor too many", |f| f.tensor_count = Some(f.tensors.len() as u64 + 1), "a tensor's name at byte"),
    ]);
    check_bytes(&GgufFile::empty().bytes(), "HEADER_EMPTY is no model", "`general.architecture` is missing");
    check_bytes(b"", "nothing", "must hold GGUF of 4 bytes at byte 0; 0 follow");
    check_bytes(b"GGUF\x03\x00", "half a version", "must hold a version of 4 bytes at byte 4; 2 follow");
}

#[test]
fn keys() {
    let with = |bytes: &[u8]| {
        let header = [b"GGUF\x03\x00\x00\x00".as_slice(), &[0; 8], &1u64.to_le_bytes(), bytes, &[0; 64]];
        header.concat()
    };
    let key = |kind: u32, value: &[u8]| with(&[&string(b"k"), &kind.to_le_bytes()[..], value].concat());
    let huge = u64::MAX.to_le_bytes();
    check_bytes(
        &with(&huge),
        "KV_BAD_KEY_SIZE",
        "a key at byte 24 must have 1 to 65535 bytes, claims 18446744073709551615",
    );
    check_bytes(&with(&string(&[b'k'; 65_536])), "a long key", "must have 1 to 65535 bytes, claims 65536");
    check_bytes(&with(&string(b"\xff")), "a key of nonsense", "a key at byte 24 must be UTF-8");
    check_bytes(&key(13, &[]), "KV_BAD_TYPE", "`k` has the value type 13, which does not exist");
    check_bytes(&key(u32::MAX, &[]), "a negative type", "`k` has the value type 4294967295");
    check_bytes(&key(8, &huge), "KV_BAD_VALUE_SIZE", "must hold a string of 18446744073709551615 bytes at byte 45");
    check_bytes(
        &key(8, &(1u64 << 63).to_le_bytes()),
        "a string of 2^63",
        "must hold a string of 9223372036854775808 bytes",
    );
    let list = |element: u32, count: u64| key(9, &[&element.to_le_bytes()[..], &count.to_le_bytes()].concat());
    check_bytes(&list(13, 1), "an array of a bad type", "`k` has the value type 13");
    check_bytes(
        &list(0, 1 << 30),
        "an array of 2^30 bytes",
        "must hold 1073741824 array elements; what is left has room for at most 64",
    );
    check_bytes(&list(10, 1 << 61), "an array that wraps", "must hold 2305843009213693952 array elements");
    check_bytes(
        &list(8, 9),
        "more strings than fit",
        "must hold 9 array elements; what is left has room for at most 8",
    );
    check_bytes(&list(9, 1), "a nested array", "`k` must not be an array of arrays");
    let lengths = [&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &0u64.to_le_bytes(), &huge].concat();
    check_bytes(
        &key(9, &lengths),
        "a string of an array",
        "must hold a string of an array of 18446744073709551615 bytes",
    );
    check(&[
        ("KV_EMPTY_KEY", |f| f.keys.push((String::new(), Value::U8(1))), "must have 1 to 65535 bytes, claims 0"),
        ("KV_DUPLICATE_KEY", |f| f.keys.push(f.keys[1].clone()), "`llama.context_length` is listed twice"),
        (
            "KV_BAD_ALIGN",
            |f| set(f, "general.alignment", Value::U32(13)),
            "`general.alignment` must be an unsigned power of two up to 2^31, found 13",
        ),
        ("KV_WRONG_TYPE_ALIGN", |f| set(f, "general.alignment", Value::I32(32)), "power of two up to 2^31, found 32"),
        (
            "alignment 0",
            |f| set(f, "general.alignment", Value::U32(0)),
            "`general.alignment` must be an unsigned power",
        ),
        (
            "alignment 3",
            |f| set(f, "general.alignment", Value::U32(3)),
            "`general.alignment` must be an unsigned power",
        ),
        ("alignment 2^63", |f| set(f, "general.alignment", Value::U64(1 << 63)), "found 9223372036854775808"),
        ("alignment as text", |f| set(f, "general.alignment", text("32")), "found a string of 2 bytes"),
        ("a split model", |f| set(f, "split.count", Value::U32(3)), "`split.count` must be 1"),
    ]);
}

#[test]
fn an_honest_flood_of_metadata_costs_nothing() {
    // 512 MiB of zeros in a sparse file: what the array claims is there.
    let header = [b"GGUF\x03\x00\x00\x00".as_slice(), &[0; 8], &1u64.to_le_bytes(), &string(b"k"), &9u32.to_le_bytes()];
    let count = 512u64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, [&header.concat()[..], &0u32.to_le_bytes(), &count.to_le_bytes()].concat()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(count + 100).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.contains("keys and tensor list must take at most 268435456 bytes"), "{error}");
}

#[test]
fn tensors() {
    const NORM: &str = "output_norm.weight";
    check(&[
        ("TENSORS_BAD_NAME_SIZE", |f| f.tensor(NORM).name = "n".repeat(64), "a tensor's name at byte"),
        ("a nameless tensor", |f| f.tensor(NORM).name.clear(), "must have 1 to 63 bytes, claims 0"),
        (
            "TENSORS_BAD_N_DIMS",
            |f| f.tensor(NORM).sizes = vec![64, 1, 1, 1, 1],
            "tensor output_norm.weight: must have 1 to 4 dimensions, has 5",
        ),
        ("2^32 - 1 dimensions", |f| f.tensor(NORM).sizes.clear(), "must have 1 to 4 dimensions, has 0"),
        (
            "TENSORS_BAD_SHAPE",
            |f| f.tensor(NORM).sizes = vec![u64::MAX],
            "must have positive, countable dimensions, has 18446744073709551615",
        ),
        (
            "TENSORS_ZERO_DIM, which llama.cpp lets pass",
            |f| f.tensor(NORM).sizes = vec![64, 0],
            "must have positive, countable dimensions, has 0",
        ),
        (
            "TENSORS_NE_TOO_BIG",
            |f| f.tensor(NORM).sizes = vec![4 * 0x7fff_ffff; 2],
            "must take a countable number of bytes",
        ),
        (
            "sizes that wrap to 0",
            |f| f.tensor(NORM).sizes = vec![1 << 32; 2],
            "shape [4294967296, 4294967296] of F32 must take a countable",
        ),
        (
            "TENSORS_NBYTES_TOO_BIG",
            |f| (f.tensor(NORM).kind, f.tensor(NORM).sizes) = (27, vec![1 << 31, 1 << 31]),
            "of I64 must take a countable number of bytes",
        ),
        (
            "bytes wrap, elements do not",
            |f| f.tensor(NORM).sizes = vec![(1 << 62) + 16],
            "must take a countable number of bytes",
        ),
        ("TENSORS_BAD_TYPE", |f| f.tensor(NORM).kind = 10_000, "tensor output_norm.weight: type 10000 does not exist"),
        ("a type that was removed", |f| f.tensor(NORM).kind = 4, "type 4 does not exist"),
        (
            "TENSORS_BAD_OFFSET",
            |f| f.tensor(NORM).offset = Some(u64::MAX),
            "tensor output_norm.weight: must begin where the one before it ends, at byte",
        ),
        ("overlapping tensors", |f| f.tensors[1].offset = Some(0), "must begin where the one before it ends"),
        (
            "a gap",
            |f| f.tensors[0].offset = Some(32),
            "must begin where the one before it ends, at byte 0; begins at 32",
        ),
        ("TENSORS_DUPLICATE_NAME", |f| f.tensors.push(f.tensors[0].clone()), "is listed twice"),
        ("TENSORS_BAD_ALIGN", |f| set(f, "general.alignment", Value::U32(13)), "`general.alignment` must be"),
        (
            "TENSORS_INCONSISTENT_ALIGN",
            |f| {
                f.tensor(NORM).sizes = vec![63];
                f.tensor(NORM).bytes.truncate(252);
                // First, so that another follows and begins off its place.
                let at = f.tensors.iter().position(|tensor| tensor.name == NORM).expect("it is there");
                f.tensors[..=at].rotate_right(1);
                f.alignment = 4;
            },
            "must begin where the one before it ends",
        ),
        (
            "rows of half a block",
            |f| (f.tensor(NORM).kind, f.tensor(NORM).sizes) = (8, vec![48]),
            "its rows of 48 must be whole blocks of 32, as Q8_0 has them",
        ),
        (
            "blocks across rows",
            |f| {
                let entry = f.tensor("blk.0.attn_q.weight");
                (entry.kind, entry.sizes) = (12, vec![64, 64]);
            },
            "blk.0.attn_q.weight: its rows of 64 must be whole blocks of 256, as Q4_K has them",
        ),
    ]);
}

#[test]
fn data() {
    let honest = HONEST.bytes();
    let last = &HONEST.tensors[HONEST.tensors.len() - 1].name;
    let expected = format!("tensor {last}: must lie within the data of");
    check_bytes(&honest[..honest.len() - 1], "DATA_NOT_ENOUGH_DATA", &expected);
    check(&[
        ("DATA_BAD_ALIGN", |f| set(f, "general.alignment", Value::U32(12)), "`general.alignment` must be"),
        (
            "DATA_INCONSISTENT_ALIGN",
            |f| set(f, "general.alignment", Value::U32(4096)),
            "must begin where the one before it ends",
        ),
        (
            "alignment beyond the file",
            |f| set(f, "general.alignment", Value::U32(1 << 31)),
            "must lie within the data of 0 bytes",
        ),
        (
            "DATA_MEM_SIZE_OVERFLOW",
            |f| {
                for entry in &mut f.tensors[..2] {
                    (entry.kind, entry.sizes) = (24, vec![0x7fff_ffff_ffff_ffc0]);
                }
            },
            "must lie within the data of",
        ),
    ]);
}

#[test]
fn every_truncation_is_refused() {
    let honest = HONEST.bytes();
    let header = honest.len() - HONEST.tensors.iter().map(|entry| entry.bytes.len()).sum::<usize>();
    for len in (0..header).step_by(7).chain([header, header + 1, honest.len() / 2]) {
        check_bytes(&honest[..len], &format!("{len} bytes"), "");
    }
}

/// Whatever a byte of the header becomes, the file is read or refused, and nothing panics.
#[test]
fn flipped_bits_are_survived() {
    let honest = HONEST.bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut refused = 0;
    for at in 0..1500 {
        let mut bytes = honest.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, bytes).unwrap();
        refused += usize::from(open(&path).is_err());
    }
    assert!(refused > 500, "only {refused} of 1500 were noticed");
}

#[test]
fn what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    assert!(open(&path).unwrap_err().contains("model.gguf: No such file"));
    std::fs::create_dir(&path).unwrap();
    assert!(open(&path).unwrap_err().contains("model.gguf: must be a regular file"));
    #[cfg(target_os = "linux")]
    assert!(open(Path::new("/dev/zero")).is_err());
}
