//! `sidestream verify` as a program: its exit codes, and where it says a fault is.

use std::path::PathBuf;
use std::process::Command;

const SENT: &str = r#"{"time_ns":1,"process":"p","op":1,"type":"invoke","f":"send","key":"t-0","value":7}
{"time_ns":5,"process":"p","op":1,"type":"ok","f":"send","offset":0}
"#;
const READ: &str = r#"{"time_ns":2,"process":"c","op":1,"type":"invoke","f":"poll","key":"t-0","proxy":1}
{"time_ns":3,"process":"c","op":1,"type":"ok","f":"poll","records":[[0,7]]}
"#;

/// Writes files, verifies them as one history, and gives exit code, output and complaint.
fn verify(files: &[&str], json: bool) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |(at, text): (usize, &&str)| -> PathBuf {
        let path = directory.path().join(format!("{at}.jsonl"));
        std::fs::write(&path, text).expect("it can be written");
        path
    };
    let paths: Vec<_> = files.iter().enumerate().map(path).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestream"));
    command.arg("verify").args(&paths).args(json.then_some("--json"));
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_valid_history_of_two_files_is_0() {
    let (code, out, complaint) = verify(&[SENT, READ], false);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("No anomaly.") && out.contains("1 keys, 2 processes, 1 records"), "{out}");
}

#[test]
fn an_anomaly_is_1() {
    let wrong = READ.replace("[[0,7]]", "[[0,8]]");
    let (code, out, _) = verify(&[SENT, &wrong], false);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("phantom (1)\n  t-0: c (op 1) read value 8 at offset 0"), "{out}");
    let (code, out, _) = verify(&[SENT, &wrong], true);
    let verdict: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &verdict["valid"], &verdict["counts"]["phantom"]), (Some(1), &false.into(), &1.into()), "{out}");
    assert_eq!(verdict["anomalies"].as_array().map(Vec::len), Some(3), "phantom, inconsistent-offset, unseen: {out}");
}

#[test]
fn what_cannot_be_judged_is_2_with_file_and_line() {
    let cases = [
        (READ.replace("\"f\":\"poll\",\"records\"", "\"f\":\"pool\",\"records\""), "1.jsonl, line 2: this is no event"),
        (READ.replace(",\"records\":[[0,7]]", ""), "1.jsonl, line 2: the ok of a poll needs its records"),
        (
            READ.lines().nth(1).unwrap_or_default().to_owned(),
            "1.jsonl, line 1: c (op 1) completes, but nothing invokes",
        ),
        (format!("{READ}\n"), "1.jsonl, line 3: this is no event"),
    ];
    for (broken, expected) in cases {
        let (code, out, complaint) = verify(&[SENT, &broken], false);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(expected), "{complaint}");
    }
    let missing =
        Command::new(env!("CARGO_BIN_EXE_sidestream")).args(["verify", "no-such-file"]).output().expect("runs");
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-file cannot be read"));
}
