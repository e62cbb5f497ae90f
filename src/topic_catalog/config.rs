//! The settings of a diskless topic: what is stripped from requests, what is refused, and what is read back from the
//! shadow topic.

use crate::diskless_coordinator::command::TopicConfig;
use crate::types::ErrorCode;

/// The setting that makes a topic diskless. Upstream does not know it.
pub const DISKLESS_ENABLE: &str = "diskless.enable";

/// A transaction marker takes 78 bytes; a shadow topic that refuses it hangs the transaction until its coordinator
/// restarts.
const LEAST_MAX_MESSAGE_BYTES: i64 = 78;
/// Markers pass the same timestamp checks as records.
const LEAST_TIMESTAMP_BOUND_MS: i64 = 60_000;

/// Why a setting is refused, with what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    pub fn config(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::InvalidConfig, message: message.into() }
    }
}

/// The value of `diskless.enable`.
pub fn parse_enable(value: Option<&str>) -> Result<bool, Refusal> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        other => Err(Refusal::config(format!(
            "{DISKLESS_ENABLE} must be true or false, not {:?}",
            other.unwrap_or_default()
        ))),
    }
}

/// Whether a setting may stand on a diskless topic.
pub fn check_setting(name: &str, value: Option<&str>) -> Result<(), Refusal> {
    let number = || value.and_then(|v| v.trim().parse::<i64>().ok());
    match name {
        "cleanup.policy" if value.is_some_and(|v| v.split(',').any(|p| p.trim() == "compact")) => Err(Refusal::config(
            "cleanup.policy=compact is not possible on a diskless topic: use delete, or create the topic without diskless.enable",
        )),
        "max.message.bytes" if number().is_some_and(|n| n < LEAST_MAX_MESSAGE_BYTES) => Err(Refusal::config(format!(
            "max.message.bytes must be at least {LEAST_MAX_MESSAGE_BYTES} on a diskless topic: a smaller value would hang transactions"
        ))),
        "message.timestamp.before.max.ms" | "message.timestamp.after.max.ms"
            if number().is_some_and(|n| n < LEAST_TIMESTAMP_BOUND_MS) =>
        {
            Err(Refusal::config(format!(
                "{name} must be at least {LEAST_TIMESTAMP_BOUND_MS} on a diskless topic: a smaller value would hang transactions"
            )))
        }
        _ => Ok(()),
    }
}

/// Reads what decides something here from a shadow topic's settings. Settings that are absent have Kafka's defaults.
pub fn topic_config<'a>(version: u64, settings: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> TopicConfig {
    let mut config = TopicConfig { version, ..TopicConfig::default() };
    for (name, value) in settings {
        let Some(value) = value else { continue };
        match name {
            "message.timestamp.type" => config.log_append_time = value == "LogAppendTime",
            "max.message.bytes" => set(&mut config.max_message_bytes, value),
            "message.timestamp.before.max.ms" => set(&mut config.timestamp_before_max_ms, value),
            "message.timestamp.after.max.ms" => set(&mut config.timestamp_after_max_ms, value),
            "retention.ms" => set(&mut config.retention_ms, value),
            "retention.bytes" => set(&mut config.retention_bytes, value),
            _ => {}
        }
    }
    config
}

fn set<T: std::str::FromStr>(field: &mut T, value: &str) {
    if let Ok(value) = value.parse() {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_break_a_diskless_topic_are_refused_with_advice() {
        for (name, value) in [
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "delete, compact"),
            ("max.message.bytes", "77"),
            ("message.timestamp.after.max.ms", "59999"),
        ] {
            let refusal = check_setting(name, Some(value)).expect_err(name);
            assert_eq!(refusal.code, ErrorCode::InvalidConfig);
            assert!(refusal.message.contains("diskless"), "{}", refusal.message);
        }
        for (name, value) in
            [("cleanup.policy", "delete"), ("max.message.bytes", "78"), ("retention.ms", "1"), ("x", "compact")]
        {
            assert_eq!(check_setting(name, Some(value)), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_shadow_topic_s_settings_are_read() {
        let given = [
            ("message.timestamp.type", Some("LogAppendTime")),
            ("retention.ms", Some("-1")),
            ("segment.bytes", Some("1")),
            ("max.message.bytes", Some("2000000")),
            ("retention.bytes", None),
        ];
        let config = topic_config(7, given.into_iter());
        let expected = TopicConfig {
            version: 7,
            log_append_time: true,
            retention_ms: -1,
            max_message_bytes: 2_000_000,
            ..TopicConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn the_flag_takes_true_and_false_only() {
        assert_eq!(parse_enable(Some("TRUE")), Ok(true));
        assert_eq!(parse_enable(Some("false")), Ok(false));
        assert!(parse_enable(Some("yes")).is_err());
        assert!(parse_enable(None).is_err());
    }
}
