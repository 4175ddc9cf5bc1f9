//! Other people's programs as clients. `make clients` installs them and says where they are; without them each test says that it is
//! skipped.

mod capi; // a C program over the library
mod dashboard; // the dashboard's stream, and its page in Chromium
#[cfg(feature = "kv-events")]
mod kv_events; // a subscriber in Python
mod openai; // packages of PyPI and npm (`tests/clients`)
mod schemas; // Python's jsonschema judges structured output
