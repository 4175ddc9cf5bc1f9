//! What a parser finds in a text.

/// What a parser finds, in the text's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// A call begins.
    Call {
        name: String,
    },
    /// More of the arguments of the call that began last: all of them joined are JSON, as far as the model can write it.
    Arguments(String),
}
