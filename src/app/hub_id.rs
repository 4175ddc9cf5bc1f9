//! The ids of models on the Hugging Face hub.

/// A model on the hub: `org/name[@revision][:file]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    pub repo: String,
    /// A branch, tag or commit; `main` if none was given.
    pub revision: String,
    /// One file of the repository instead of a checkpoint's usual ones.
    pub file: Option<String>,
}

impl HubId {
    /// `None` for what cannot be a hub id: these strings become paths and URLs.
    pub fn parse(text: &str) -> Option<HubId> {
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (owner, name) = repo.split_once('/')?;
        let sound = [owner, name].into_iter().chain(revision.split('/')).chain(file).all(is_name);
        sound.then(|| HubId { repo: repo.into(), revision: revision.into(), file: file.map(str::to_owned) })
    }
}

/// Letters, digits, `.`, `_`, `-`, and not only dots: a plain name, never a way through folders.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 255 && name.chars().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_ids_have_an_owner_and_a_name() {
        let parse = |text: &str| HubId::parse(text).map(|id| (id.repo, id.revision, id.file));
        assert_eq!(parse("org/name"), Some(("org/name".into(), "main".into(), None)));
        assert_eq!(parse("org/name@v1.0"), Some(("org/name".into(), "v1.0".into(), None)));
        assert_eq!(parse("org/name@refs/pr/3"), Some(("org/name".into(), "refs/pr/3".into(), None)));
        assert_eq!(parse("o/n@r:f.gguf"), Some(("o/n".into(), "r".into(), Some("f.gguf".into()))));
    }

    #[test]
    fn what_could_leave_the_cache_is_no_hub_id() {
        for text in
            ["name", "../name", "org/..", "a/b/c", "/org/name", "org/", "org/n@", "org/n@../x", "org/n:../f", "o/n:"]
        {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }
}
