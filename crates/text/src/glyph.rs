//! Characters of an answer on their way to its parsers. Pure.

/// A character, and whether it comes from a special token: parsers see those, readers never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyph {
    pub c: char,
    pub special: bool,
}

/// The characters of a text that readers may see.
pub fn plain(text: &str) -> impl Iterator<Item = Glyph> + '_ {
    text.chars().map(|c| Glyph { c, special: false })
}

/// The characters of a special token's spelling.
pub fn special(text: &str) -> impl Iterator<Item = Glyph> + '_ {
    text.chars().map(|c| Glyph { c, special: true })
}

/// What a reader sees of them.
pub fn visible(glyphs: impl IntoIterator<Item = Glyph>) -> String {
    glyphs.into_iter().filter(|glyph| !glyph.special).map(|glyph| glyph.c).collect()
}

pub(super) fn bytes(glyphs: &[Glyph]) -> usize {
    glyphs.iter().map(|glyph| glyph.c.len_utf8()).sum()
}

/// How what has come compares with a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spells {
    Whole,
    /// More text may complete it.
    Beginning,
    No,
}

impl Spells {
    /// The best that any of `marks` gives.
    pub fn any(glyphs: &[Glyph], marks: &[&str]) -> Spells {
        let all = marks.iter().map(|mark| Spells::of(glyphs, mark));
        all.fold(Spells::No, |best, one| match (best, one) {
            (Spells::Whole, _) | (_, Spells::Whole) => Spells::Whole,
            (Spells::Beginning, _) | (_, Spells::Beginning) => Spells::Beginning,
            (Spells::No, Spells::No) => Spells::No,
        })
    }

    pub fn of(glyphs: &[Glyph], mark: &str) -> Spells {
        let mut rest = mark.chars();
        if !glyphs.iter().all(|glyph| rest.next() == Some(glyph.c)) {
            return Spells::No;
        }
        if rest.as_str().is_empty() { Spells::Whole } else { Spells::Beginning }
    }
}
