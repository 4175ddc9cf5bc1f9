//! Tests come in the next step.
