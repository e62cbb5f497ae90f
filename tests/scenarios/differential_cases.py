"""What the differential harness asks: at least one request for every API key that a broker of Kafka 4.3 offers to clients.

A request names the fields that matter, for all versions at once; those that a version does not have are left out of it.
It may set things up first, with names of its own (`side.fresh`), so that each version finds the same state.
"""

import dataclasses
from collections.abc import Callable

from differential import now
from harness import wait_for

# On which sides a case is asked. Kafka itself always is.
PLAIN = ("bootstrap", "mapped")  # names no topic
ANY = ("bootstrap", "mapped", "diskless")  # any broker may be asked
LEADER = ("mapped", "diskless")  # asked of the leader: a mapped listener, or the virtual broker

FIRST_TIMESTAMP = now() - 3_600_000
NONE, POLICY_VIOLATION = 0, 44
UNKNOWN_ID = "0bJ3VbNRRAaFWwBkb0ZQAw"
BOOKS, READERS = "books", "readers"


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


def adding(side, topic, partitions=(0,)):
    transaction = own_transaction(side)
    return {"v3AndBelowTransactionalId": transaction["transactionalId"],
            "v3AndBelowProducerId": transaction["producerId"],
            "v3AndBelowProducerEpoch": transaction["producerEpoch"],
            "v3AndBelowTopics": [{"name": topic, "partitions": list(partitions)}]}


# --- records

def produce(records, topic=books, partition=0, **fields):
    return lambda side: {"acks": -1, "timeoutMs": 10000, **fields, "topicData": [
        {"name": topic(side), "partitionData": [{"index": partition, "records": records(side)}]}]}


case(0, "idempotent", LEADER, produce(batch, own_topic))
case(0, "acks of one", LEADER, produce(batch, own_topic, acks=1), ends=True)
case(0, "a repeated batch", LEADER, lambda side: _repeated(side), ends=True)
case(0, "out of sequence", LEADER, lambda side: _out_of_sequence(side), ends=True)
case(0, "unknown topic", LEADER, produce(batch, missing))
case(0, "unknown partition", LEADER, produce(batch, partition=7))
case(0, "acks of two", LEADER, produce(batch, own_topic, acks=2), ends=True)
case(0, "not idempotent", LEADER, produce(lambda side: {"values": ["a"], "timestamp": FIRST_TIMESTAMP}, own_topic), ends=True)
case(0, "of a transaction", LEADER, lambda side: _in_transaction(side), ends=True)
case(0, "two partitions, one unknown", LEADER, lambda side: _two_partitions(side), ends=True)


def _repeated(side):
    topic, records = own_topic(side), batch(side)
    request = produce(lambda _: records, lambda _: topic)(side)
    side.call_leader(0, 9, request)
    return request


def _out_of_sequence(side):
    topic, producer = own_topic(side), side.producer()
    side.call_leader(0, 9, produce(lambda s: batch(s, producer=producer), lambda _: topic)(side))
    return produce(lambda s: batch(s, producer=producer, sequence=9), lambda _: topic)(side)


def _in_transaction(side):
    transaction, topic = own_transaction(side), own_topic(side)
    added = {"v3AndBelowTransactionalId": transaction["transactionalId"], "v3AndBelowProducerId": transaction["producerId"],
             "v3AndBelowProducerEpoch": transaction["producerEpoch"],
             "v3AndBelowTopics": [{"name": topic, "partitions": [0]}]}

    def is_settled():
        result = side.call(24, 3, added)["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]
        return result["partitionErrorCode"] in (NONE, POLICY_VIOLATION)

    wait_for(is_settled, 30, "a partition in a transaction")
    return produce(lambda s: batch(s, producer=transaction["producerId"], epoch=transaction["producerEpoch"],
                                   transactional=True), lambda _: topic,
                   transactionalId=transaction["transactionalId"])(side)


def _two_partitions(side):
    topic = own_topic(side)
    request = produce(batch, lambda _: topic)(side)
    request["topicData"][0]["partitionData"].append({"index": 5, "records": batch(side)})
    return request


def fetch(topic=books, partition=0, offset=0, epoch=-1, topic_id=None, **fields):
    def request(side):
        name = topic(side)
        asked = {"partition": partition, "fetchOffset": offset, "currentLeaderEpoch": epoch,
                 "partitionMaxBytes": 1 << 20}
        return {"maxWaitMs": 100, "minBytes": 0, "maxBytes": 1 << 20, "sessionEpoch": -1, **fields, "topics": [
            {"topic": name, "topicId": topic_id or side.kept.get(name, UNKNOWN_ID), "partitions": [asked]}]}
    return request


case(1, "from the start", LEADER, fetch())
case(1, "from the middle", LEADER, fetch(offset=3))
case(1, "at the end", LEADER, fetch(offset=5))
case(1, "an empty partition", LEADER, fetch(partition=1))
case(1, "read committed", LEADER, fetch(isolationLevel=1))
case(1, "beyond the end", LEADER, fetch(offset=99))
case(1, "a negative offset", LEADER, fetch(offset=-1))
case(1, "unknown topic", LEADER, fetch(missing))
case(1, "unknown partition", LEADER, fetch(partition=7))
case(1, "an epoch to come", LEADER, fetch(epoch=99))
case(1, "a new session", LEADER, fetch(sessionEpoch=0))
case(1, "a session that there is not", LEADER, fetch(sessionId=77, sessionEpoch=3))
case(1, "one byte at most", LEADER, fetch(maxBytes=1))
case(1, "nothing asked", LEADER, lambda side: {"maxWaitMs": 0, "minBytes": 0, "sessionEpoch": -1, "topics": []})


def list_offsets(timestamp, topic=books, partition=0, **fields):
    def request(side):
        asked = {"partitionIndex": partition, "currentLeaderEpoch": fields.get("epoch", -1), "timestamp": timestamp}
        return {"replicaId": -1, "isolationLevel": fields.get("isolation", 0), "timeoutMs": 10000, "topics": [
            {"name": topic(side), "partitions": [asked]}]}
    return request


case(2, "the end", LEADER, list_offsets(-1))
case(2, "the end, read committed", LEADER, list_offsets(-1, isolation=1))
case(2, "the start", LEADER, list_offsets(-2))
case(2, "the largest timestamp", LEADER, list_offsets(-3))
case(2, "the start of what is local", LEADER, list_offsets(-4))
case(2, "the end of what is tiered", LEADER, list_offsets(-5))
case(2, "a sentinel of later", LEADER, list_offsets(-6))
case(2, "a sentinel that there is not", LEADER, list_offsets(-99))
case(2, "a timestamp", LEADER, list_offsets(FIRST_TIMESTAMP + 2))
case(2, "a timestamp to come", LEADER, list_offsets(FIRST_TIMESTAMP + 100_000_000))
case(2, "an empty partition", LEADER, list_offsets(-1, partition=1))
case(2, "the largest timestamp of an empty partition", LEADER, list_offsets(-3, partition=1))
case(2, "unknown topic", LEADER, list_offsets(-1, missing))
case(2, "unknown partition", LEADER, list_offsets(-1, partition=7))
case(2, "an epoch to come", LEADER, list_offsets(-1, epoch=99))
case(2, "an epoch gone by", LEADER, list_offsets(-1, epoch=-5))


def epochs(epoch, topic=books, partition=0, current=-1):
    asked = {"partition": partition, "currentLeaderEpoch": current, "leaderEpoch": epoch}
    return lambda side: {"replicaId": -1, "topics": [{"topic": topic(side), "partitions": [asked]}]}


case(23, "the first", LEADER, epochs(0))
case(23, "one to come", LEADER, epochs(50))
case(23, "none", LEADER, epochs(-1))
case(23, "a current one to come", LEADER, epochs(0, current=99))
case(23, "unknown topic", LEADER, epochs(0, missing))
case(23, "unknown partition", LEADER, epochs(0, partition=7))


def delete_records(offset, topic, partition=0):
    return lambda side: {"timeoutMs": 10000, "topics": [
        {"name": topic(side), "partitions": [{"partitionIndex": partition, "offset": offset}]}]}


def _filled(side):
    topic = own_topic(side)
    side.call_leader(0, 9, produce(batch, lambda _: topic)(side))
    return topic


case(21, "the first record", LEADER, delete_records(1, _filled))
case(21, "all", LEADER, delete_records(-1, _filled), ends=True)
case(21, "beyond the end", LEADER, delete_records(99, _filled), ends=True)
case(21, "unknown topic", LEADER, delete_records(0, missing))
case(21, "unknown partition", LEADER, delete_records(0, books, 7))


def producers(topic, partition=0):
    return lambda side: {"topics": [{"name": topic(side), "partitionIndexes": [partition]}]}


case(61, "of a partition", LEADER, producers(books))
case(61, "of an empty partition", LEADER, producers(books, 1))
case(61, "unknown topic", LEADER, producers(missing))
case(61, "unknown partition", LEADER, producers(books, 7))

# --- brokers and topics

case(3, "one topic", ANY, lambda side: {"topics": [{"name": books(side)}]})
case(3, "all topics", ANY, lambda side: {"topics": None}, lambda version: version > 0, lists=True)
case(3, "all topics as version 0 asks", ANY, lambda side: {"topics": []}, lambda version: version == 0, lists=True)
case(3, "no topics", PLAIN, lambda side: {"topics": []}, lambda version: version > 0)
case(3, "a topic by id", ANY, lambda side: {"topics": [{"topicId": books_id(side), "name": None}]},
     lambda version: version >= 12)
case(3, "unknown id", ANY, lambda side: {"topics": [{"topicId": UNKNOWN_ID, "name": None}]},
     lambda version: version >= 12)
case(3, "unknown topic", ANY, lambda side: {"topics": [{"name": missing(side)}], "allowAutoTopicCreation": False},
     lambda version: version >= 4)
case(3, "an invalid name", PLAIN, lambda side: {"topics": [{"name": "a b"}], "allowAutoTopicCreation": False})
case(3, "a topic that is created by that", ANY,
     lambda side: {"topics": [{"name": side.topic_named(side.fresh("auto"))}], "allowAutoTopicCreation": True}, ends=True)
case(3, "rights", ANY, lambda side: {"topics": [{"name": books(side)}], "includeTopicAuthorizedOperations": True,
                                     "includeClusterAuthorizedOperations": True}, lambda version: 8 <= version <= 10)
case(3, "rights on a topic", ANY, lambda side: {"topics": [{"name": books(side)}],
                                                "includeTopicAuthorizedOperations": True}, lambda version: version >= 8)
case(60, "brokers", PLAIN, lambda side: {"includeClusterAuthorizedOperations": True})
case(60, "controllers", PLAIN, lambda side: {"endpointType": 2}, lambda version: version >= 1)
case(60, "fenced brokers as well", PLAIN, lambda side: {"includeFencedBrokers": True}, lambda version: version >= 2)
case(75, "one topic", ANY, lambda side: {"topics": [{"name": books(side)}], "responsePartitionLimit": 100})
case(75, "a page of one partition", ANY, lambda side: {"topics": [{"name": books(side)}], "responsePartitionLimit": 1})
case(75, "the second page", ANY, lambda side: {"topics": [{"name": books(side)}], "responsePartitionLimit": 1,
                                               "cursor": {"topicName": books(side), "partitionIndex": 1}})
case(75, "unknown topic", ANY, lambda side: {"topics": [{"name": missing(side)}], "responsePartitionLimit": 100})
case(10, "of a group", PLAIN, lambda side: {"key": side.named(READERS), "coordinatorKeys": [side.named(READERS)]})
case(10, "of a transaction", PLAIN, lambda side: {"key": side.named("txn"), "coordinatorKeys": [side.named("txn")],
                                                  "keyType": 1}, lambda version: version > 0)
case(10, "of a kind that there is not", PLAIN,
     lambda side: {"key": "a", "coordinatorKeys": ["a"], "keyType": 9}, lambda version: version > 0)
case(18, "of a client", PLAIN, lambda side: {"clientSoftwareName": "probe", "clientSoftwareVersion": "1"})
case(18, "of a client with a bad name", PLAIN,
     lambda side: {"clientSoftwareName": "pro be!", "clientSoftwareVersion": ""}, lambda version: version >= 3)


def create(name=lambda side: side.topic_named(side.fresh("new")), validate=False, **fields):
    return lambda side: {"timeoutMs": 10000, "validateOnly": validate, "topics": [
        {"name": name(side), "numPartitions": 2, "replicationFactor": 1, **fields}]}


case(19, "a topic", ANY, create())
case(19, "a topic with defaults", ANY, create(numPartitions=-1, replicationFactor=-1), lambda version: version >= 4, ends=True)
case(19, "a topic with settings", ANY, create(configs=[{"name": "retention.ms", "value": "60000"}]), ends=True)
case(19, "a trial", ANY, create(validate=True), ends=True)
case(19, "a topic that exists", ANY, create(books), ends=True)
case(19, "a trial of a topic that exists", ANY, create(books, validate=True), ends=True)
case(19, "an invalid name", PLAIN, create(lambda side: "a b"), ends=True)
case(19, "no partitions", ANY, create(numPartitions=0), ends=True)
case(19, "too many replicas", ANY, create(replicationFactor=9), ends=True)
case(19, "replicas by hand", ANY, create(numPartitions=-1, replicationFactor=-1, assignments=[
    {"partitionIndex": 0, "brokerIds": [1]}]), ends=True)
case(19, "replicas by hand on no broker", ANY, create(numPartitions=-1, replicationFactor=-1, assignments=[
    {"partitionIndex": 0, "brokerIds": [77]}]), ends=True)
case(19, "an unknown setting", ANY, create(configs=[{"name": "no.such", "value": "1"}]), ends=True)
case(19, "an invalid setting", ANY, create(configs=[{"name": "retention.ms", "value": "soon"}]), ends=True)


def delete(name):
    def request(side):
        topic = name(side)
        return {"timeoutMs": 10000, "topicNames": [topic], "topics": [{"name": topic}]}
    return request


case(20, "a topic", ANY, delete(own_topic))
case(20, "a topic by id", ANY, lambda side: {"timeoutMs": 10000, "topics": [
    {"name": None, "topicId": side.id_of(own_topic(side))}]}, lambda version: version >= 6, ends=True)
case(20, "unknown topic", ANY, delete(missing))
case(20, "unknown id", ANY, lambda side: {"timeoutMs": 10000, "topics": [{"name": None, "topicId": UNKNOWN_ID}]},
     lambda version: version >= 6)


def grow(count, name=own_topic, **fields):
    return lambda side: {"timeoutMs": 10000, **fields, "topics": [{"name": name(side), "count": count,
                                                                   "assignments": None}]}


case(37, "two more", ANY, grow(3))
case(37, "a trial", ANY, grow(3, validateOnly=True), ends=True)
case(37, "fewer", ANY, grow(1, books), ends=True)
case(37, "as many", ANY, grow(2, books), ends=True)
case(37, "unknown topic", ANY, grow(3, missing), ends=True)

# --- settings


def describe(kind, name, keys=None, **fields):
    return lambda side: {**fields, "resources": [
        {"resourceType": kind, "resourceName": name(side), "configurationKeys": keys}]}


case(32, "a topic", ANY, describe(2, books))
case(32, "a topic in full", ANY, describe(2, books, includeSynonyms=True, includeDocumentation=True),
     lambda version: version >= 3)
case(32, "one setting", ANY, describe(2, books, ["retention.ms"]))
case(32, "no setting", ANY, describe(2, books, ["no.such"]))
case(32, "unknown topic", ANY, describe(2, missing))
case(32, "a broker", PLAIN, describe(4, lambda side: "1"))
case(32, "all brokers", PLAIN, describe(4, lambda side: ""))
case(32, "unknown broker", PLAIN, describe(4, lambda side: "77"))
case(32, "a kind that there is not", PLAIN, describe(99, lambda side: "a"))


def alter(kind, name, entries):
    return lambda side: {"validateOnly": False, "resources": [
        {"resourceType": kind, "resourceName": name(side), "configs": entries}]}


SETTING = [{"name": "retention.ms", "value": "60000"}]
case(33, "a topic", ANY, alter(2, own_topic, SETTING))
case(33, "unknown topic", ANY, alter(2, missing, SETTING), ends=True)
case(33, "an unknown setting", ANY, alter(2, own_topic, [{"name": "no.such", "value": "1"}]), ends=True)
case(33, "an invalid setting", ANY, alter(2, own_topic, [{"name": "retention.ms", "value": "soon"}]), ends=True)
case(33, "unknown broker", PLAIN, alter(4, lambda side: "77", []), ends=True)
case(44, "a topic", ANY, alter(2, own_topic, SETTING))
case(44, "a setting removed", ANY, alter(2, own_topic, [
    {"name": "retention.ms", "configOperation": 1, "value": None}]), ends=True)
case(44, "appended to what is no list", ANY, alter(2, own_topic, [
    {"name": "retention.ms", "configOperation": 2, "value": "1"}]), ends=True)
case(44, "an operation that there is not", ANY, alter(2, own_topic, [
    {"name": "retention.ms", "configOperation": 9, "value": "1"}]), ends=True)
case(44, "unknown topic", ANY, alter(2, missing, SETTING), ends=True)
case(44, "an unknown setting", ANY, alter(2, own_topic, [{"name": "no.such", "value": "1"}]), ends=True)
case(44, "an invalid setting", ANY, alter(2, own_topic, [{"name": "retention.ms", "value": "soon"}]), ends=True)
case(44, "unknown broker", PLAIN, alter(4, lambda side: "77", SETTING), ends=True)
case(44, "a kind that there is not", PLAIN, alter(99, lambda side: "a", SETTING), ends=True)
case(74, "of all kinds", PLAIN, lambda side: {"resourceTypes": []}, lists=True)
case(74, "of brokers", PLAIN, lambda side: {"resourceTypes": [4]}, lambda version: version >= 1)
case(74, "of a kind that there is not", PLAIN, lambda side: {"resourceTypes": [99]}, lambda version: version >= 1)

# --- groups

case(8, "of no member", ANY, lambda side: commit(side, own_group(side)))
case(8, "of a member", ANY, lambda side: {**commit(side, "", "", -1), **join(side)}, ends=True)
case(8, "of an unknown member", ANY, lambda side: commit(side, own_group(side), "who", 3), ends=True)
case(8, "unknown topic", ANY, lambda side: commit(side, own_group(side), topic=missing(side)), ends=True)
case(8, "unknown partition", ANY, lambda side: commit(side, own_group(side), partition=7), ends=True)


def committed(group, topics):
    def request(side):
        asked = topics(side)
        named = asked and [{"name": name, "topicId": side.kept.get(name, UNKNOWN_ID), "partitionIndexes": [0, 1]}
                           for name in asked]
        return {"groupId": group(side), "topics": named, "groups": [{"groupId": group(side), "topics": named}]}
    return request


def readers(side):
    return side.named(READERS)


def no_group(side):
    return side.named("nobody")


case(9, "of a topic", ANY, committed(readers, lambda side: [books(side)]))
case(9, "of all topics", ANY, committed(readers, lambda side: None), lambda version: version >= 2)
case(9, "of an unknown topic", ANY, committed(readers, lambda side: [missing(side)]))
case(9, "of an unknown group", ANY, committed(no_group, lambda side: [books(side)]))
case(11, "the first", PLAIN, lambda side: joining(own_group(side)))
case(11, "with an unknown member", PLAIN, lambda side: joining(own_group(side), "who"), ends=True)
case(11, "with no group", PLAIN, lambda side: joining(""))
case(11, "with a session too short", PLAIN, lambda side: {**joining(own_group(side)), "sessionTimeoutMs": 1}, ends=True)
case(11, "with nothing in common", PLAIN, lambda side: {**joining(join(side)["groupId"]), "protocolType": "connect"}, ends=True)
case(12, "of a member", PLAIN, join)
case(12, "of an unknown group", PLAIN, lambda side: {"groupId": no_group(side), "generationId": 1, "memberId": "who"})
case(13, "a member", PLAIN, lambda side: _leaving(join(side)))
case(13, "an unknown group", PLAIN, lambda side: _leaving({"groupId": no_group(side), "memberId": "who"}))
case(14, "again", PLAIN, lambda side: join(side))
case(14, "an unknown group", PLAIN, lambda side: {"groupId": no_group(side), "generationId": 1, "memberId": "who"})
case(15, "a group with a member", PLAIN, lambda side: {"groups": [join(side)["groupId"]],
                                                       "includeAuthorizedOperations": True})
case(15, "a group without", PLAIN, lambda side: {"groups": [readers(side)]})
case(15, "unknown group", PLAIN, lambda side: {"groups": [no_group(side)]})
case(16, "all", PLAIN, lambda side: {}, lists=True)
case(16, "those that are empty", PLAIN, lambda side: {"statesFilter": ["Empty"]}, lambda version: version >= 4, lists=True)
case(16, "those in an unknown state", PLAIN, lambda side: {"statesFilter": ["None such"]},
     lambda version: version >= 4, lists=True)
case(16, "those of an unknown type", PLAIN, lambda side: {"typesFilter": ["None such"]}, lambda version: version >= 5,
     lists=True)
case(42, "an empty group", PLAIN, lambda side: _deleting(side))
case(42, "a group with a member", PLAIN, lambda side: {"groupsNames": [join(side)["groupId"]]}, ends=True)
case(42, "unknown group", PLAIN, lambda side: {"groupsNames": [no_group(side)]})
case(47, "of a topic", ANY, lambda side: _deleting_offsets(side))
case(47, "of an unknown group", ANY, lambda side: {"groupId": no_group(side), "topics": [
    {"name": books(side), "partitions": [{"partitionIndex": 0}]}]})


def _leaving(member):
    return {**member, "members": [{"memberId": member["memberId"]}]}


def _deleting(side):
    group = own_group(side)
    side.call(8, 8, commit(side, group))
    return {"groupsNames": [group]}


def _deleting_offsets(side):
    group = own_group(side)
    side.call(8, 8, commit(side, group))
    return {"groupId": group, "topics": [{"name": books(side), "partitions": [{"partitionIndex": 0}]}]}


def consuming(side, group, member="m-0000000000000000000000", epoch=0, **fields):
    return {"groupId": group, "memberId": member, "memberEpoch": epoch, "rebalanceTimeoutMs": 10000,
            "subscribedTopicNames": [books(side)], "topicPartitions": [], **fields}


def consumers(side):
    """A group of KIP-848 with a member."""
    group = own_group(side, "consumers")
    side.call(68, 1, consuming(side, group))
    return group


case(68, "the first", ANY, lambda side: consuming(side, own_group(side)))
case(68, "the first, with a pattern", ANY, lambda side: consuming(
    side, own_group(side), subscribedTopicRegex=f"{side.prefix}{BOOKS}[.]zz{side.mark}", subscribedTopicNames=None),
    lambda version: version >= 1, ends=True)
case(68, "the first, with a pattern that is none", PLAIN, lambda side: consuming(
    side, own_group(side), subscribedTopicRegex="(", subscribedTopicNames=None), lambda version: version >= 1, ends=True)
case(68, "of an unknown member", ANY, lambda side: consuming(side, consumers(side), "m-1", 4), ends=True)
case(68, "with an unknown assignor", ANY, lambda side: consuming(side, own_group(side), serverAssignor="none"), ends=True)
case(68, "with no group", PLAIN, lambda side: consuming(side, ""), ends=True)
case(69, "a group", ANY, lambda side: {"groupIds": [consumers(side)], "includeAuthorizedOperations": True})
case(69, "unknown group", PLAIN, lambda side: {"groupIds": [no_group(side)]})


def streaming(side, group, epoch=0):
    topology = {"epoch": 0, "subtopologies": [{"subtopologyId": "0", "sourceTopics": [books(side)]}]}
    return {"groupId": group, "memberId": "s-0000000000000000000000", "memberEpoch": epoch, "rebalanceTimeoutMs": 10000,
            "topology": topology, "activeTasks": [], "standbyTasks": [], "warmupTasks": [], "processId": "p",
            "clientTags": []}


def streams(side):
    group = own_group(side, "streams")
    side.call(88, 0, streaming(side, group))
    return group


case(88, "the first", ANY, lambda side: streaming(side, own_group(side)))
case(88, "of an unknown member", ANY, lambda side: streaming(side, own_group(side), 4), ends=True)
case(89, "a group", ANY, lambda side: {"groupIds": [streams(side)], "includeAuthorizedOperations": True})
case(89, "unknown group", PLAIN, lambda side: {"groupIds": [no_group(side)]})

# --- producers and transactions

case(22, "without a transaction", PLAIN, lambda side: {"transactionalId": None, "transactionTimeoutMs": 60000})
case(22, "of a transaction", PLAIN, lambda side: {"transactionalId": side.named(side.fresh("txn")),
                                                  "transactionTimeoutMs": 60000}, ends=True)
case(22, "with too long a timeout", PLAIN, lambda side: {"transactionalId": side.named(side.fresh("txn")),
                                                         "transactionTimeoutMs": 2_000_000_000}, ends=True)
case(22, "with an empty name", PLAIN, lambda side: {"transactionalId": "", "transactionTimeoutMs": 60000})
case(24, "a partition", ANY, lambda side: adding(side, books(side)))
case(24, "unknown topic", ANY, lambda side: adding(side, missing(side)), ends=True)
case(24, "two partitions, one unknown", ANY, lambda side: adding(side, books(side), (0, 7)), ends=True)
case(24, "with an unknown producer", ANY, lambda side: {**adding(side, books(side)), "v3AndBelowProducerId": 1}, ends=True)
case(25, "a group", PLAIN, lambda side: {**own_transaction(side), "groupId": own_group(side)})
case(25, "with an unknown producer", PLAIN, lambda side: {**own_transaction(side), "producerId": 1,
                                                          "groupId": own_group(side)}, ends=True)
case(26, "nothing in it", PLAIN, lambda side: {**own_transaction(side), "committed": True})
case(26, "aborted", PLAIN, lambda side: {**_with_group(side), "committed": False}, ends=True)
case(26, "with an unknown producer", PLAIN, lambda side: {**own_transaction(side), "producerId": 1}, ends=True)
case(27, "of a topic", LEADER, lambda side: markers(side, books(side)))
case(27, "unknown topic", LEADER, lambda side: markers(side, missing(side)))
case(28, "of a topic", ANY, lambda side: {**_with_group(side), "topics": offsets(side, books(side))})
case(28, "unknown topic", ANY, lambda side: {**_with_group(side), "topics": offsets(side, missing(side))}, ends=True)
case(28, "unknown partition", ANY, lambda side: {**_with_group(side), "topics": offsets(side, books(side), 7)}, ends=True)
case(65, "one", PLAIN, lambda side: {"transactionalIds": [own_transaction(side)["transactionalId"]]})
case(65, "an unknown one", PLAIN, lambda side: {"transactionalIds": [side.named("nobody")]})
case(66, "all", PLAIN, lambda side: {}, lists=True)
case(66, "in two states", PLAIN, lambda side: {"stateFilters": ["Empty", "Ongoing"]}, lists=True)
case(66, "in an unknown state", PLAIN, lambda side: {"stateFilters": ["None such", "empty"]})


def _with_group(side):
    transaction, group = own_transaction(side), own_group(side)
    side.call(25, 3, {**transaction, "groupId": group})
    return {**transaction, "groupId": group}


def markers(side, topic):
    return {"markers": [{"producerId": 12345, "producerEpoch": 0, "transactionResult": False, "coordinatorEpoch": 0,
                         "topics": [{"name": topic, "partitionIndexes": [0]}]}]}


# --- the cluster

NOBODY = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}
case(17, "a mechanism", PLAIN, lambda side: {"mechanism": "PLAIN"})
case(36, "a token", PLAIN, lambda side: {"authBytes": "token"})
case(29, "all", PLAIN, lambda side: NOBODY)
case(30, "one", ANY, lambda side: {"creations": [
    {"resourceType": 2, "resourceName": books(side), "resourcePatternType": 3, "principal": "User:a", "host": "*",
     "operation": 3, "permissionType": 3}]})
case(31, "all", PLAIN, lambda side: {"filters": [NOBODY]})
case(34, "to a directory that there is not", ANY, lambda side: {"dirs": [
    {"path": "/no/such", "topics": [{"name": books(side), "partitions": [0]}]}]})
case(35, "of a topic", ANY, lambda side: {"topics": [{"topic": books(side), "partitions": [0]}]})
case(35, "of an unknown topic", ANY, lambda side: {"topics": [{"topic": missing(side), "partitions": [0]}]})
case(38, "a token", PLAIN, lambda side: {"renewers": [], "maxLifetimeMs": -1})
case(39, "a token", PLAIN, lambda side: {"hmac": "a", "renewPeriodMs": 1})
case(40, "a token", PLAIN, lambda side: {"hmac": "a", "expiryTimePeriodMs": 1})
case(41, "all tokens", PLAIN, lambda side: {"owners": None})
case(43, "of a partition", ANY, lambda side: {"electionType": 0, "timeoutMs": 10000, "topicPartitions": [
    {"topic": books(side), "partitions": [0]}]})
case(43, "of an unknown topic", ANY, lambda side: {"electionType": 0, "timeoutMs": 10000, "topicPartitions": [
    {"topic": missing(side), "partitions": [0]}]})
case(45, "that there is not, cancelled", ANY, lambda side: {"timeoutMs": 10000, "topics": [
    {"name": books(side), "partitions": [{"partitionIndex": 0, "replicas": None}]}]})
case(45, "to no broker", ANY, lambda side: {"timeoutMs": 10000, "topics": [
    {"name": books(side), "partitions": [{"partitionIndex": 0, "replicas": [77]}]}]})
case(45, "of an unknown topic", ANY, lambda side: {"timeoutMs": 10000, "topics": [
    {"name": missing(side), "partitions": [{"partitionIndex": 0, "replicas": None}]}]})
case(46, "all", PLAIN, lambda side: {"timeoutMs": 10000, "topics": None})
case(46, "of a topic", ANY, lambda side: {"timeoutMs": 10000, "topics": [
    {"name": books(side), "partitionIndexes": [0]}]})
case(48, "of users", PLAIN, lambda side: {"components": [{"entityType": "user", "matchType": 2, "match": None}]})
case(49, "a trial", PLAIN, lambda side: {"validateOnly": True, "entries": [
    {"entity": [{"entityType": "user", "entityName": "a"}],
     "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}]})
case(49, "an unknown quota", PLAIN, lambda side: {"validateOnly": True, "entries": [
    {"entity": [{"entityType": "user", "entityName": "a"}], "ops": [{"key": "no_such", "value": 1.0}]}]})
case(50, "of all", PLAIN, lambda side: {"users": None})
case(50, "of an unknown user", PLAIN, lambda side: {"users": [{"name": "nobody"}]})
case(51, "of an unknown user", PLAIN, lambda side: {"deletions": [{"name": "nobody", "mechanism": 1}]})
case(55, "of the metadata", PLAIN, lambda side: {"topics": [
    {"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]})
case(55, "of another topic", ANY, lambda side: {"topics": [
    {"topicName": books(side), "partitions": [{"partitionIndex": 0}]}]})
case(57, "a trial of one that there is not", PLAIN, lambda side: {"timeoutMs": 10000, "validateOnly": True,
     "featureUpdates": [{"feature": "no.such", "maxVersionLevel": 1, "upgradeType": 1}]})
case(64, "unknown broker", PLAIN, lambda side: {"brokerId": 77})
case(80, "an unknown voter", PLAIN, lambda side: {"clusterId": "nowhere", "timeoutMs": 1000, "voterId": 77,
     "voterDirectoryId": UNKNOWN_ID, "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]})
case(81, "an unknown voter", PLAIN, lambda side: {"clusterId": "nowhere", "voterId": 77,
                                                  "voterDirectoryId": UNKNOWN_ID})
