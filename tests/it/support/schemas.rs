//! Schemas as users write them, from a seed: nested objects, enums, references, recursion, patterns, ranges.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

const NAMES: [&str; 24] = [
    "name",
    "id",
    "age",
    "city",
    "kind",
    "tags",
    "size",
    "note",
    "created_at",
    "is_active",
    "price",
    "items",
    "owner",
    "status",
    "e-mail",
    "home address",
    "größe",
    "x",
    "level",
    "parent",
    "children",
    "score",
    "path",
    "country_code",
];
const WORDS: [&str; 12] =
    ["red", "green", "blue", "small", "large", "open", "closed", "fox", "forebay", "A/B", "très", "\"quoted\""];
const PATTERNS: [&str; 8] = [
    "^[A-Z]{2}[0-9]{2,4}$",
    "^[a-z]+(-[a-z]+)*$",
    "^(fox|hare|owl) [0-9]$",
    "^[a-z0-9]{3,8}@[a-z]{2,8}[.](com|org)$",
    "^#[0-9a-f]{6}$",
    "^[^a-z]{4,10}$",
    "^([01][0-9]|2[0-3]):[0-5][0-9]$",
    "^v(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)$",
];
const FORMATS: [&str; 4] = ["date", "uuid", "ipv4", "time"];

/// The schema of a seed; the same for the same seed.
pub fn schema(seed: u64) -> Value {
    let mut maker = Maker { dice: StdRng::seed_from_u64(seed), definitions: Map::new() };
    let mut root = match seed % 8 {
        0 => maker.tree(),
        1 => maker.array(3),
        _ => maker.object(3),
    };
    if !maker.definitions.is_empty() {
        root["$defs"] = Value::Object(maker.definitions);
    }
    root
}

struct Maker {
    dice: StdRng,
    definitions: Map<String, Value>,
}

impl Maker {
    fn one_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.dice.random_range(0..from.len())].clone()
    }

    fn value(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 9 } else { 14 };
        match self.dice.random_range(0..kinds) {
            0 => self.string(),
            1 => json!({"type": "string", "pattern": self.one_of(&PATTERNS)}),
            2 => self.integer(),
            3 => self.number(),
            4 => json!({"type": "boolean"}),
            5 => self.choices(),
            6 => {
                json!({"const": self.one_of(&[json!("fixed"), json!(7), json!(null), json!(true), json!(["a", 1]), json!({"k": -2})])})
            }
            7 => json!({"type": [self.one_of(&["integer", "boolean"]), "null"]}),
            8 => json!({"type": "string", "format": self.one_of(&FORMATS)}),
            9 | 10 => self.object(depth - 1),
            11 => self.array(depth - 1),
            12 => self.reference(depth - 1),
            _ => json!({"anyOf": [self.object(depth - 1), self.string(), {"type": "null"}]}),
        }
    }

    fn string(&mut self) -> Value {
        let least = self.dice.random_range(0..4);
        match self.dice.random_range(0..3) {
            0 => json!({"type": "string"}),
            1 => json!({"type": "string", "maxLength": least + 12}),
            _ => json!({"type": "string", "minLength": least, "maxLength": least + self.dice.random_range(0..30)}),
        }
    }

    fn integer(&mut self) -> Value {
        let least: i64 = self.dice.random_range(-1_000..1_000);
        let span: i64 = self.dice.random_range(0..5_000);
        match self.dice.random_range(0..4) {
            0 => json!({"type": "integer", "minimum": least}),
            1 => json!({"type": "integer", "exclusiveMinimum": least, "exclusiveMaximum": least + span + 2}),
            2 => json!({"type": "integer", "multipleOf": self.one_of(&[2, 5, 10, 25]), "minimum": 0, "maximum": 1_000}),
            _ => json!({"type": "integer", "minimum": least, "maximum": least + span}),
        }
    }

    fn number(&mut self) -> Value {
        let least = f64::from(self.dice.random_range(-400..400)) / 8.0;
        let span = f64::from(self.dice.random_range(1..4_000)) / 8.0;
        match self.dice.random_range(0..3) {
            0 => json!({"type": "number", "minimum": least, "maximum": least + span}),
            1 => json!({"type": "number", "exclusiveMinimum": least, "maximum": least + span}),
            _ => json!({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 99}),
        }
    }

    fn choices(&mut self) -> Value {
        let count = self.dice.random_range(1..6);
        let mut values: Vec<Value> = (0..count).map(|_| json!(self.one_of(&WORDS))).collect();
        values.extend([json!(12), json!(null)].into_iter().take(self.dice.random_range(0..3)));
        values.dedup();
        json!({"enum": values})
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut properties = Map::new();
        for _ in 0..self.dice.random_range(1..6) {
            let name = self.one_of(&NAMES);
            let value = self.value(depth);
            properties.insert(name.into(), value);
        }
        let required: Vec<String> = properties.keys().filter(|_| self.dice.random_bool(0.75)).cloned().collect();
        let mut object = json!({"type": "object", "properties": properties, "required": required});
        match self.dice.random_range(0..6) {
            0 => object["additionalProperties"] = json!({"type": "integer"}),
            1 => {}
            _ => object["additionalProperties"] = false.into(),
        }
        object
    }

    fn array(&mut self, depth: usize) -> Value {
        let least = self.dice.random_range(0..3);
        let most = least + self.dice.random_range(0..4);
        if self.dice.random_bool(0.2) {
            let items = [self.value(0), self.value(0)];
            return json!({"type": "array", "prefixItems": items, "items": false, "minItems": 2});
        }
        json!({"type": "array", "items": self.value(depth), "minItems": least, "maxItems": most})
    }

    fn reference(&mut self, depth: usize) -> Value {
        let name = format!("part{}", self.definitions.len());
        self.definitions.insert(name.clone(), Value::Null);
        let definition = self.object(depth);
        self.definitions.insert(name.clone(), definition);
        json!({"$ref": format!("#/$defs/{name}")})
    }

    /// A schema that contains itself.
    fn tree(&mut self) -> Value {
        let node = json!({
            "type": "object",
            "properties": {
                "value": self.value(0),
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["value", "children"],
            "additionalProperties": false,
        });
        self.definitions.insert("node".into(), node);
        json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "required": ["root"], "additionalProperties": false})
    }
}
