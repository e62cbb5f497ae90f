//! The rules of this code base that a machine can hold up. Each failure names file, line and what to do instead.
//!
//! A rule has no silent exceptions: what is admitted is listed beside it, and an admission that nothing needs any more
//! fails too.

#[path = "tidy/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{Source, files_below, item_end, line_of, relative, root, sources, words};

/// The modules of the crate, lowest layer first, in the order of `lib.rs`.
const LAYERS: [(&str, &[&str]); 8] = [
    ("Words", &["types"]),
    ("Formats", &["record_batch", "wal_segment", "wire"]),
    ("Rules", &["diskless_coordinator", "history", "routing"]),
    ("Clock and tasks", &["clock", "tasks"]),
    ("Adapters", &["metadata_log", "metadata_store", "object_storage", "upstream"]),
    ("Services", &["coordination", "fetch", "produce", "topic_catalog"]),
    ("Doors", &["admin_server", "kafka_server"]),
    ("The whole", &["app", "cli", "config", "demo", "telemetry"]),
];

/// Layers that decide and never wait: no async, no clock, no chance.
const PURE_LAYERS: usize = 3;

/// Imports within a layer.
const SIDEWAYS: [(&str, &str); 11] = [
    ("wal_segment", "record_batch"),
    ("routing", "diskless_coordinator"),
    ("topic_catalog", "coordination"),
    ("admin_server", "kafka_server"),
    ("app", "config"),
    ("cli", "app"),
    ("cli", "config"),
    ("cli", "demo"),
    ("cli", "telemetry"),
    ("demo", "app"),
    ("demo", "config"),
];

/// Imports against the direction, each one a debt.
const UPWARD: [(&str, &str, &str); 1] =
    [("kafka_server", "config", "the doors read their settings from Config instead of having settings of their own")];

const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 70;

/// Collects what is wrong, and fails with all of it.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, path: &str, line: usize, what: &str) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "{} finding(s):\n  {}", self.0.len(), self.0.join("\n  "));
    }
}

fn production() -> impl Iterator<Item = &'static Source> {
    sources().iter().filter(|s| !s.is_test)
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, modules)| modules.contains(&module))
}

/// Every top-level module that a file names, with the place where it does.
fn imports(source: &Source) -> Vec<(String, usize)> {
    const ROOT: &str = "crate::";
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices(ROOT) {
        if source.code[..at].ends_with('$') {
            continue;
        }
        let rest = &source.code[at + ROOT.len()..];
        let names = match rest.strip_prefix('{') {
            Some(group) => heads(&group[..item_end(rest, 0).saturating_sub(2)]),
            None => words(rest).next().map(|(_, name)| name.to_owned()).into_iter().collect(),
        };
        found.extend(names.into_iter().map(|name| (name, at)));
    }
    found
}

/// The first word of each element of `a::b, c::{d, e}`.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0usize;
    let mut elements = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => elements.push(String::new()),
            _ => {}
        }
        if let Some(last) = elements.last_mut() {
            last.push(c);
        }
    }
    elements.iter().filter_map(|e| words(e).next().map(|(_, name)| name.to_owned())).collect()
}

#[test]
fn the_layer_table_is_the_order_of_lib_rs() {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).expect("lib.rs");
    let mut listed: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("// ") {
            listed.push((heading.split(':').next().unwrap_or(heading), Vec::new()));
        } else if let Some(module) = line.strip_prefix("pub mod ") {
            listed.last_mut().expect("a heading comes first").1.push(module.trim_end_matches(';'));
        }
    }
    listed.retain(|(_, modules)| !modules.is_empty());
    let expected: Vec<_> = LAYERS.iter().map(|(name, modules)| (*name, modules.to_vec())).collect();
    assert_eq!(listed, expected);
}

#[test]
fn imports_go_downward() {
    let mut findings = Findings::default();
    let mut used = BTreeSet::new();
    for source in production().filter(|s| layer(s.module()).is_some()) {
        let from = source.module();
        for (to, at) in imports(source) {
            let Some(target) = layer(&to) else {
                findings.add(&source.path, line_of(&source.code, at), &format!("crate::{to} is no module of lib.rs"));
                continue;
            };
            let own = layer(from).expect("filtered");
            let is_admitted = SIDEWAYS.contains(&(from, to.as_str()))
                || UPWARD.iter().any(|(upper, lower, _)| (*upper, *lower) == (from, to.as_str()));
            if from != to && target >= own {
                used.insert((from.to_owned(), to.clone()));
                if !is_admitted {
                    let direction = if target > own { "upward" } else { "sideways" };
                    findings.add(
                        &source.path,
                        line_of(&source.code, at),
                        &format!("imports {direction}: {from} -> {to}"),
                    );
                }
            }
        }
    }
    let admitted = SIDEWAYS.iter().copied().chain(UPWARD.iter().map(|(from, to, _)| (*from, *to)));
    for (from, to) in admitted.filter(|(from, to)| !used.contains(&((*from).to_owned(), (*to).to_owned()))) {
        findings.add(
            "tests/tidy.rs",
            1,
            &format!("{from} -> {to} is admitted, but nothing imports it: remove the line"),
        );
    }
    findings.none();
}

#[test]
fn no_path_climbs_to_the_root_by_super() {
    let mut findings = Findings::default();
    for source in production().filter(|s| layer(s.module()).is_some()) {
        let climb = "super::".repeat(source.depth());
        for (at, _) in source.code.match_indices(&climb) {
            findings.add(&source.path, line_of(&source.code, at), "write crate:: so that the import is seen");
        }
    }
    findings.none();
}

#[test]
fn clock_and_tasks_import_nothing() {
    let mut findings = Findings::default();
    for source in production().filter(|s| ["clock", "tasks"].contains(&s.module())) {
        for (_, at) in imports(source) {
            findings.add(&source.path, line_of(&source.code, at), "clock and tasks import nothing of the crate");
        }
    }
    findings.none();
}

#[test]
fn types_formats_and_rules_never_wait_nor_read_a_clock_or_chance() {
    const BANNED: [&str; 8] = ["async", "await", "tokio", "futures", "Instant", "SystemTime", "rand", "thread"];
    let mut findings = Findings::default();
    for source in production().filter(|s| layer(s.module()).is_some_and(|l| l < PURE_LAYERS)) {
        for (at, word) in words(&source.code).filter(|(_, word)| BANNED.contains(word)) {
            findings.add(&source.path, line_of(&source.code, at), &format!("{word} in a layer that only decides"));
        }
    }
    findings.none();
}

#[test]
fn what_the_log_decides_never_depends_on_the_order_of_a_hash_map() {
    // What readers look at is made from decisions, and decides nothing.
    const READERS: [&str; 2] = ["src/diskless_coordinator/view.rs", "src/diskless_coordinator/publish.rs"];
    let mut findings = Findings::default();
    for source in production().filter(|s| s.module() == "diskless_coordinator") {
        if READERS.contains(&source.path.as_str()) {
            continue;
        }
        for (at, word) in words(&source.code).filter(|(_, word)| ["HashMap", "HashSet"].contains(word)) {
            findings.add(&source.path, line_of(&source.code, at), &format!("{word}: use BTreeMap or BTreeSet"));
        }
    }
    findings.none();
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut findings = Findings::default();
    for directory in ["src", "tests", "examples"] {
        for path in files_below(directory, &["rs"]) {
            let text = std::fs::read_to_string(&path).expect("source is text");
            if !text.starts_with("//! ") {
                findings.add(&relative(&path), 1, "the file must open with a `//!` header that says its job");
            }
        }
    }
    findings.none();
}

#[test]
fn files_are_short() {
    let mut findings = Findings::default();
    for source in production() {
        let lines = source.code.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > LONGEST_FILE {
            findings.add(&source.path, 1, &format!("{lines} lines of code, at most {LONGEST_FILE}: split it"));
        }
    }
    findings.none();
}

/// The functions of blanked code: place of the word `fn`, and the code from there to the end of the body.
fn functions(code: &str) -> Vec<(usize, &str)> {
    words(code)
        .filter(|(_, word)| *word == "fn")
        // `fn(i32)` is a type.
        .filter(|(at, _)| code[at + 2..].starts_with(' '))
        .map(|(at, _)| (at, &code[at..item_end(code, at)]))
        .collect()
}

#[test]
fn functions_are_short() {
    let mut findings = Findings::default();
    for source in production() {
        for (at, body) in functions(&source.code) {
            let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
            if lines > LONGEST_FUNCTION {
                let name = words(&body[2..]).next().map_or("?", |(_, name)| name);
                let what = format!("fn {name} has {lines} lines of code, at most {LONGEST_FUNCTION}");
                findings.add(&source.path, line_of(&source.code, at), &what);
            }
        }
    }
    findings.none();
}

/// Things that have one door, or none: what is looked for, the files where it may stand, and what to do instead.
const DOORS: [(&str, &[&str], &str); 9] = [
    (".unwrap()", &[], "an error of production code is handled, or expect says why it cannot come"),
    ("tokio::spawn(", &["src/tasks.rs"], "use tasks: every task has a name, an owner and an end"),
    ("task::spawn(", &["src/tasks.rs"], "use tasks: every task has a name, an owner and an end"),
    ("spawn_blocking(", &["src/demo/workload.rs"], "a thread with a name and an owner"),
    ("block_in_place(", &[], "a thread with a name and an owner"),
    ("SystemTime::now(", &["src/clock.rs"], "use clock"),
    ("unbounded", &[], "queues are bounded"),
    // The standard library's channel is unbounded.
    ("mpsc::channel()", &[], "use sync_channel with a bound"),
    ("static mut", &[], "components are handed in"),
];

#[test]
fn what_has_one_door_stands_nowhere_else() {
    let mut findings = Findings::default();
    let sources: Vec<_> = production().collect();
    for (what, admitted, instead) in DOORS {
        let mut seen = BTreeSet::new();
        for source in &sources {
            for (at, _) in source.code.match_indices(what) {
                seen.insert(source.path.as_str());
                if !admitted.contains(&source.path.as_str()) {
                    findings.add(&source.path, line_of(&source.code, at), &format!("{what}: {instead}"));
                }
            }
        }
        // The door itself may be written in another way.
        for path in admitted.iter().filter(|p| !["src/tasks.rs", "src/clock.rs"].contains(p) && !seen.contains(*p)) {
            findings.add("tests/tidy.rs", 1, &format!("{path} is admitted for {what}, but does not use it"));
        }
    }
    findings.none();
}

/// Crates that only some modules may name, so that a change of crate is a change of one module.
const CRATES: [(&str, &[&str]); 4] = [
    ("redb", &["metadata_log", "metadata_store"]),
    ("object_store", &["object_storage"]),
    ("hyper", &["admin_server", "cli"]),
    ("rdkafka", &["metadata_log", "demo", "cli"]),
];

#[test]
fn outside_crates_are_named_by_their_adapters_only() {
    let mut findings = Findings::default();
    for source in production() {
        for (at, word) in words(&source.code) {
            let names_the_crate = source.code[at + word.len()..].starts_with("::")
                && !source.code[..at].ends_with("::")
                && !source.code[..at].ends_with('.');
            let owners = CRATES.iter().find(|(name, _)| *name == word && names_the_crate).map(|(_, owners)| *owners);
            if owners.is_some_and(|owners| !owners.contains(&source.module())) {
                findings.add(&source.path, line_of(&source.code, at), &format!("only its adapter names {word}"));
            }
        }
    }
    findings.none();
}

/// Words that mean something else to a Kafka user, or nothing, and the word for it here. Looked for in names: `tp_of`
/// and `TpOf` both hold `tp`.
const NOT_IN_NAMES: [(&str, &str); 12] = [
    ("topition", "TopicPartition"),
    ("tp", "TopicPartition"),
    ("pid", "ProducerId"),
    ("seqno", "base_sequence"),
    ("lso", "last_stable_offset"),
    ("hwm", "high_watermark"),
    ("leo", "log_end_offset"),
    ("gc", "segment deletion"),
    ("journal", "metadata_log"),
    ("sequencer", "diskless_coordinator"),
    ("tunnel", "pass through"),
    ("mirror", "shadow topic"),
];

/// The same for what people read: comments, messages, documents.
const NOT_IN_TEXT: [(&str, &str); 9] = [
    ("topition", "topic partition"),
    ("batch coordinator", "diskless coordinator"),
    ("shared log segment", "WAL segment"),
    ("message set", "record batch"),
    ("low watermark", "log start offset"),
    ("trim point", "log start offset"),
    ("garbage collector", "segment deletion"),
    ("dummy broker", "virtual broker"),
    ("blob store", "object store"),
];

/// The parts of a name in lower case: `TopicKind` and `topic_kind` are both topic, kind.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(last) = parts.last_mut()
        {
            last.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    parts
}

#[test]
fn names_use_kafka_s_words() {
    let mut findings = Findings::default();
    for source in sources() {
        for (at, word) in words(&source.code) {
            for (banned, instead) in NOT_IN_NAMES.iter().filter(|(banned, _)| parts(word).iter().any(|p| p == banned)) {
                findings.add(&source.path, line_of(&source.code, at), &format!("{banned} in {word}: say {instead}"));
            }
        }
    }
    findings.none();
}

/// What people wrote in this repository, this file apart: its lists name what is banned.
fn written() -> BTreeMap<String, String> {
    let kinds = ["rs", "md", "toml", "py", "json", "txt", "sh", "xml", "properties", "yaml", "yml"];
    let mut found = BTreeMap::new();
    for directory in ["src", "tests", "examples", "proxy-config", "grafana"] {
        for path in files_below(directory, &kinds) {
            if let Ok(text) = std::fs::read_to_string(&path) {
                found.insert(relative(&path), text);
            }
        }
    }
    for name in ["README.md", "Cargo.toml"] {
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            found.insert(name.to_owned(), text);
        }
    }
    found.remove("tests/tidy.rs");
    found.retain(|path, _| !path.contains("/.cache/"));
    found
}

#[test]
fn texts_use_kafka_s_words() {
    let mut findings = Findings::default();
    for (path, text) in written() {
        let lower = text.to_lowercase();
        for (banned, instead) in NOT_IN_TEXT {
            for (at, _) in lower.match_indices(banned) {
                findings.add(&path, line_of(&lower, at), &format!("{banned:?}: say {instead}"));
            }
        }
    }
    findings.none();
}

#[test]
fn nothing_is_left_to_do_in_comments() {
    let mut findings = Findings::default();
    for (path, text) in written() {
        for (at, word) in words(&text).filter(|(_, word)| ["TODO", "FIXME", "XXX"].contains(word)) {
            findings.add(
                &path,
                line_of(&text, at),
                &format!("{word}: do it, or say what is absent in ARCHITECTURE.md"),
            );
        }
    }
    findings.none();
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    const PLACES: [&str; 5] = ["/home/", "/root/", "/work/", "/Users/", "/tmp/"];
    let mut findings = Findings::default();
    for (path, text) in written() {
        for place in PLACES {
            for (at, _) in text.match_indices(place) {
                // `src/work/` is a path of its own; `$HOME/tmp/` too.
                let before = text[..at].chars().next_back();
                if !before.is_some_and(|c| c.is_alphanumeric() || "_-.}".contains(c)) {
                    findings.add(&path, line_of(&text, at), &format!("an absolute path: {place}"));
                }
            }
        }
    }
    findings.none();
}

/// The rules see what they look for: each is tried on a text that breaks it.
mod the_rules_themselves {
    use super::source::{blanked, item_end, words};
    use super::{functions, heads, parts};

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "let a = \"b // \\\" c\"; // d\nlet e = 'f'; /* g\nh */ let i: &'static str = r#\"j\"k\"#;";
        let code = blanked(text);
        let seen: Vec<_> = words(&code).map(|(_, word)| word).collect();
        assert_eq!(seen, ["let", "a", "let", "e", "let", "i", "static", "str"], "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn functions_end_at_their_last_brace() {
        let code = "fn a(x: [u8; 2]) { if b { c } }\nstruct D(fn(u8));\nfn e();\n";
        let found: Vec<_> = functions(code).into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, ["fn a(x: [u8; 2]) { if b { c } }", "fn e();"]);
        assert_eq!(item_end("; }", 0), 1);
    }

    #[test]
    fn grouped_imports_are_taken_apart() {
        assert_eq!(heads("a::{b, c}, d, e::f as g"), ["a", "d", "e"]);
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(parts("TopicKind"), ["topic", "kind"]);
        assert_eq!(parts("LATENCY_MS"), ["latency", "ms"]);
        assert_eq!(parts("by_Tp2"), ["by", "tp2"]);
    }
}
