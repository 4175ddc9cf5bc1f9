//! The text of a key, `sk-fb-ID-SECRET`: its id, by which it is found, and 192 bits of chance. What is stored is its
//! HMAC-SHA256 under the server's secret: whoever reads the store can neither use the keys nor try out others.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

const PREFIX: &str = "sk-fb-";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 24;

/// The server's secret. Never shown.
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// A key as only its owner has it.
pub struct Minted {
    /// The public name of the key.
    pub id: String,
    pub token: String,
    pub digest: String,
}

/// The system has no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoChance;

impl Secret {
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// In hexadecimal.
    pub fn digest(&self, token: &str) -> String {
        hex(hmac::sign(&self.0, token.as_bytes()).as_ref())
    }

    /// Whether this is the digest of the token. Takes the same time wherever they differ.
    pub fn verify(&self, token: &str, digest: &str) -> bool {
        unhex(digest).is_some_and(|digest| hmac::verify(&self.0, token.as_bytes(), &digest).is_ok())
    }

    /// A new key.
    pub fn mint(&self) -> Result<Minted, NoChance> {
        self.remint(&format!("key_{}", hex(&random::<ID_BYTES>()?)))
    }

    /// Another text for the key `id`.
    pub fn remint(&self, id: &str) -> Result<Minted, NoChance> {
        let short = id.strip_prefix("key_").unwrap_or(id);
        let token = format!("{PREFIX}{short}-{}", hex(&random::<SECRET_BYTES>()?));
        Ok(Minted { id: id.to_owned(), digest: self.digest(&token), token })
    }
}

/// The id in a key's text; `None` for what is no key.
pub fn id_of(token: &str) -> Option<String> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('-')?;
    let is_hex = |text: &str, bytes: usize| {
        text.len() == 2 * bytes && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then(|| format!("key_{id}"))
}

pub fn random<const BYTES: usize>() -> Result<[u8; BYTES], NoChance> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoChance)?;
    Ok(bytes)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_hmac_sha256() {
        // RFC 4231, test case 2.
        let digest = Secret::new(b"Jefe").digest("what do ya want for nothing?");
        assert_eq!(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_key_is_found_by_its_id_and_known_by_its_digest() {
        let secret = Secret::new(b"a secret");
        let key = secret.mint().unwrap();
        assert_eq!(id_of(&key.token).as_deref(), Some(key.id.as_str()));
        assert!(secret.verify(&key.token, &key.digest) && !Secret::new(b"another").verify(&key.token, &key.digest));
        let again = secret.remint(&key.id).unwrap();
        assert_eq!(again.id, key.id);
        assert!(again.token != key.token && !secret.verify(&again.token, &key.digest));
        // One digit, wherever it stands.
        for at in PREFIX.len()..key.token.len() {
            let mut other = key.token.clone().into_bytes();
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            assert!(!secret.verify(std::str::from_utf8(&other).unwrap(), &key.digest), "{at}");
        }
        assert!(
            !secret.verify(&key.token, "") && !secret.verify(&key.token, "zz") && !secret.verify(&key.token, "abc")
        );
    }

    #[test]
    fn what_is_no_key_has_no_id() {
        let token = Secret::new(b"s").mint().unwrap().token;
        let short = &token[..token.len() - 1];
        for odd in ["", "sk-", "sk-fb-", "sk-fb--", short, &format!("{token}0"), &token.to_uppercase(), "sk-fb-é-x"] {
            assert_eq!(id_of(odd), None, "{odd}");
        }
    }
}
