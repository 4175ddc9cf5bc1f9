//! What a chat may call: `tools`, `tool_choice`, `parallel_tool_calls`, and what they were before.

use serde_json::{Map, Value};

use super::params::{Fields, wrong};
use forebay_core::request::RequestError;
use forebay_text::Tools;

const MAX_TOOLS: usize = 128;
/// Of all definitions together, as JSON.
const MAX_BYTES: usize = 1 << 20;
const MAX_NAME: usize = 64;

/// `tool_choice`, where the request has tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses, or there is nothing to choose from.
    Auto,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// The tools that the template is told of, and what the client demands of the answer. With `tool_choice` none, or without
/// tools, there are none.
pub fn take_tools(fields: &mut Fields) -> Result<(Option<Tools>, ToolChoice), RequestError> {
    for (old, new) in [("functions", "tools"), ("function_call", "tool_choice")] {
        let asks =
            |value: &Value| !matches!(value.as_str(), Some("none" | "auto")) && *value != Value::Array(Vec::new());
        if fields.take(old).is_some_and(|value| asks(&value)) {
            return Err(RequestError::Unsupported { param: old.into(), message: format!("use {new}") });
        }
    }
    let list = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("tools", "a list", &other)),
    };
    let parallel = fields.optional_flag("parallel_tool_calls")?.unwrap_or(true);
    let choice = fields.take("tool_choice");
    if list.len() > MAX_TOOLS {
        let message = format!("has {} entries, at most {MAX_TOOLS} are allowed", list.len());
        return Err(RequestError::invalid("tools", message));
    }
    let mut names: Vec<String> = Vec::with_capacity(list.len());
    let mut strict = false;
    for (index, tool) in list.iter().enumerate() {
        let name = check_tool(index, tool)?;
        fields.absorb_unknown("tools", tool, &["type", "function"]);
        let function = &tool["function"];
        fields.absorb_unknown("tools.function", function, &["name", "description", "parameters", "strict"]);
        strict |= function["strict"] == Value::Bool(true);
        if names.contains(&name) {
            let message = format!("'{name}' is the name of an earlier tool");
            return Err(RequestError::invalid(format!("tools[{index}].function.name"), message));
        }
        names.push(name);
    }
    if let Some(choice) = &choice {
        fields.absorb_unknown("tool_choice", choice, &["type", "function"]);
        fields.absorb_unknown("tool_choice.function", &choice["function"], &["name"]);
    }
    let choice = read_choice(choice, &names)?;
    if strict && choice == Some(ToolChoice::Auto) {
        // A model that chooses by itself is not held to a schema.
        fields.ignore("tools.function.strict");
    }
    let Some(choice) = choice.filter(|_| !names.is_empty()) else { return Ok((None, ToolChoice::Auto)) };
    let json = Value::Array(list).to_string();
    if json.len() > MAX_BYTES {
        let message = format!("have {} bytes, at most {MAX_BYTES} are allowed", json.len());
        return Err(RequestError::invalid("tools", message));
    }
    Ok((Some(Tools { json, names, only_first: !parallel }), choice))
}

/// `None` where nothing may be called.
fn read_choice(choice: Option<Value>, names: &[String]) -> Result<Option<ToolChoice>, RequestError> {
    const PARAM: &str = "tool_choice";
    let Some(choice) = choice else { return Ok(Some(ToolChoice::Auto)) };
    let demanded = match (choice.as_str(), choice["type"].as_str()) {
        (Some("none"), _) => return Ok(None),
        (Some("auto"), _) => return Ok(Some(ToolChoice::Auto)),
        (Some("required"), _) => ToolChoice::Required,
        (None, Some("function")) => match choice["function"]["name"].as_str() {
            Some(name) => ToolChoice::Named(name.to_owned()),
            None => return Err(RequestError::invalid("tool_choice.function.name", "must be a string")),
        },
        (None, Some("allowed_tools" | "custom")) => {
            let message = "only none, auto, required and {\"type\": \"function\"} are known".to_owned();
            return Err(RequestError::Unsupported { param: PARAM.into(), message });
        }
        _ => {
            let message = "must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}";
            return Err(RequestError::invalid(PARAM, message));
        }
    };
    match &demanded {
        _ if names.is_empty() => Err(RequestError::invalid(PARAM, "is only allowed when there are tools")),
        ToolChoice::Named(name) if !names.contains(name) => {
            let shown: String = name.chars().take(MAX_NAME).collect();
            Err(RequestError::invalid(PARAM, format!("there is no tool '{shown}'")))
        }
        _ => Ok(Some(demanded)),
    }
}

/// The tool's name, if all of its definition is sound.
fn check_tool(index: usize, tool: &Value) -> Result<String, RequestError> {
    let at = |name: &str| format!("tools[{index}]{name}");
    let Value::Object(object) = tool else { return Err(wrong(&at(""), "an object", tool)) };
    match object.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        Some(Value::String(_)) => {
            let message = "only functions can be called".to_owned();
            return Err(RequestError::Unsupported { param: at(".type"), message });
        }
        Some(other) => return Err(wrong(&at(".type"), "function", other)),
        None => return Err(RequestError::invalid(at(".type"), "is required")),
    }
    let function = match object.get("function") {
        Some(Value::Object(function)) => function,
        Some(other) => return Err(wrong(&at(".function"), "an object", other)),
        None => return Err(RequestError::invalid(at(".function"), "is required")),
    };
    let name = match function.get("name") {
        Some(Value::String(name)) => name,
        Some(other) => return Err(wrong(&at(".function.name"), "a string", other)),
        None => return Err(RequestError::invalid(at(".function.name"), "is required")),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        let message = format!("must have 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -");
        return Err(RequestError::invalid(at(".function.name"), message));
    }
    match function.get("description") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(other) => return Err(wrong(&at(".function.description"), "a string", other)),
    }
    match function.get("parameters") {
        None | Some(Value::Null) => {}
        Some(Value::Object(schema)) => check_parameters(&at(".function.parameters"), schema)?,
        Some(other) => return Err(wrong(&at(".function.parameters"), "an object", other)),
    }
    match function.get("strict") {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(other) => return Err(wrong(&at(".function.strict"), "a boolean", other)),
    }
    Ok(name.clone())
}

/// Arguments are objects; inside, only what no JSON schema can be is refused: a model reads the rest like any other text.
fn check_parameters(param: &str, schema: &Map<String, Value>) -> Result<(), RequestError> {
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(wrong(&format!("{param}.type"), "object", other)),
    }
    check_schema(param, schema)
}

/// As deep as the body, whose depth the JSON reader bounds.
fn check_schema(param: &str, schema: &Map<String, Value>) -> Result<(), RequestError> {
    const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
    let is_type = |value: &Value| value.as_str().is_some_and(|kind| TYPES.contains(&kind));
    for (key, value) in schema {
        let at = || {
            let shown: String = key.chars().take(MAX_NAME).collect();
            format!("{param}.{shown}")
        };
        match key.as_str() {
            "type" if !is_type(value) && !value.as_array().is_some_and(|kinds| kinds.iter().all(is_type)) => {
                return Err(wrong(&at(), "a type of JSON schema or a list of them", value));
            }
            "pattern" if !value.is_string() => return Err(wrong(&at(), "a string", value)),
            "enum" if !value.is_array() => return Err(wrong(&at(), "a list", value)),
            "required" if !value.as_array().is_some_and(|names| names.iter().all(Value::is_string)) => {
                return Err(wrong(&at(), "a list of strings", value));
            }
            "properties" => {
                let Value::Object(properties) = value else { return Err(wrong(&at(), "an object", value)) };
                for (name, inner) in properties {
                    let shown: String = name.chars().take(MAX_NAME).collect();
                    check_inner(&format!("{}.{shown}", at()), inner)?;
                }
            }
            "items" | "additionalProperties" | "not" if !value.is_array() => check_inner(&at(), value)?,
            "anyOf" | "oneOf" | "allOf" => {
                let Value::Array(list) = value else { return Err(wrong(&at(), "a list", value)) };
                list.iter().try_for_each(|inner| check_inner(&at(), inner))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_inner(param: &str, schema: &Value) -> Result<(), RequestError> {
    match schema {
        Value::Object(schema) => check_schema(param, schema),
        Value::Bool(_) => Ok(()),
        other => Err(wrong(param, "a schema", other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}})
    }

    fn taken(body: Value) -> Result<(Option<Tools>, ToolChoice), RequestError> {
        take_tools(&mut Fields::new(body.as_object().unwrap().clone()))
    }

    fn refused(body: Value) -> String {
        match taken(body.clone()) {
            Err(RequestError::InvalidValue { param, .. } | RequestError::Unsupported { param, .. }) => param,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn tools_are_kept_as_they_were_written() {
        let (tools, choice) = taken(json!({"tools": [tool("f"), tool("g-2_X")]})).unwrap();
        let tools = tools.unwrap();
        assert_eq!((tools.names, tools.only_first), (vec!["f".to_owned(), "g-2_X".to_owned()], false));
        assert_eq!(tools.json, json!([tool("f"), tool("g-2_X")]).to_string());
        assert_eq!(choice, ToolChoice::Auto);
        let (tools, _) = taken(json!({"tools": [tool("f")], "parallel_tool_calls": false})).unwrap();
        assert!(tools.unwrap().only_first);
    }

    #[test]
    fn choices() {
        let chosen = |choice: Value| taken(json!({"tools": [tool("f")], "tool_choice": choice}));
        assert_eq!(chosen(json!("none")), Ok((None, ToolChoice::Auto)));
        assert_eq!(chosen(json!("required")).unwrap().1, ToolChoice::Required);
        let named = json!({"type": "function", "function": {"name": "f"}});
        assert_eq!(chosen(named).unwrap().1, ToolChoice::Named("f".into()));
        for body in [json!({}), json!({"tools": []}), json!({"tool_choice": "auto"}), json!({"functions": []})] {
            assert_eq!(taken(body), Ok((None, ToolChoice::Auto)));
        }
    }

    #[test]
    fn bad_tools_name_the_place() {
        let with = |place: &str, value: Value| {
            let mut tool = tool("f");
            *tool.pointer_mut(place).unwrap() = value;
            json!({"tools": [tool]})
        };
        let schema = |schema: Value| with("/function/parameters", schema);
        for (body, param) in [
            (json!({"tools": 5}), "tools"),
            (json!({"tools": [5]}), "tools[0]"),
            (json!({"tools": [{}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name"),
            (json!({"tools": vec![tool("f"); 129]}), "tools"),
            (json!({"tools": [tool("f"), tool("f")]}), "tools[1].function.name"),
            (json!({"tools": [tool(&"a".repeat(65))]}), "tools[0].function.name"),
            (json!({"tools": [tool("a b")]}), "tools[0].function.name"),
            (json!({"tools": [tool("")]}), "tools[0].function.name"),
            (with("/type", json!("web_search")), "tools[0].type"),
            (with("/function/name", json!(5)), "tools[0].function.name"),
            (schema(json!([])), "tools[0].function.parameters"),
            (schema(json!({"type": "string"})), "tools[0].function.parameters.type"),
            (schema(json!({"properties": []})), "tools[0].function.parameters.properties"),
            (schema(json!({"properties": {"a": {"type": "text"}}})), "tools[0].function.parameters.properties.a.type"),
            (schema(json!({"properties": {"a": 5}})), "tools[0].function.parameters.properties.a"),
            (
                schema(json!({"properties": {"a": {"items": {"pattern": 5}}}})),
                "tools[0].function.parameters.properties.a.items.pattern",
            ),
            (schema(json!({"required": "a"})), "tools[0].function.parameters.required"),
            (json!({"tools": [tool("f")], "tool_choice": "always"}), "tool_choice"),
            (json!({"tools": [tool("f")], "tool_choice": {"type": "function"}}), "tool_choice.function.name"),
            (
                json!({"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
                "tool_choice",
            ),
            (json!({"tools": [tool("f")], "tool_choice": {"type": "allowed_tools"}}), "tool_choice"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tools": [tool("f")], "parallel_tool_calls": 1}), "parallel_tool_calls"),
            (json!({"functions": [{"name": "f"}]}), "functions"),
            (json!({"function_call": {"name": "f"}}), "function_call"),
        ] {
            assert_eq!(refused(body.clone()), param, "{body}");
        }
        let large = json!({"type": "object", "description": "x".repeat(MAX_BYTES)});
        assert_eq!(refused(schema(large)), "tools");
    }

    #[test]
    fn what_clients_really_send_passes() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
            "properties": {
                "type": {"type": ["string", "null"], "maxLength": 524_288, "pattern": "^a"},
                "tree": {"$ref": "#/$defs/tree"}, "any": true, "list": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {}]}},
            },
            "required": [], "$defs": {"tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}},
        });
        let strict = json!({"type": "function", "function": {"name": "f", "parameters": schema, "strict": true}});
        let mut fields = Fields::new(json!({"tools": [strict]}).as_object().unwrap().clone());
        assert!(take_tools(&mut fields).unwrap().0.is_some());
        assert_eq!(fields.finish(false), Ok(vec!["tools.function.strict".to_owned()]));
        assert!(
            taken(json!({"tools": [{"type": "function", "function": {"name": "f", "description": null}}]})).is_ok()
        );
    }
}
