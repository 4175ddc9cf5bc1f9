//! From what a route heard to what it says back: prepare (render, tokenise, check), submit, and turn tokens into text
//! deltas. Used by every face: api, ffi, jobs.
