//! What lists have in common: which part is asked for, and how it is framed. Ids that a path names.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::Uri;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use forebay_core::request::RequestError;
use forebay_store::{Page, Paging};

/// The parameters of a query, each taken once.
pub struct Query(BTreeMap<String, String>);

impl Query {
    pub fn of(uri: &Uri) -> Result<Query, RequestError> {
        let parsed = axum::extract::Query::<BTreeMap<String, String>>::try_from_uri(uri);
        let mut query = parsed.map_err(|_| RequestError::invalid("query", "cannot be read"))?.0;
        query.retain(|_, value| !value.is_empty());
        Ok(Query(query))
    }

    pub fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// `after` and `limit`, 1 to `most`.
    pub fn paging(&mut self, default: usize, most: usize) -> Result<Paging, RequestError> {
        let limit = match self.take("limit") {
            None => default,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=most).contains(limit))
                .ok_or_else(|| RequestError::invalid("limit", format!("must be an integer from 1 to {most}")))?,
        };
        Ok(Paging { after: self.take("after"), limit })
    }

    pub fn finish(self) -> Result<(), RequestError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let param = name.chars().take(64).collect();
                Err(RequestError::Unsupported { param, message: "it has no meaning in this query".into() })
            }
        }
    }
}

/// Which part of a list.
#[expect(dead_code, reason = "it describes what `Query` takes apart, and is never made")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListPart {
    /// The id of the last one that is known.
    after: Option<String>,
    limit: Option<u32>,
}

/// A part of a list.
#[derive(Serialize, ToSchema)]
pub struct ListPage<T> {
    /// `list`.
    object: &'static str,
    data: Vec<T>,
    #[schema(required = true)]
    first_id: Option<String>,
    #[schema(required = true)]
    last_id: Option<String>,
    has_more: bool,
}

impl<T> ListPage<T> {
    /// What the store found, each made an answer by `answer`, with the ids of the first and the last. `None` is a page behind
    /// something that is not there.
    pub fn of<S>(
        page: Option<Page<S>>,
        id: impl Fn(&S) -> &str,
        answer: impl Fn(S) -> T,
    ) -> Result<ListPage<T>, RequestError> {
        let page = page.ok_or_else(|| RequestError::invalid("after", "is the id of nothing in this list"))?;
        let id = |stored: Option<&S>| stored.map(|stored| id(stored).to_owned());
        let (first_id, last_id) = (id(page.data.first()), id(page.data.last()));
        let data = page.data.into_iter().map(answer).collect();
        Ok(ListPage { object: "list", data, first_id, last_id, has_more: page.has_more })
    }
}

/// An id as we make them: a prefix and 32 hexadecimal digits. Anything else is the id of nothing, and is not looked up.
pub fn id(what: &'static str, prefix: &str, path: Result<Path<String>, PathRejection>) -> Result<String, RequestError> {
    let id = path.map(|Path(id)| id).unwrap_or_default();
    let digits = id.strip_prefix(prefix).unwrap_or_default();
    if digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(id);
    }
    Err(missing(what, &id))
}

pub fn missing(what: &'static str, id: &str) -> RequestError {
    const SHOWN: usize = 80;
    RequestError::NotFound { what, id: id.chars().filter(|c| !c.is_control()).take(SHOWN).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_and_never_paths() {
        let checked = |text: &str| id("file", "file-", Ok(Path(text.to_owned())));
        let good = format!("file-{}", "0a".repeat(16));
        assert_eq!(checked(&good), Ok(good.clone()));
        let long = "x".repeat(8_192);
        for bad in ["", "file-", "../../etc/passwd", "file-..%2f", "/etc/passwd", "file-\0", "FILE-", &long, &good[1..]]
        {
            assert!(
                matches!(checked(bad), Err(RequestError::NotFound { what: "file", id }) if id.len() <= 80),
                "{bad}"
            );
        }
        assert!(checked(&good.to_uppercase()).is_err() && checked(&format!("{good}0")).is_err());
    }
}
