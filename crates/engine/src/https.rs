//! How every HTTP client of ours begins: TLS by rustls over ring, servers checked against the certificates that the system
//! trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use tokio_rustls::rustls::crypto::ring;

/// For servers whose URLs begin with `base`. Where that speaks no TLS, a system without certificates is no hindrance.
pub fn client(base: &str) -> reqwest::ClientBuilder {
    // Once in a process; in a program that links us, its own choice stands.
    let _ = ring::default_provider().install_default();
    let builder = reqwest::Client::builder();
    if base.starts_with("https://") { builder } else { builder.tls_certs_only([]) }
}

/// Whether it is a URL that such a client can ask.
pub fn is_asked(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}
