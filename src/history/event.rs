//! One event of a history, and the line that it is written as. What the fields mean is in `FORMAT.md`.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::Offset;

/// Why a history cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Broken {
    /// Which event it is, counted from 0 in the order in which the judge took them.
    pub event: usize,
    pub what: String,
}

/// Whether an operation begins, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    Invoke,
    Ok,
    /// It certainly did not happen.
    Fail,
    /// It may have happened.
    Info,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    Send,
    Poll,
    Assign,
    End,
    Start,
    Digest,
    Note,
}

impl Function {
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Poll => "poll",
            Self::Assign => "assign",
            Self::End => "end",
            Self::Start => "start",
            Self::Digest => "digest",
            Self::Note => "note",
        }
    }
}

/// One record that a poll returned: `[offset, value]` or `[offset, value, crc]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    pub value: u64,
    pub crc: Option<u32>,
}

impl Record {
    pub fn new(offset: Offset, value: u64) -> Self {
        Self { offset, value, crc: None }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.crc {
            Some(crc) => (self.offset, self.value, crc).serialize(serializer),
            None => (self.offset, self.value).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record: [offset, value] or [offset, value, crc]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Record, A::Error> {
                let offset = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let value = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                let crc = parts.next_element::<Option<u32>>()?.flatten();
                Ok(Record { offset, value, crc })
            }
        }
        deserializer.deserialize_seq(Parts)
    }
}

/// One line of a history. Which of the optional fields it needs depends on `f` and `type`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub time_ns: u64,
    pub process: String,
    pub op: u64,
    #[serde(rename = "type")]
    pub event_type: EventType,
    pub f: Function,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<Record>>,
    #[serde(default, rename = "final", skip_serializing_if = "Option::is_none")]
    pub is_final: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Event {
    /// An event with nothing but what every line has; the rest is set with `..Event::new(...)`.
    pub fn new(time_ns: u64, process: &str, op: u64, event_type: EventType, f: Function) -> Self {
        Self {
            time_ns,
            process: process.to_owned(),
            op,
            event_type,
            f,
            key: None,
            value: None,
            idempotent: None,
            offset: None,
            from: None,
            records: None,
            is_final: None,
            proxy: None,
            position: None,
            digest: None,
            error: None,
        }
    }

    /// The event that a line holds.
    pub fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| {
            let text = error.to_string();
            // Its line number is always 1; the place in the line is its column.
            text.replace(" at line 1 column ", " at column ")
        })
    }

    /// The line, without its line break.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are always JSON")
    }
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Named {
        Text(String),
        Number(i64),
    }
    Ok(Option::<Named>::deserialize(deserializer)?.map(|named| match named {
        Named::Text(text) => text,
        Named::Number(number) => number.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_an_event_and_the_same_line_again() {
        let lines = [
            r#"{"time_ns":1,"process":"p1","op":3,"type":"invoke","f":"send","key":"t-0","value":18446744073709551615,"idempotent":false,"proxy":"a"}"#,
            r#"{"time_ns":2,"process":"p1","op":3,"type":"ok","f":"send","offset":7}"#,
            r#"{"time_ns":3,"process":"c","op":0,"type":"ok","f":"poll","key":"t-0","records":[[7,1],[8,2,4294967295]],"final":true}"#,
            r#"{"time_ns":4,"process":"d","op":0,"type":"ok","f":"digest","position":9,"digest":"ab"}"#,
            r#"{"time_ns":5,"process":"n","op":0,"type":"ok","f":"note","error":"kill -9"}"#,
        ];
        for line in lines {
            assert_eq!(Event::read(line).expect("a good line").to_line(), line);
        }
    }

    #[test]
    fn what_is_not_known_is_null_or_absent_and_a_proxy_may_be_a_number() {
        let line = r#"{"time_ns":2,"process":"p","op":3,"type":"ok","f":"poll","from":null,"final":null,"proxy":3,"x":{},"records":[[1,2,null]]}"#;
        let event = Event::read(line).expect("a good line");
        let proxy = Some("3".to_owned());
        let records = Some(vec![Record::new(1, 2)]);
        assert_eq!(event, Event { proxy, records, ..Event::new(2, "p", 3, EventType::Ok, Function::Poll) });
    }

    #[test]
    fn a_line_that_cannot_be_read_says_where() {
        let cases = [
            ("", "EOF"),
            ("{", "EOF"),
            (r#"{"time_ns":2,"process":"p","op":3,"type":"ok","f":"txn"}"#, "unknown variant `txn`"),
            (r#"{"time_ns":2,"process":"p","op":3,"type":"maybe","f":"send"}"#, "unknown variant `maybe`"),
            (r#"{"time_ns":-2,"process":"p","op":3,"type":"ok","f":"send"}"#, "expected u64 at column"),
            (r#"{"time_ns":2,"process":"p","type":"ok","f":"send"}"#, "missing field `op`"),
            (r#"{"time_ns":2,"process":"p","op":3,"type":"ok","f":"poll","records":[[1]]}"#, "invalid length 1"),
            (r#"{"time_ns":2,"process":"p","op":3,"type":"ok","f":"poll","records":[[1,2,3,4]]}"#, "trailing"),
        ];
        for (line, expected) in cases {
            let error = Event::read(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
