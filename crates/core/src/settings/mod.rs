//! What a setting is: one row of a table that says everything about it once. Pure: no YAML, no command line, no JSON.
//!
//! A crate keeps its rows beside the struct that they fill, in a file `settings.rs`; the server joins the tables. Flags,
//! config.yaml with its comments, the environment, `/admin`, reloads, the dashboard's forms and docs/configuration.md are
//! walks over the rows.
//!
//! ```text
//! text ──kind.parse──▶ Value ──field.put──▶ the field        value.rs    between text and field
//! text ◀──kind.show─── Value ◀─field.value─ the field        kind.rs     what a setting may hold, and its range
//!                                                            field.rs    types of fields
//!                                                            setting.rs  the row
//! ```

mod field;
mod kind;
mod setting;
mod value;

pub use field::Field;
pub use kind::{Kind, list};
pub use setting::{Effect, Setting};
pub use value::Value;

#[cfg(test)]
mod tests;
