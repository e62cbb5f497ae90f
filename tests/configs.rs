//! The configurations that are shipped, and what is written about settings, against the settings that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;
use sidestream::config::file::Settings;
use sidestream::config::{Config, MetadataMode};

const DISTRIBUTED: &str = include_str!("../proxy-config/distributed.toml");
const README: &str = include_str!("../README.md");
/// Where settings are read: the one place that names them.
const SETTINGS: &str = include_str!("../src/config/settings.rs");

const REQUIRED: [&str; 6] = [
    "listener.advertised.host",
    "metadata.directory",
    "proxy.id",
    "proxy.zone",
    "store.url",
    "upstream.bootstrap.servers",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shipped() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("proxy-config")).expect("proxy-config");
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Every name of a setting in `settings.rs`. `store.option` stands for all options below it.
fn settings_there_are() -> BTreeSet<String> {
    let name = Regex::new(r#""((?:proxy|listener|upstream|metadata|store|diskless|fetch|admin)(?:\.[a-z]+)+)""#)
        .expect("valid");
    let found: BTreeSet<_> = name.captures_iter(SETTINGS).map(|c| c[1].to_owned()).collect();
    assert!(found.len() > 35 && found.contains("upstream.bootstrap.servers"), "{found:?}");
    found
}

/// Options are as many as the store's library has; they count as one setting.
fn without_option_name(name: &str) -> String {
    if name.starts_with("store.option.") { "store.option".to_owned() } else { name.to_owned() }
}

fn parse(text: &str, arguments: &[String]) -> Result<Config, Vec<String>> {
    Config::parse(text, arguments, |_| None)
}

/// One setting of `distributed.toml`.
struct Shown {
    line: usize,
    /// What is said to be the default, as TOML, where it is not the value itself.
    default: Option<String>,
    is_required: bool,
    is_commented_out: bool,
}

/// The settings that `distributed.toml` shows, by name.
fn shown() -> BTreeMap<String, Shown> {
    let heading = Regex::new(r"^\[([a-z.]+)\]$").expect("valid");
    let setting =
        Regex::new(r#"^(# )?"?([a-z_]+(?:\.[a-z_]+)*)"? = .*?(?:\s+# (?:(required)|default: (.*)))?$"#).expect("valid");
    let mut table = String::new();
    let mut found = BTreeMap::new();
    for (number, line) in DISTRIBUTED.lines().enumerate() {
        if let Some(c) = heading.captures(line) {
            table = c[1].to_owned();
        } else if let Some(c) = setting.captures(line) {
            let one = Shown {
                line: number,
                default: c.get(4).map(|d| d.as_str().to_owned()),
                is_required: c.get(3).is_some(),
                is_commented_out: c.get(1).is_some(),
            };
            found.insert(format!("{table}.{}", &c[2]), one);
        }
    }
    found
}

fn without_line(text: &str, number: usize) -> String {
    text.lines().enumerate().filter(|(n, _)| *n != number).map(|(_, line)| format!("{line}\n")).collect()
}

#[test]
fn every_shipped_configuration_loads() {
    let files = shipped();
    assert!(files.len() >= 4);
    for file in files {
        let config = Config::load(&file, &[]).unwrap_or_else(|error| panic!("{error}"));
        let is_alone =
            ["demo.toml", "standalone.toml"].contains(&file.file_name().and_then(|n| n.to_str()).unwrap_or(""));
        let expected = if is_alone { MetadataMode::Standalone } else { MetadataMode::Distributed };
        assert_eq!(config.metadata.mode, expected, "{}", file.display());
    }
}

#[test]
fn three_zones_share_one_file() {
    for (id, zone) in [(1, "zone-a"), (2, "zone-b"), (3, "zone-c")] {
        let arguments = [
            format!("proxy.id={id}"),
            format!("proxy.zone={zone}"),
            format!("listener.advertised.host=kafka-{id}.example.com"),
        ];
        let config = parse(DISTRIBUTED, &arguments).expect("valid");
        assert_eq!((config.proxy.id.0, config.proxy.zone.as_str()), (id, zone));
    }
}

#[test]
fn distributed_toml_shows_every_setting() {
    let shown: BTreeSet<_> = shown().keys().map(|name| without_option_name(name)).collect();
    assert_eq!(shown, settings_there_are());
}

#[test]
fn what_is_not_commented_out_is_what_toml_reads() {
    let read: BTreeSet<_> = Settings::parse(DISTRIBUTED).expect("TOML").values.into_keys().collect();
    let active: BTreeSet<_> = shown().into_iter().filter(|(_, s)| !s.is_commented_out).map(|(name, _)| name).collect();
    assert_eq!(active, read);
}

#[test]
fn shown_defaults_are_the_real_ones() {
    for (name, shown) in shown().into_iter().filter(|(_, s)| !s.is_commented_out && !s.is_required) {
        let absent = parse(&without_line(DISTRIBUTED, shown.line), &[]).expect("valid without an optional setting");
        let arguments: Vec<_> = shown.default.iter().map(|value| format!("{name}={value}")).collect();
        let given = parse(DISTRIBUTED, &arguments).expect("valid");
        assert_eq!(format!("{given:?}"), format!("{absent:?}"), "{name}: the default is another");
    }
}

#[test]
fn a_value_that_is_not_the_default_says_so() {
    for (name, shown) in shown().into_iter().filter(|(_, s)| s.default.is_some()) {
        let absent = parse(&without_line(DISTRIBUTED, shown.line), &[]).expect("valid");
        let given = parse(DISTRIBUTED, &[]).expect("valid");
        assert_ne!(format!("{given:?}"), format!("{absent:?}"), "{name} has its default: drop the note");
    }
}

#[test]
fn required_settings_are_marked_and_missed() {
    let shown = shown();
    let marked: Vec<_> = shown.iter().filter(|(_, s)| s.is_required).map(|(name, _)| name.as_str()).collect();
    assert_eq!(marked, REQUIRED);
    for name in marked {
        let mistakes = parse(&without_line(DISTRIBUTED, shown[name].line), &[]).expect_err("required");
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].contains(&format!("{name} is not set")), "{mistakes:?}");
    }
}

/// The rows of README's configuration table: name to default, as they are written.
fn readme_table() -> BTreeMap<String, String> {
    let row = Regex::new(r"(?m)^\| `([a-z_.<>]+)` \| (.*?) \| ").expect("valid");
    let section = README.split("\n## Configuration").nth(1).expect("a section named Configuration");
    let section = section.split("\n## ").next().unwrap_or(section);
    row.captures_iter(section).map(|c| (c[1].replace(".<name>", ""), c[2].replace('`', ""))).collect()
}

#[test]
fn the_readme_s_table_has_every_setting() {
    let written: BTreeSet<_> = readme_table().into_keys().collect();
    assert_eq!(written, settings_there_are());
}

#[test]
fn the_readme_s_table_has_the_real_defaults() {
    let shown = shown();
    for (name, default) in readme_table() {
        let one = shown.iter().find(|(n, _)| without_option_name(n) == name).map(|(_, s)| s).expect("shown");
        match default.as_str() {
            "required" => assert!(one.is_required, "{name}"),
            "none" => assert!(one.is_commented_out, "{name} has a default"),
            value => {
                assert!(!one.is_required && !one.is_commented_out, "{name} has no default");
                let given = parse(DISTRIBUTED, &[format!("{name}={value}")]).expect("valid");
                let absent = parse(&without_line(DISTRIBUTED, one.line), &[]).expect("valid");
                assert_eq!(format!("{given:?}"), format!("{absent:?}"), "{name}: the default is another");
            }
        }
    }
}
