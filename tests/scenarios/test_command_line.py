"""`sidestream topics`, `inspect` and `check` beside a running proxy."""

import json
import pathlib
import subprocess
import tempfile

from clients import Clients, name_for, numbered, values
from harness import BINARY, Proxy, wait_for


def sidestream(*arguments):
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, timeout=60)


def admin(clients):
    return ["--admin", f"127.0.0.1:{clients.proxy.admin_port}"]


def test_topics_create_makes_a_diskless_topic_that_list_and_describe_show(clients):
    topic = name_for("made", "by-command")
    created = sidestream("topics", "create", topic, "--bootstrap", clients.bootstrap, "--partitions", "2", "--config",
                         "retention.ms=7200000")
    assert created.returncode == 0, created.stderr
    assert clients.is_diskless(topic)
    clients.produce(topic, numbered(7), partition=1)
    assert values(clients.read(topic, 7, partition=1)) == numbered(7)
    listed = sidestream("topics", "list", *admin(clients))
    row = next(line.split() for line in listed.stdout.splitlines() if line.startswith(topic + " "))
    assert row[1:4] == ["diskless", "2", "7"]
    described = sidestream("topics", "describe", topic, *admin(clients))
    assert "retention.ms = 7200000" in described.stdout
    as_json = json.loads(sidestream("topics", "describe", topic, "--json", *admin(clients)).stdout)
    ends = {p["partition"]: p["high_watermark"] for p in as_json["partition_list"]}
    assert (as_json["records"], ends) == (7, {0: 0, 1: 7})


def test_topics_create_says_why_it_fails(clients):
    topic = clients.topic("diskless", "taken")
    again = sidestream("topics", "create", topic, "--bootstrap", clients.bootstrap)
    assert again.returncode == 1
    assert topic in again.stderr and "exists" in again.stderr.lower(), again.stderr


def test_topics_list_shows_both_kinds(clients):
    classic = clients.topic("classic", "listed")
    diskless = clients.topic("diskless", "listed")

    def kinds():
        listed = json.loads(sidestream("topics", "list", "--json", *admin(clients)).stdout)
        return {name: info["kind"] for name, info in listed.items()}

    assert kinds().get(diskless) == "diskless"
    wait_for(lambda: kinds().get(classic) == "classic", 15, "the classic topic in the list")


def test_inspect_segment_shows_what_an_object_holds(clients):
    topic = clients.topic("diskless", "inspected", partitions=2)
    before = set(objects(clients))
    for partition in range(2):
        clients.produce(topic, numbered(100), partition=partition, compression_type="zstd", linger_ms=100)
    fresh = sorted(set(objects(clients)) - before)
    assert fresh
    topic_id = json.loads(clients.proxy.get(f"/topics/{topic}"))["topic_id"]
    shown = []
    for file in fresh:
        done = sidestream("inspect", "segment", str(file), "--json")
        assert done.returncode == 0, done.stderr
        shown += [b for b in json.loads(done.stdout)["batches"] if b["topic_id"] == topic_id]
    for partition in range(2):
        mine = [b for b in shown if b["partition"] == partition]
        assert sum(b["records"] for b in mine) == 100
    table = sidestream("inspect", "segment", str(fresh[0]))
    assert table.returncode == 0 and "PARTITION" in table.stdout


def test_inspect_segment_finds_damage(clients, tmp_path):
    topic = clients.topic("diskless", "damaged")
    before = set(objects(clients))
    clients.produce(topic, numbered(10))
    data = bytearray(sorted(set(objects(clients)) - before)[0].read_bytes())
    data[100] ^= 1
    broken = tmp_path / "broken"
    broken.write_bytes(data)
    done = sidestream("inspect", "segment", str(broken))
    assert done.returncode == 1
    assert "damaged" in done.stdout + done.stderr, done


def test_check_finds_the_cluster_and_the_store_usable(clients):
    done = sidestream("check", "--config", str(clients.proxy.directory / "sidestream.toml"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.split()]
    assert "fail" not in {words[0] for words in lines}
    assert sum(words[0] == "ok" for words in lines) >= 3, done.stdout


def test_check_fails_where_upstream_does_not_answer(clients):
    config = str(clients.proxy.directory / "sidestream.toml")
    done = sidestream("check", "--config", config, "--set", 'upstream.bootstrap.servers=["127.0.0.1:1"]')
    assert done.returncode == 1
    assert "fail" in done.stdout and "upstream" in done.stdout, done.stdout


def objects(clients):
    return [file for file in clients.proxy.store.rglob("*") if file.is_file()]


def test_inspect_log_tells_what_became_of_each_command(clients):
    topic = clients.topic("diskless", "inspected")
    clients.produce(topic, numbered(10))
    config = str(clients.proxy.directory / "sidestream.toml")
    shown = sidestream("inspect", "log", "--config", config, "--last", "0", "--json")
    commands = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [c["position"] for c in commands] == list(range(len(commands))), "every record of the log is shown"
    assert commands[0]["command"] == "Genesis"
    assert any(c["command"] == "RegisterTopic" and topic in c["details"] for c in commands)
    assert any(c["command"] == "CommitSegment" and "accepted" in c["outcome"] for c in commands)
    few = sidestream("inspect", "log", "--config", config, "--last", "3")
    assert len(few.stdout.splitlines()) == 5, "a heading, three commands, and how far the log was applied"
    assert "state digest" in few.stdout


def test_inspect_state_agrees_with_the_stopped_proxy_s_file(kafka1):
    with tempfile.TemporaryDirectory(prefix="sidestream-state-") as place:
        proxy = Proxy(kafka1, pathlib.Path(place) / "store", settings={"metadata.topic": "__diskless_state"})
        try:
            own = Clients(proxy)
            own.produce(own.topic("diskless", "state", partitions=2), numbered(10))
            running = json.loads(sidestream("inspect", "state", "--json", *admin(own)).stdout)
            busy = sidestream("inspect", "state", "--file", str(proxy.metadata_store))
            assert busy.returncode == 1 and "another process has the metadata store open" in busy.stderr
            assert proxy.terminate() == 0
            stopped = json.loads(sidestream("inspect", "state", "--file", str(proxy.metadata_store), "--json").stdout)
            assert stopped["invariants"] == "hold"
            for key in ["log_id", "topics", "partitions", "records"]:
                assert stopped[key] == running[key], key
            assert (stopped["records"], stopped["topics"]) == (10, 1)
        finally:
            proxy.stop()


def test_bench_measures_what_it_produced_and_reads_it_back(clients, kind):
    topic = name_for(kind, "bench")
    common = ["--bootstrap", clients.bootstrap, "--topic", topic, "--json"]
    produced = json.loads(sidestream("bench", "produce", *common, "--create", "3", "--records", "2000").stdout)
    assert (produced["records"], produced["bytes"], produced["failed"]) == (2000, 2000 * 1024, 0)
    assert produced["ack_ms"]["p50"] > 0
    consumed = json.loads(sidestream("bench", "consume", *common).stdout)
    assert (consumed["records"], consumed["bytes"]) == (2000, 2000 * 1024)
    both = json.loads(sidestream("bench", "e2e", *common, "--rate", "100", "--for", "2s").stdout)
    assert (both["records"], both["failed"]) == (200, 0)
    assert both["ack_ms"]["p50"] > 0 and both["e2e_ms"]["p50"] > 0


def test_bench_says_what_is_missing(clients):
    done = sidestream("bench", "consume", "--bootstrap", clients.bootstrap, "--topic", "nowhere")
    assert done.returncode == 1
    assert "nowhere" in done.stderr and "--create" in done.stderr
