//! Typed access to flat settings that collects every mistake instead of stopping at the first.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::Value;

use super::file::Settings;

/// Reads settings one by one; `finish` reports all mistakes together, unknown names included.
#[derive(Debug)]
pub struct Reader {
    settings: Settings,
    known: BTreeSet<String>,
    prefixes: Vec<String>,
    errors: Vec<String>,
}

impl Reader {
    pub fn new(settings: Settings) -> Self {
        Self { settings, known: BTreeSet::new(), prefixes: Vec::new(), errors: Vec::new() }
    }

    /// Records a mistake that concerns a setting.
    pub fn error(&mut self, name: &str, problem: &str) {
        let place = self.settings.values.get(name).map(|(_, origin)| format!("{origin}: ")).unwrap_or_default();
        self.errors.push(format!("{place}{name} {problem}"));
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.known.insert(name.to_owned());
        self.settings.values.get(name).map(|(value, _)| value.clone())
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.settings.values.contains_key(name)
    }

    pub fn string(&mut self, name: &str, default: &str) -> String {
        self.optional_string(name).unwrap_or_else(|| default.to_owned())
    }

    pub fn optional_string(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            other => {
                self.error(name, &format!("must be a string in quotes, not {other}"));
                None
            }
        }
    }

    /// A string without which nothing runs.
    pub fn required_string(&mut self, name: &str, what: &str) -> String {
        match self.optional_string(name) {
            Some(text) if !text.is_empty() => text,
            Some(_) => {
                self.error(name, &format!("is empty: set it to {what}"));
                String::new()
            }
            None => {
                if !self.is_set(name) {
                    self.error(name, &format!("is not set: set it to {what}"));
                }
                String::new()
            }
        }
    }

    pub fn integer(&mut self, name: &str, default: i64, least: i64, most: i64) -> i64 {
        let value = match self.take(name) {
            None => return default,
            Some(value) => value,
        };
        match value.as_i64() {
            Some(n) if (least..=most).contains(&n) => n,
            _ => {
                self.error(name, &format!("must be a whole number from {least} to {most}, not {value}"));
                default
            }
        }
    }

    pub fn boolean(&mut self, name: &str, default: bool) -> bool {
        match self.take(name) {
            None => default,
            Some(Value::Bool(b)) => b,
            Some(other) => {
                self.error(name, &format!("must be true or false, not {other}"));
                default
            }
        }
    }

    /// A string that the type can read.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, name: &str) -> Option<T> {
        let text = self.optional_string(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(problem) => {
                self.error(name, &format!("is not valid: {problem}"));
                None
            }
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &str, default: T, choices: &[(&str, T)]) -> T {
        let Some(text) = self.optional_string(name) else { return default };
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        self.error(name, &format!("must be one of {}, not {text:?}", words.join(", ")));
        default
    }

    pub fn strings(&mut self, name: &str) -> Vec<String> {
        let Some(value) = self.take(name) else { return Vec::new() };
        let items = match &value {
            Value::Array(items) => items.iter().map(|i| i.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>(),
            Value::String(text) => Some(text.split(',').map(|s| s.trim().to_owned()).collect()),
            _ => None,
        };
        items.unwrap_or_else(|| {
            self.error(name, &format!("must be a list of strings, not {value}"));
            Vec::new()
        })
    }

    /// All settings below a prefix, as text: for options that are handed on to a library.
    pub fn map(&mut self, prefix: &str) -> Vec<(String, String)> {
        let prefix = format!("{prefix}.");
        self.prefixes.push(prefix.clone());
        let below = self.settings.values.iter().filter_map(|(name, (value, _))| {
            let key = name.strip_prefix(&prefix)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((key.to_owned(), text))
        });
        below.collect()
    }

    /// All mistakes, unknown settings included, in the order of the file.
    pub fn finish(mut self) -> Result<(), Vec<String>> {
        let unknown: Vec<_> = self
            .settings
            .values
            .keys()
            .filter(|name| !self.known.contains(*name) && !self.prefixes.iter().any(|p| name.starts_with(p)))
            .cloned()
            .collect();
        for name in unknown {
            let hint = nearest(&name, &self.known).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
            self.error(&name, &format!("is not a setting{hint}"));
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|e| line_number(e));
        Err(self.errors)
    }
}

fn line_number(error: &str) -> usize {
    let digits = error.strip_prefix("line ").and_then(|rest| rest.split(':').next());
    digits.and_then(|d| d.parse().ok()).unwrap_or(usize::MAX)
}

/// The known name that takes the fewest edits, if few enough to be a slip.
fn nearest(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let scored = known.iter().map(|k| (edits(name, k), k));
    let (distance, best) = scored.min()?;
    (distance <= (name.len() / 3).max(2)).then(|| best.clone())
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let text = "zone = 3\nport = 99999\nkind = \"x\"\nlits = [1]\n";
        let mut reader = Reader::new(Settings::parse(text).expect("valid TOML"));
        reader.string("zone", "");
        reader.integer("port", 1, 0, 65535);
        reader.choice("kind", 1, &[("a", 1), ("b", 2)]);
        reader.strings("list");
        reader.required_string("host", "an address");
        let errors = reader.finish().expect_err("five mistakes");
        assert_eq!(
            errors,
            [
                "line 1: zone must be a string in quotes, not 3",
                "line 2: port must be a whole number from 0 to 65535, not 99999",
                "line 3: kind must be one of \"a\", \"b\", not \"x\"",
                "line 4: lits is not a setting; did you mean list?",
                "host is not set: set it to an address",
            ]
        );
    }
}
