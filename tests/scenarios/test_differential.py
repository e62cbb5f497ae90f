"""Whatever a client asks that Kafka answers, the proxy answers alike: the same calls go to Kafka and through the proxy,
in the versions that the proxy offers, and their answers may differ only as EXPECTED says."""

import dataclasses

import differential_groups  # its cases
import differential_topics  # its cases
import pytest
from differential import Side, differences, normalised, running_probe
from differential_cases import BOOKS, CASES, LEDGER, READERS, batch, commit, produce
from differential_expected import EXPECTED, reasons
from harness import ROOT, wait_for
from workload import running_proxies

PRODUCE, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE, UNKNOWN_KEY = 0, 3, 17, 36, 9999
# The end of a header that has fields with tags, and no body.
NOTHING = "00"


@dataclasses.dataclass(frozen=True)
class Difference:
    api: int
    case: str
    side: str
    version: int
    path: str
    kafka: object
    ours: object


def sides_of(probe, kafka, proxy, mapped):
    """Kafka itself and the three ways through a proxy: name, mark, address, and where its partitions are led."""
    return [Side("kafka", "d", probe, kafka, kafka), Side("bootstrap", "b", probe, proxy, mapped),
            Side("mapped", "m", probe, mapped, mapped), Side("diskless", "x", probe, proxy, proxy, "diskless-")]


def set_up(side):
    """The topics and the group that requests name without changing them."""
    side.make_topic(LEDGER, 2)
    topic = side.make_topic(BOOKS, 2)
    side.call_leader(0, 9, produce(lambda s: batch(s, "abcde"), lambda _: topic)(side))
    group, transaction = side.named(READERS), {"transactionalId": side.named("txn"), "transactionTimeoutMs": 60000}
    # The first to ask for a coordinator has its topic created, which takes a while.
    wait_for(lambda: not side.call(10, 3, {"key": group})["errorCode"], 30, "a coordinator of groups")
    committed = lambda: side.call(8, 8, commit(side, group))["topics"][0]["partitions"][0]["errorCode"] == 0
    wait_for(committed, 30, "a commit")
    side.call(10, 3, {"key": transaction["transactionalId"], "keyType": 1})
    wait_for(lambda: not side.call(22, 4, transaction)["errorCode"], 30, "a coordinator of transactions")


def offered_by(side):
    answer = side.call(18, 4, {"clientSoftwareName": "probe", "clientSoftwareVersion": "1"})
    return {key["apiKey"]: range(key["minVersion"], key["maxVersion"] + 1) for key in answer["apiKeys"]}


def ask(case, version, side, addresses):
    side.case, side.version = f"{case.api} {case.name}", version
    answer = side.probe(side.address, case.api, version, case.request(side))
    answer = normalised(answer.get("response", answer), side, addresses, listing=case.lists)
    if case.api in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        # What matters of these is what becomes of the connection.
        after = side.probe(side.address, METADATA, 12, {"topics": []})
        answer["afterwards"] = "answered" if "response" in after else after
    return answer


def versions_of(case, offered):
    versions = [version for version in offered.get(case.api, ()) if case.versions(version)]
    return sorted({versions[0], versions[-1]}) if case.ends and versions else versions


def ask_all(sides, addresses, cases):
    kafka, *others = sides
    offered = offered_by(others[0])
    # Listed for clients that look for it (Produce before 3), and served by nobody.
    offered[PRODUCE] = range(3, offered[PRODUCE].stop)
    for case in cases:
        for version in versions_of(case, offered):
            direct = ask(case, version, kafka, addresses)
            for side in others:
                if side.name in case.sides:
                    ours = ask(case, version, side, addresses)
                    for path, one, other in differences(direct, ours):
                        yield Difference(case.api, case.name, side.name, version, path, one, other)


@pytest.fixture(scope="module")
def sides(kafka1):
    """Before one broker, so that every request may be sent there; all sides are set up."""
    log = {"metadata.topic": "__differential_log"}
    with running_proxies(kafka1, settings=log) as [proxy], running_probe() as probe:
        mapped = f"127.0.0.1:{proxy.settings['listener.mapped.port.base'] + 1}"
        made = sides_of(probe, kafka1.bootstrap, proxy.bootstrap, mapped)
        for side in made:
            set_up(side)
        yield made


def addresses_of(sides):
    """Which broker each port stands for; any other port in an answer is a way past the proxy."""
    def split(address):
        host, port = address.rsplit(":", 1)
        return host, int(port)

    kafka, bootstrap, mapped, _ = sides
    return {split(kafka.address): "broker", split(mapped.address): "broker", split(bootstrap.address): "virtual broker"}


def test_answers_differ_from_kafkas_only_where_that_is_explained(sides):
    unexplained, used = {}, set()
    for found in ask_all(sides, addresses_of(sides), CASES):
        lines = reasons(found)
        used.update(lines)
        if not lines:
            what = dataclasses.replace(found, version=0)
            unexplained.setdefault(repr(what), []).append(found.version)
    unused = [line for line in EXPECTED if line not in used]
    for what, versions in unexplained.items():
        print(f"in versions {versions}: {what}")
    assert not unexplained, f"{len(unexplained)} differences are not explained, see above"
    assert not unused, "these differences are gone"


def test_every_key_that_kafka_offers_has_a_case_or_is_not_offered(sides):
    kafka, bootstrap, mapped, _ = sides
    upstream, ours = offered_by(kafka), offered_by(bootstrap)
    assert ours == offered_by(mapped)
    assert ours.keys() <= upstream.keys()
    assert ours.keys() == {case.api for case in CASES}


def test_what_is_not_offered_ends_the_connection(sides):
    kafka, *others = sides
    upstream, ours = offered_by(kafka), offered_by(others[0])
    beyond = [(api, version) for api, versions in upstream.items() for version in versions
              if version not in ours.get(api, ())]
    assert beyond
    answered = [(side.name, api, version) for side in others for api, version in beyond
                if "closed" not in side.probe(side.address, api, version, body=NOTHING)]
    assert not answered


def test_unknown_keys_and_versions_end_alike(sides):
    kafka, *others = sides
    upstream = offered_by(kafka).items()
    asked = [(UNKNOWN_KEY, 0), (-1, 0), (PRODUCE, 0), (PRODUCE, 2)]
    asked += [(api, version) for api, versions in upstream for version in (versions.start - 1, versions.stop)]
    different = [(side.name, api, version) for side in others for api, version in asked
                 if side.probe(side.address, api, version, body=NOTHING)
                 != kafka.probe(kafka.address, api, version, body=NOTHING)]
    assert not different


def test_the_readme_gives_each_reason():
    readme = " ".join((ROOT / "README.md").read_text().split())
    missing = {line[-1] for line in EXPECTED if line[-1] not in readme}
    assert not missing
