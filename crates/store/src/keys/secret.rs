//! Where the secret of the digests is: in the configuration, in a file, or in a file beside the store that is made when it is
//! first needed.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::SecretSource;
use super::token::{NoChance, Secret, hex, random};
use crate::Location;

/// A shorter one could be tried out.
const SHORTEST: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret of API keys has {bytes} bytes, at least {SHORTEST} are needed (keys.secret, keys.secret_file)")]
    TooShort { bytes: usize },
    #[error("the secret of API keys in {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{} can be read by others than its owner; make it 0600 (chmod 600)", path.display())]
    Open { path: PathBuf },
    #[error(
        "servers that share a database need the same secret of API keys, which has to be given: keys.secret or keys.secret_file"
    )]
    Shared,
    #[error(transparent)]
    NoChance(#[from] NoChance),
}

impl Secret {
    /// The secret of the keys in the store at `location`.
    pub fn load(source: &SecretSource, location: &Location) -> Result<Secret, SecretError> {
        match source {
            SecretSource::Text(text) => checked(text.trim().as_bytes()),
            SecretSource::File(path) => read(path, Openness::Any),
            SecretSource::BesideStore => match location {
                // Nobody else will ever see these digests.
                Location::Memory => Ok(Secret::new(&random::<32>()?)),
                Location::File(store) => beside(store),
                Location::Postgres(_) => Err(SecretError::Shared),
            },
        }
    }
}

/// Who may be able to read a file. One that the operator names may be a secret that Kubernetes mounts, whose mode is 0644.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Openness {
    Owner,
    Any,
}

fn checked(bytes: &[u8]) -> Result<Secret, SecretError> {
    if bytes.len() < SHORTEST {
        return Err(SecretError::TooShort { bytes: bytes.len() });
    }
    Ok(Secret::new(bytes))
}

fn read(path: &Path, openness: Openness) -> Result<Secret, SecretError> {
    let failed = |error| SecretError::File { path: path.to_owned(), error };
    let bytes = fs::read(path).map_err(failed)?;
    if openness == Openness::Owner && is_open(path).map_err(failed)? {
        return Err(SecretError::Open { path: path.to_owned() });
    }
    checked(bytes.trim_ascii())
}

/// `forebay.db` has `forebay.db-secret`.
fn beside(store: &Path) -> Result<Secret, SecretError> {
    let mut name = store.as_os_str().to_owned();
    name.push("-secret");
    let path = PathBuf::from(name);
    let failed = |error| SecretError::File { path: path.clone(), error };
    // Written whole under another name, then linked: who finds the file finds all of it, and of two who make it one wins.
    if !path.try_exists().map_err(failed)? {
        let draft = path.with_extension(format!("{}.tmp", hex(&random::<8>()?)));
        let mut file = private(&draft).map_err(failed)?;
        let written = writeln!(file, "{}", hex(&random::<32>()?)).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&draft, &path));
        let _ = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
    }
    read(&path, Openness::Owner)
}

#[cfg(unix)]
fn private(path: &Path) -> std::io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn private(path: &Path) -> std::io::Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn is_open(path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &Path) -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_secret_is_made_once_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("x.db"));
        let load = || Secret::load(&SecretSource::BesideStore, &location);
        let digest = load().unwrap().digest("a");
        assert_eq!(load().unwrap().digest("a"), digest);
        let path = folder.path().join("x.db-secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(load(), Err(SecretError::Open { .. })));
    }

    #[test]
    fn a_secret_that_is_given_is_long_and_shared_databases_need_one() {
        let text = |text: &str| SecretSource::Text(text.into());
        let digest = |source: &SecretSource| Secret::load(source, &Location::Memory).map(|secret| secret.digest("a"));
        assert!(matches!(digest(&text("short")), Err(SecretError::TooShort { bytes: 5 })));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let given = digest(&text("0123456789abcdef")).unwrap();
        assert_eq!(digest(&SecretSource::File(path)).unwrap(), given);
        assert!(!format!("{:?}", text("0123456789abcdef")).contains("0123"));
        let postgres = Location::parse("postgres://u@h/db").unwrap();
        assert!(matches!(Secret::load(&SecretSource::BesideStore, &postgres), Err(SecretError::Shared)));
        assert!(digest(&SecretSource::File(folder.path().join("none"))).is_err());
    }
}
