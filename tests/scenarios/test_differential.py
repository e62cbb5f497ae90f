"""Whatever a client asks that Kafka answers, the proxy answers alike: the calls of differential_cases.py go to Kafka and
through the proxy, in every version that the proxy offers, and their answers may differ only as EXPECTED says."""

import dataclasses

from differential import Side, differences, normalised
from differential_cases import BOOKS, CASES, READERS, batch, commit, produce
from harness import wait_for


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
    """The topic and the group that requests name without changing them."""
    topic = side.make_topic(BOOKS, 2)
    side.call_leader(0, 9, produce(lambda s: batch(s, "abcde"), lambda _: topic)(side))
    group, transaction = side.named(READERS), {"transactionalId": side.named("txn"), "transactionTimeoutMs": 60000}
    # The first to ask for a coordinator has its topic created, which takes a while.
    wait_for(lambda: not side.call(10, 3, {"key": group})["errorCode"], 30, "a coordinator of groups")
    wait_for(lambda: not side.call(8, 8, commit(side, group))["topics"][0]["partitions"][0]["errorCode"], 30, "a commit")
    side.call(10, 3, {"key": transaction["transactionalId"], "keyType": 1})
    wait_for(lambda: not side.call(22, 4, transaction)["errorCode"], 30, "a coordinator of transactions")


def offered_by(side):
    answer = side.call(18, 4, {"clientSoftwareName": "probe", "clientSoftwareVersion": "1"})
    return {key["apiKey"]: range(key["minVersion"], key["maxVersion"] + 1) for key in answer["apiKeys"]}


def ask(case, version, side, addresses):
    side.case, side.version = f"{case.api} {case.name}", version
    answer = side.probe(side.address, case.api, version, case.request(side))
    return normalised(answer.get("response", answer), side, addresses, listing=case.lists)


def versions_of(case, offered):
    versions = [version for version in offered.get(case.api, ()) if case.versions(version)]
    return sorted({versions[0], versions[-1]}) if case.ends else versions


def ask_all(sides, addresses, cases):
    kafka, *others = sides
    offered = offered_by(others[0])
    # Advertised for clients that look for it, and served by nobody.
    offered[0] = range(3, offered[0].stop)
    for case in cases:
        for version in versions_of(case, offered):
            direct = ask(case, version, kafka, addresses)
            for side in others:
                if side.name in case.sides:
                    ours = ask(case, version, side, addresses)
                    for path, one, other in differences(direct, ours):
                        yield Difference(case.api, case.name, side.name, version, path, one, other)
