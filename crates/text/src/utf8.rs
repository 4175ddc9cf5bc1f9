//! Bytes that arrive in pieces become text without ever splitting a character. Pure.

/// An incremental `String::from_utf8_lossy`: the concatenation of everything it returns equals the lossy decoding of all
/// bytes at once, however they were cut.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of one character, at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Adds `bytes` and returns what is now certain.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut certain = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            certain += chunk.valid().len();
            if chunk.invalid().is_empty() {
                continue;
            }
            // Only the end of the buffer can still grow into a character.
            let at_end = certain + chunk.invalid().len() == self.pending.len();
            if at_end && is_unfinished(chunk.invalid()) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            certain += chunk.invalid().len();
        }
        self.pending.drain(..certain);
        text
    }

    /// What is left when no more bytes come: nothing, or one U+FFFD for a character that never ended.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Whether more bytes could make this a character: the standard library says so by giving no error length.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_come_whole() {
        let mut stream = Utf8Stream::default();
        let pieces: Vec<String> = "é🐟".bytes().map(|byte| stream.push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🐟"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn an_unfinished_character_ends_as_one_replacement() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"a\xF0\x9F\x90"), "a");
        assert_eq!(stream.finish(), "\u{FFFD}");
        assert_eq!(stream.push(b"b"), "b");
    }

    proptest! {
        #[test]
        fn streamed_equals_whole(pieces in proptest::collection::vec(piece(), 0..24)) {
            let mut stream = Utf8Stream::default();
            let mut streamed: String = pieces.iter().map(|piece| stream.push(piece)).collect();
            streamed += &stream.finish();
            prop_assert_eq!(streamed, String::from_utf8_lossy(&pieces.concat()).into_owned());
        }
    }

    /// Arbitrary bytes are rarely near-characters, so most pieces are cuts of real ones and bytes of special meaning.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let cut = (any::<char>(), 0..5usize, 0..5usize).prop_map(|(c, from, to)| {
            let bytes = c.to_string().into_bytes();
            let to = to.min(bytes.len());
            bytes[from.min(to)..to].to_vec()
        });
        let odd =
            proptest::sample::select(vec![0x80u8, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF, b'a']);
        prop_oneof![cut, proptest::collection::vec(odd, 0..4), proptest::collection::vec(any::<u8>(), 0..4)]
    }
}
