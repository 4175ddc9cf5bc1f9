//! What stands around a server. `make deploy-tests` runs these; a tool that is missing fails them in CI and skips them elsewhere.

mod prometheus; // the books of /metrics, and Prometheus itself with every query that is shipped
mod scaleout; // replicas behind HAProxy and vllm-router (`tests/scaleout`), and the files of `deploy/`
