"""Cases of the differential harness, and what their requests share. The cases are in differential_topics.py and
differential_groups.py: at least one request for every API key that a broker offers to clients.

A request names the fields that matter, for all versions at once; those that a version does not have are left out of it.
It may set things up first, with names of its own (`side.fresh`), so that each version finds the same state.
"""

import dataclasses
from collections.abc import Callable

from differential import now

# On which sides a case is asked. Kafka itself always is.
PLAIN = ("bootstrap", "mapped")  # names no topic
ANY = ("bootstrap", "mapped", "diskless")  # any broker may be asked
LEADER = ("mapped", "diskless")  # asked of the leader: a mapped listener, or the virtual broker

FIRST_TIMESTAMP = now() - 3_600_000
NONE, POLICY_VIOLATION = 0, 44
UNKNOWN_ID = "0bJ3VbNRRAaFWwBkb0ZQAw"
BOOKS, LEDGER, READERS = "books", "ledger", "readers"


@dataclasses.dataclass(frozen=True)
class Case:
    api: int
    name: str
    sides: tuple
    request: Callable
    versions: Callable
    # Only the first and the last version: it makes topics or groups, and the first case of its key has all versions.
    ends: bool
    # The answer lists all there is, so it is cut to what every side has.
    lists: bool


CASES = []


def case(api, name, sides, request, versions=lambda version: True, ends=False, lists=False):
    CASES.append(Case(api, name, sides, request, versions, ends, lists))


# --- set-up that requests share


def books(side):
    return side.topic_named(BOOKS)


def books_id(side):
    return side.id_of(books(side))


def ledger(side):
    """The topic of transactions, whose markers would be in the way of requests about records."""
    return side.topic_named(LEDGER)


def missing(side):
    return side.topic_named("missing")


def batch(side, values=("a", "b"), producer=None, sequence=0, transactional=False, epoch=0):
    records = {"values": list(values), "timestamp": FIRST_TIMESTAMP, "producerEpoch": epoch, "baseSequence": sequence,
               "transactional": transactional}
    return {**records, "producerId": side.producer() if producer is None else producer}


def own_topic(side, what="own"):
    return side.make_topic(side.fresh(what))


def own_group(side, what="group"):
    return side.named(side.fresh(what))


def joining(group, member=""):
    return {"groupId": group, "sessionTimeoutMs": 30000, "rebalanceTimeoutMs": 5000, "memberId": member,
            "protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}]}


def join(side):
    """A group with one member, which has synchronised; fields that name all of it."""
    group = own_group(side)
    member = side.call(11, 5, joining(group))["memberId"]
    joined = side.call(11, 5, joining(group, member))
    synced = {"groupId": group, "generationId": joined["generationId"], "memberId": member,
              "assignments": [{"memberId": member, "assignment": "all"}]}
    side.call(14, 3, synced)
    generation = joined["generationId"]
    return {"groupId": group, "memberId": member, "generationId": generation, "generationIdOrMemberEpoch": generation}


def offsets(side, name, partition=0, offset=3):
    partitions = [{"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1,
                   "committedMetadata": "note"}]
    return [{"name": name, "topicId": side.kept.get(name, UNKNOWN_ID), "partitions": partitions}]


def commit(side, group, member="", generation=-1, **where):
    return {"groupId": group, "memberId": member, "generationIdOrMemberEpoch": generation,
            "topics": offsets(side, where.pop("topic", books(side)), **where)}


def own_transaction(side):
    """A transaction of its own that has begun with nothing in it; fields that name it."""
    name = side.named(side.fresh("txn"))
    begun = side.call(22, 4, {"transactionalId": name, "transactionTimeoutMs": 60000})
    return {"transactionalId": name, "producerId": begun["producerId"], "producerEpoch": begun["producerEpoch"]}


def adding(transaction, topic, partitions=(0,)):
    return {"v3AndBelowTransactionalId": transaction["transactionalId"],
            "v3AndBelowProducerId": transaction["producerId"],
            "v3AndBelowProducerEpoch": transaction["producerEpoch"],
            "v3AndBelowTopics": [{"name": topic, "partitions": list(partitions)}]}


def produce(records, topic=books, partition=0, **fields):
    return lambda side: {"acks": -1, "timeoutMs": 10000, **fields, "topicData": [
        {"name": topic(side), "partitionData": [{"index": partition, "records": records(side)}]}]}
