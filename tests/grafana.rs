//! The boards and the README against the metrics that there are.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

const BOARD: &str = include_str!("../grafana/overview.json");
const README: &str = include_str!("../README.md");
/// The one place that gives metrics their names.
const METRICS: &str = include_str!("../src/admin_server/metrics.rs");

/// Metrics that no board shows, each with why.
const NOT_SHOWN: [(&str, &str); 3] = [
    ("sidestream_metadata_log_position", "a number without meaning of its own: for comparing proxies by hand"),
    ("sidestream_metadata_checkpoint_position", "as the position"),
    ("sidestream_metadata_checkpoint_digest", "proxies compare it themselves"),
];

fn metrics_there_are() -> BTreeSet<String> {
    let name = Regex::new(r#""(sidestream_[a-z_]+)""#).expect("valid");
    let found: BTreeSet<_> = name.captures_iter(METRICS).map(|c| c[1].to_owned()).collect();
    assert!(found.len() > 20, "{found:?}");
    found
}

fn metrics_named_in(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"sidestream_[a-z_]+").expect("valid");
    let parts_of_histograms = Regex::new(r"_seconds_(bucket|sum|count)$").expect("valid");
    name.find_iter(text).map(|m| parts_of_histograms.replace(m.as_str(), "_seconds").into_owned()).collect()
}

fn panels() -> Vec<Value> {
    let board: Value = serde_json::from_str(BOARD).expect("JSON");
    let panels = board["panels"].as_array().expect("panels").clone();
    panels.into_iter().filter(|p| p["type"] != "row").collect()
}

#[test]
fn every_metric_on_the_board_exists() {
    let there_are = metrics_there_are();
    let unknown: Vec<_> = metrics_named_in(BOARD).into_iter().filter(|m| !there_are.contains(m)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_metric_is_on_the_board_or_listed_as_not_shown() {
    let shown: BTreeSet<_> = panels().iter().flat_map(|p| metrics_named_in(&p["targets"].to_string())).collect();
    let not_shown: BTreeSet<_> = NOT_SHOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    let both: Vec<_> = shown.intersection(&not_shown).collect();
    assert!(both.is_empty(), "on the board after all: {both:?}");
    let covered: BTreeSet<_> = shown.union(&not_shown).cloned().collect();
    assert_eq!(covered, metrics_there_are());
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    let mut ids = BTreeSet::new();
    for panel in panels() {
        let title = panel["title"].as_str().expect("a title");
        assert!(panel["description"].as_str().is_some_and(|d| d.len() > 10), "{title} has no description");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert!(ids.insert(panel["id"].as_u64()), "{title} has the id of another panel");
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            assert!(query.contains("$instance"), "{title} does not follow the choice of proxies: {query}");
            assert_eq!(query.matches('(').count(), query.matches(')').count(), "{title}: {query}");
        }
    }
}

#[test]
fn counters_are_shown_as_rates_and_gauges_as_they_are() {
    for panel in panels() {
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            for metric in metrics_named_in(query) {
                let grows = metric.ends_with("_total") || metric.ends_with("operation_seconds");
                let place = query.find(&metric).expect("named");
                let is_rate = ["rate(", "increase("].iter().any(|f| query[..place].ends_with(f));
                assert_eq!(grows, is_rate, "{}: {query}", panel["title"]);
            }
        }
    }
}

#[test]
fn the_readme_s_table_has_every_metric() {
    let row = Regex::new(r"(?m)^\| `(sidestream_[a-z_]+)`").expect("valid");
    let written: BTreeSet<_> = row.captures_iter(README).map(|c| c[1].to_owned()).collect();
    assert_eq!(written, metrics_there_are());
}
