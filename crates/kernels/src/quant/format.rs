//! What a panel of 16 outputs looks like in memory, for each packing that has one.
//!
//! ```text
//! header: the scales of groups, as narrow as in the file            codes: group after group of 32 inputs
//! ├ d [16 × f16], m [16 × f16] per block                            ├ planes of 4, 4+1, 4+2 or 8 bits (these signed)
//! └ K-quants: per group 16 bytes of scales, 16 of mins              └ byte j·64 + 4·n + i: input 4·j + i of output n
//! ```
//! A panel of K-quants is block after block of 256 inputs, each with a header of its own, so that one row reads it from its
//! beginning to its end: with all headers in front, as other panels have them, memory gave a tenth to a fifth less.
//!
//! Four bits: byte `b` of a group's 256 holds byte `b` of the eight-bit layout in its low half and byte `b + 256` in its
//! high half. Fifth bits: byte `b` of 64 holds those of bytes `64·j + b` for `j = 0..8`, in this order of bits. Fifth and
//! sixth bits: byte `64·h + b` of 128 holds those of bytes `64·(4·h + j) + b` for `j = 0..4`.

use crate::packed::Packing;

/// Outputs of a panel: one AVX-512 register of 32-bit sums.
pub(super) const PANEL: usize = 16;
/// Inputs that share a scale of the activations; a group's integer sum is exact.
pub(super) const GROUP: usize = 32;
/// Eight-bit codes of one group of a panel.
pub(super) const GROUP_CODES: usize = PANEL * GROUP;

/// What codes of eight bits differ by from how they lie in a panel: as signed bytes, with their offset of 128 taken off.
pub(super) const SIGN: u8 = 0x80;

/// How a weight follows from its code, an unsigned integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// `scale · (code − offset)`
    Symmetric { offset: i32 },
    /// `scale · code + shift`
    Affine,
    /// As one of the above, with scales that are integers within a block of 256: see [`crate::quant::superblock`].
    Super { offset: i32 },
}

/// How wide codes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codes {
    Four,
    Five,
    Six,
    Eight,
}

/// What stands in a panel's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Per group: `d`.
    D,
    /// Per group: `d`, `m`.
    DAndM,
    /// Per 8 groups: `d`, `dmin`, then 8 times (scales, mins) of one unsigned byte.
    SuperAffine,
    /// Per 8 groups: `d`, 16 times scales of one signed byte.
    SuperHalves,
}

/// All that says how weights of one packing lie in panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub packing: Packing,
    pub codes: Codes,
    pub scheme: Scheme,
    pub header: Header,
}

impl Format {
    /// `None` for packings that have no panels.
    pub fn of(packing: Packing) -> Option<Format> {
        let (codes, scheme, header) = match packing {
            Packing::Q4_0 => (Codes::Four, Scheme::Symmetric { offset: 8 }, Header::D),
            Packing::Q4_1 => (Codes::Four, Scheme::Affine, Header::DAndM),
            Packing::Q5_0 => (Codes::Five, Scheme::Symmetric { offset: 16 }, Header::D),
            Packing::Q5_1 => (Codes::Five, Scheme::Affine, Header::DAndM),
            Packing::Q8_0 => (Codes::Eight, Scheme::Symmetric { offset: 128 }, Header::D),
            Packing::Q4K => (Codes::Four, Scheme::Super { offset: 0 }, Header::SuperAffine),
            Packing::Q5K => (Codes::Five, Scheme::Super { offset: 0 }, Header::SuperAffine),
            Packing::Q6K => (Codes::Six, Scheme::Super { offset: 32 }, Header::SuperHalves),
            Packing::F32 | Packing::F16 | Packing::Bf16 => return None,
            Packing::Q2K | Packing::Q3K | Packing::Iq4Nl | Packing::Mxfp4 => return None,
        };
        Some(Format { packing, codes, scheme, header })
    }

    /// Groups that have a header together: all `groups` of a panel, or a block's.
    pub fn groups_together(self, groups: usize) -> usize {
        if self.header.groups() > 1 { self.header.groups() } else { groups }
    }

    /// Bytes of the header of `groups` groups, a multiple of 64.
    pub fn header_bytes(self, groups: usize) -> usize {
        (groups / self.header.groups() * self.header.bytes()).next_multiple_of(64)
    }

    /// Bytes of `groups` groups with their header, a multiple of 64.
    pub fn bytes_together(self, groups: usize) -> usize {
        self.header_bytes(groups) + groups * self.codes.bytes()
    }

    /// Bytes of a panel of `groups` groups, a multiple of 64.
    pub fn panel_bytes(self, groups: usize) -> usize {
        let together = self.groups_together(groups);
        groups / together * self.bytes_together(together)
    }
}

impl Codes {
    /// Bytes of one group of a panel.
    pub const fn bytes(self) -> usize {
        match self {
            Codes::Four => GROUP_CODES / 2,
            Codes::Five => GROUP_CODES / 2 + GROUP_CODES / 8,
            Codes::Six => GROUP_CODES / 2 + GROUP_CODES / 4,
            Codes::Eight => GROUP_CODES,
        }
    }
}

impl Header {
    /// Groups that one entry describes.
    pub const fn groups(self) -> usize {
        match self {
            Header::D | Header::DAndM => 1,
            Header::SuperAffine | Header::SuperHalves => 8,
        }
    }

    /// Bytes of one entry.
    pub const fn bytes(self) -> usize {
        match self {
            Header::D => 2 * PANEL,
            Header::DAndM => 4 * PANEL,
            Header::SuperAffine => (4 + 8 * 2) * PANEL,
            Header::SuperHalves => (2 + 16) * PANEL,
        }
    }
}

impl Scheme {
    /// What is taken off a code.
    pub const fn offset(self) -> i32 {
        match self {
            Scheme::Symmetric { offset } | Scheme::Super { offset } => offset,
            Scheme::Affine => 0,
        }
    }
}
