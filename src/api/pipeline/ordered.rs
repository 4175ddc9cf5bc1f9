//! A JSON object whose names are data, in an order that means something.

use serde::{Serialize, Serializer};

/// Names and values in the order in which they came.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered<V>(Vec<(String, V)>);

impl<V> Default for Ordered<V> {
    fn default() -> Ordered<V> {
        Ordered(Vec::new())
    }
}

impl<V> Ordered<V> {
    /// The first value under a name stays.
    pub fn insert_new(&mut self, name: String, value: V) {
        if self.0.iter().all(|(known, _)| *known != name) {
            self.0.push((name, value));
        }
    }
}

impl<V> FromIterator<(String, V)> for Ordered<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(pairs: I) -> Ordered<V> {
        let mut all = Ordered::default();
        pairs.into_iter().for_each(|(name, value)| all.insert_new(name, value));
        all
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order_and_their_first_value() {
        let pairs = [("b", 1), ("a", 2), ("b", 3)].map(|(name, value)| (name.to_owned(), value));
        let all: Ordered<i32> = pairs.into_iter().collect();
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"{"b":1,"a":2}"#);
    }
}
