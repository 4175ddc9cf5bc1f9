//! Placeholder while the rooms are merged.
