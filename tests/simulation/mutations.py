#!/usr/bin/env python3
"""Proves that the simulation and the judge have teeth: breaks the product in one place after the other, and looks which
seed notices it, and by what.

    tests/simulation/mutations.py [--seeds 400] [--only NAME] [--target DIR]

Works on a copy of the tree. Ends with 1 if a mutation was not noticed. Takes about half a minute for each."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name, file, what stands there, what is put in its place
MUTATIONS = [
    ("commit though the upload failed", "src/produce/service.rs",
     '"a WAL segment was not uploaded in time; its batches fail"),\n        }\n        false',
     '"a WAL segment was not uploaded in time; its batches fail"),\n        }\n        true'),
    ("an unanswered PUT counts as done", "src/object_storage/retrying.rs",
     'Err(_) => Err(Failure::Unknown("no answer in time".to_owned())),',
     'Err(_) if matches!(request, Request::Put { .. }) => Ok(Reply::Done),\n            '
     'Err(_) => Err(Failure::Unknown("no answer in time".to_owned())),'),
    ("a duplicate is appended again", "src/diskless_coordinator/rules/placement.rs",
     "return Placement::Duplicate(first_time);", "let _ = first_time;\n        return Placement::Append;"),
    ("a duplicate is answered with the present end", "src/diskless_coordinator/rules/commit.rs",
     "base_offset: first.base_offset,", "base_offset: log.log_end_offset - 1,"),
    ("only the last batch of a producer is remembered", "src/diskless_coordinator/rules/placement.rs",
     "batches.rotate_left(1);\n            REMEMBERED_BATCHES - 1",
     "batches = [None; REMEMBERED_BATCHES];\n            0"),
    ("producers are forgotten after two seconds", "src/diskless_coordinator/rules/placement.rs",
     "pub const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;", "pub const PRODUCER_EXPIRATION_MS: i64 = 2_000;"),
    ("any sequence is accepted", "src/diskless_coordinator/rules/placement.rs",
     "if batch.base_sequence == due {", "if batch.base_sequence >= due {"),
    ("what follows an unanswered batch is not marked (R3)", "src/diskless_coordinator/rules/placement.rs",
     "let out_of_order = batch.follows && batch.base_sequence != 0;",
     "let out_of_order = false && batch.follows;"),
    ("batches are looked for one byte too early", "src/diskless_coordinator/publish.rs",
     "let mut byte_offset = 1;", "let mut byte_offset = 0;"),
    ("a batch is served one offset too high", "src/fetch/reader.rs",
     "ServeAs { base_offset: batch.base_offset,", "ServeAs { base_offset: batch.base_offset + 1,"),
    ("answers go to the wrong batches", "src/produce/active_segment.rs",
     "self.batches.sort_by_key(|batch| batch.partition);",
     "self.batches.sort_by_key(|batch| (batch.partition, std::cmp::Reverse(batch.meta.base_sequence)));"),
    ("an unknown commit is told as one that failed", "src/produce/service.rs",
     'tracing::warn!(%segment, "the outcome of a commit is not known");\n                Rejected::UNKNOWN',
     'tracing::warn!(%segment, "the outcome of a commit is not known");\n                Rejected::NOT_COMMITTED'),
    ("ends are told without a barrier (R11)", "src/app/seams.rs",
     "passed.map_ok(drop).map_err(|_| NotFresh).boxed()",
     "drop(passed);\n        async { Ok(()) }.boxed()"),
    ("an offset that is not applied yet is out of range (R11)", "src/app/seams.rs",
     "async move { self.coordination.record_barrier(deadline).await.map(drop).map_err(|_| NotFresh) }.boxed()",
     "async move { let _ = (&self.coordination, deadline); Ok(()) }.boxed()"),
    ("a fenced process may come back (R10)", "src/diskless_coordinator/rules/incarnations.rs",
     "if let Some(before) = before.filter(|b| b.fenced_nonces.contains(&opening.nonce)) {",
     "if let Some(before) = before.filter(|b| false && b.fenced_nonces.contains(&opening.nonce)) {"),
    ("stored bytes are not checked", "src/fetch/reader.rs",
     "if range.is_checked() {\n        return true;", "if range.is_checked() || !range.pieces.is_empty() {\n        return true;"),
    ("a record of the log is passed over now and then", "src/coordination/start.rs",
     "match store.apply(records).await {",
     "match store.apply(records.split_at(usize::from(records.len() > 8)).1.to_vec()).await {"),
    ("producers are forgotten at a restart, and nobody looks at the digest", "src/metadata_store/rows.rs",
     "if position == state.applied && found != expected {",
     "state.producers.retain(|_, _| false);\n        if false && position == state.applied && found != expected {"),
    ("the store says that it has come further than it has", "src/metadata_store/rows.rs",
     "        applied: state.applied,\n        time:", "        applied: state.applied.next(),\n        time:"),
    ("other proxies' batches have another log time here", "src/diskless_coordinator/apply.rs",
     "state.clock.advance(record.position, record.append_time_ms, proposer.wall_time)",
     "state.clock.advance(record.position, record.append_time_ms + state.checkpoints.capacity() as i64 % 3, proposer.wall_time)"),
]


def copy_tree(to):
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        source, target = ROOT / name, to / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def simulate(tree, target, arguments, timeout=900):
    command = ["cargo", "test", "--quiet", "--release", "--test", "simulation", "--target-dir", str(target), "--", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=timeout,
                          env={**__import__("os").environ, "RUST_BACKTRACE": "0"})


def noticed(output):
    """The first seed that failed, and by what."""
    seed = re.search(r"seed (\d+) failed", output)
    if not seed:
        return None
    what = output[seed.end():].split("\n")[1].strip() if "\n" in output[seed.end():] else ""
    return seed.group(1), what[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--only", default="")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target" / "mutations")
    options = parser.parse_args()
    survivors = []
    with tempfile.TemporaryDirectory(prefix="sidestream-mutations-") as scratch:
        tree = pathlib.Path(scratch)
        copy_tree(tree)
        print("| mutation | seed | noticed by |\n|---|---|---|", flush=True)
        for name, file, there, instead in MUTATIONS:
            if options.only not in name:
                continue
            path = tree / file
            text = path.read_text()
            if text.count(there) != 1:
                sys.exit(f"{name}: {file} has {text.count(there)} places that look like it: the mutation must be written anew")
            path.write_text(text.replace(there, instead))
            result = simulate(tree, options.target, ["--from", "0", "--to", str(options.seeds), "--first"])
            path.write_text(text)
            found = noticed(result.stdout)
            if found is None:
                survivors.append(name)
                found = ("-", "NOT NOTICED" if result.returncode == 0 else "not built: " + result.stderr.strip()[-300:])
            print(f"| {name} | {found[0]} | {found[1]} |", flush=True)
    print(f"{len(survivors)} of {len(MUTATIONS)} not noticed", flush=True)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
