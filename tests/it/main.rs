//! Integration tests, one module per face: `goldens` compares forward passes with the reference implementation.

mod goldens;
