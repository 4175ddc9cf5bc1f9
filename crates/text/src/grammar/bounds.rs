//! What is refused unread: specs whose compilation would take long or deep, by cheap looks at them.
//!
//! The compiler has limits of its own, on the work of its lexer and the size of its grammar. These are for what they do not
//! count, each measured: seconds of compiling, or recursion, within the size that clients may send.

use serde_json::Value;

use super::limits::Limits;
use super::{GrammarError, GrammarSpec};

/// Of one regular expression. 16 KiB of `a?` take half a second, and the time grows with the square.
const MOST_PATTERN_BYTES: usize = 8 << 10;
/// Of all of a schema.
const MOST_PATTERNS_BYTES: usize = 64 << 10;
/// Of a grammar in a notation of its own, whose expressions are not told apart here.
const MOST_TEXT_BYTES: usize = 32 << 10;
/// Below one `allOf`: their intersection is looked at after each; 20 take a second.
const MOST_PATTERNS_AT_ONCE: usize = 16;
/// Optional keys of one object stay possible all at the same time, four ways each, in a row of the parser.
const MOST_OPTIONAL_KEYS: usize = 499;
/// The lexer counts remainders.
const LARGEST_DIVISOR: u64 = 20_000;
/// The least common multiple of all divisors of a schema is computed in integers.
const LARGEST_PRODUCT: u64 = 1 << 53;

pub(super) fn check(spec: &GrammarSpec, limits: &Limits) -> Result<(), GrammarError> {
    let (bytes, limit) = (spec.bytes(), limits.bytes);
    if bytes > limit {
        return Err(GrammarError::TooLarge { bytes, limit });
    }
    match spec {
        GrammarSpec::Json { schema, .. } => check_schema(schema),
        GrammarSpec::Calls { tools, .. } => tools.iter().try_for_each(|tool| check_schema(&tool.parameters)),
        GrammarSpec::Choice(_) => Ok(()),
        GrammarSpec::Regex(text) => check_text(text, MOST_PATTERN_BYTES, limits.depth),
        GrammarSpec::Lark(text) | GrammarSpec::Gbnf(text) => check_text(text, MOST_TEXT_BYTES, limits.depth),
    }
}

/// Compilers descend into brackets, and a stack has an end. Brackets in strings count too: nobody writes as many.
fn check_text(text: &str, limit: usize, depth: usize) -> Result<(), GrammarError> {
    if text.len() > limit {
        return Err(GrammarError::TooLarge { bytes: text.len(), limit });
    }
    let mut level = 0_usize;
    let too_deep = text.bytes().any(|byte| {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        level > depth
    });
    if too_deep { Err(GrammarError::TooDeep { limit: depth }) } else { Ok(()) }
}

/// What is no JSON is found later.
fn check_schema(text: &str) -> Result<(), GrammarError> {
    let Ok(schema) = serde_json::from_str(text) else { return Ok(()) };
    let mut costs = Costs::default();
    costs.add(&schema, None)
}

#[derive(Default)]
struct Costs {
    pattern_bytes: usize,
    divisors: Vec<u64>,
}

impl Costs {
    /// `at_once` counts the patterns below the `allOf` that this stands in.
    fn add(&mut self, schema: &Value, mut at_once: Option<&mut usize>) -> Result<(), GrammarError> {
        let map = match schema {
            Value::Object(map) => map,
            Value::Array(list) => return list.iter().try_for_each(|value| self.add(value, at_once.as_deref_mut())),
            _ => return Ok(()),
        };
        check_keys(schema)?;
        for (key, value) in map {
            match (key.as_str(), value) {
                ("pattern" | "format", Value::String(text)) => self.pattern(text, at_once.as_deref_mut())?,
                ("patternProperties", Value::Object(patterns)) => {
                    patterns.keys().try_for_each(|text| self.pattern(text, at_once.as_deref_mut()))?;
                }
                ("multipleOf", Value::Number(number)) => self.divisor(&number.to_string())?,
                ("allOf", list) if at_once.is_none() => {
                    self.add(list, Some(&mut 0))?;
                    continue;
                }
                // Values, not schemas.
                ("enum" | "const" | "default" | "examples", _) => continue,
                _ => {}
            }
            self.add(value, at_once.as_deref_mut())?;
        }
        Ok(())
    }

    fn pattern(&mut self, text: &str, at_once: Option<&mut usize>) -> Result<(), GrammarError> {
        self.pattern_bytes += text.len();
        for (bytes, limit) in [(text.len(), MOST_PATTERN_BYTES), (self.pattern_bytes, MOST_PATTERNS_BYTES)] {
            if bytes > limit {
                return Err(costly(format!("has patterns of {bytes} bytes, at most {limit} are allowed")));
            }
        }
        match at_once {
            Some(count) if *count == MOST_PATTERNS_AT_ONCE => {
                Err(costly(format!("has an allOf with more than {MOST_PATTERNS_AT_ONCE} patterns and formats")))
            }
            Some(count) => {
                *count += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// `text` is a number of JSON; its digits are what the lexer counts to.
    fn divisor(&mut self, text: &str) -> Result<(), GrammarError> {
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        let divisor = digits.parse::<u64>().ok().filter(|divisor| *divisor <= LARGEST_DIVISOR);
        let Some(divisor) = divisor else {
            let shown: String = text.chars().take(40).collect();
            return Err(costly(format!(
                "has multipleOf {shown}, at most {LARGEST_DIVISOR} without its point is allowed"
            )));
        };
        if !self.divisors.contains(&divisor) {
            self.divisors.push(divisor);
        }
        let product = self.divisors.iter().try_fold(1_u64, |product, divisor| product.checked_mul((*divisor).max(1)));
        match product.filter(|product| *product <= LARGEST_PRODUCT) {
            Some(_) => Ok(()),
            None => Err(costly("has too many different values of multipleOf".into())),
        }
    }
}

fn check_keys(schema: &Value) -> Result<(), GrammarError> {
    let keys = schema["properties"].as_object().map_or(0, serde_json::Map::len);
    let required = schema["required"].as_array().map_or(0, Vec::len);
    if keys.saturating_sub(required) > MOST_OPTIONAL_KEYS {
        return Err(costly(format!("has an object with more than {MOST_OPTIONAL_KEYS} optional keys")));
    }
    Ok(())
}

fn costly(message: String) -> GrammarError {
    GrammarError::TooComplex(message)
}
