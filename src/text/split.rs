//! Where a text may be cut while a tag could still be coming. Pure.

/// The bytes at the end of `text` that may be the beginning of `tag`: the longest such, never all of the tag.
pub(super) fn held_back(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&n| tag.is_char_boundary(n) && text.ends_with(&tag[..n])).unwrap_or(0)
}
