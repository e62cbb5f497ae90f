//! A configuration file as flat settings: dotted names (TOML tables), their values, and where each came from.
//!
//! Knows nothing of which settings exist; `reader` does.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a setting came from, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    Line(usize),
    Argument,
    Environment(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Argument => f.write_str("--set"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// All settings that were given, by dotted name.
#[derive(Default, Debug)]
pub struct Settings {
    pub values: BTreeMap<String, (Value, Origin)>,
}

impl Settings {
    /// Reads a file's text. All syntax mistakes are reported, each with its line.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let place = |e: &toml::de::Error| e.span().map_or(1, |s| line_of(text, s.start));
            return Err(errors.iter().map(|e| format!("line {}: {}", place(e), e.message())).collect());
        }
        let mut settings = Self::default();
        settings.flatten(text, "", table.get_ref());
        Ok(settings)
    }

    fn flatten(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name =
                if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
            match value.get_ref() {
                DeValue::Table(inner) => self.flatten(text, &name, inner),
                _ => {
                    let origin = Origin::Line(line_of(text, key.span().start));
                    self.values.insert(name, (to_json(value), origin));
                }
            }
        }
    }

    /// Takes `section.key=value` from the command line; the value is TOML, or a plain string.
    pub fn set_argument(&mut self, assignment: &str) -> Result<(), String> {
        let Some((name, text)) = assignment.split_once('=') else {
            return Err(format!("--set {assignment}: section.key=value is expected"));
        };
        self.values.insert(name.trim().to_owned(), (plain_or_toml(text), Origin::Argument));
        Ok(())
    }

    /// Takes a value from an environment variable.
    pub fn set_environment(&mut self, name: &str, variable: &str, text: &str) {
        let origin = Origin::Environment(variable.to_owned());
        self.values.insert(name.to_owned(), (Value::String(text.to_owned()), origin));
    }
}

fn plain_or_toml(text: &str) -> Value {
    match DeValue::parse(text.trim()) {
        Ok(value) => to_json(&value),
        Err(_) => Value::String(text.to_owned()),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

fn to_json(value: &Spanned<DeValue<'_>>) -> Value {
    match value.get_ref() {
        DeValue::String(s) => Value::String(s.to_string()),
        DeValue::Integer(i) => {
            i64::from_str_radix(i.as_str(), i.radix()).map_or_else(|_| Value::String(i.to_string()), Value::from)
        }
        DeValue::Float(x) => x.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(d) => Value::String(d.to_string()),
        DeValue::Array(a) => Value::Array(a.iter().map(to_json).collect()),
        DeValue::Table(t) => Value::Object(t.iter().map(|(k, v)| (k.get_ref().to_string(), to_json(v))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_dotted_keys_are_the_same() {
        let text = "[a]\nb.c = 1\n\n[a.d]\ne = [\"x\"]\n";
        let settings = Settings::parse(text).expect("valid");
        assert_eq!(settings.values["a.b.c"], (Value::from(1), Origin::Line(2)));
        assert_eq!(settings.values["a.d.e"], (serde_json::json!(["x"]), Origin::Line(5)));
    }

    #[test]
    fn a_syntax_mistake_names_its_line() {
        let errors = Settings::parse("a = 1\nb = = 2\n").expect_err("not TOML");
        assert!(errors[0].starts_with("line 2: "), "{errors:?}");
    }

    #[test]
    fn arguments_win_and_may_be_plain_text() {
        let mut settings = Settings::parse("a.b = 1").expect("valid");
        settings.set_argument("a.b=2").expect("valid");
        settings.set_argument("a.c=s3://bucket/x").expect("valid");
        assert_eq!(settings.values["a.b"], (Value::from(2), Origin::Argument));
        assert_eq!(settings.values["a.c"].0, Value::from("s3://bucket/x"));
        assert!(settings.set_argument("nonsense").is_err());
    }
}
