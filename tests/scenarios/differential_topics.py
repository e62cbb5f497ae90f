"""What the differential harness asks about records, brokers, topics and their settings."""

from differential_cases import (ANY, FIRST_TIMESTAMP, LEADER, NONE, PLAIN, POLICY_VIOLATION, READERS, UNKNOWN_ID,
                                adding, batch, books, books_id, case, missing, own_topic, own_transaction, produce)
from harness import wait_for

# --- records

case(0, "idempotent", LEADER, produce(batch, own_topic))
case(0, "acks of one", LEADER, produce(batch, own_topic, acks=1), ends=True)
case(0, "a repeated batch", LEADER, lambda side: _repeated(side), ends=True)
case(0, "out of sequence", LEADER, lambda side: _out_of_sequence(side), ends=True)
case(0, "unknown topic", LEADER, produce(batch, missing))
case(0, "unknown partition", LEADER, produce(batch, partition=7))
case(0, "acks of two", LEADER, produce(batch, own_topic, acks=2), ends=True)
case(0, "not idempotent", LEADER, produce(lambda side: {"values": ["a"], "timestamp": FIRST_TIMESTAMP}, own_topic),
     ends=True)
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
    added = adding(transaction, topic)

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
     lambda side: {"topics": [{"name": side.topic_named(side.fresh("auto"))}], "allowAutoTopicCreation": True},
     ends=True)
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
case(19, "a topic with defaults", ANY, create(numPartitions=-1, replicationFactor=-1),
     lambda version: version >= 4, ends=True)
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
case(44, "unknown topic", ANY, alter(2, missing, SETTING), ends=True)
case(44, "an unknown setting", ANY, alter(2, own_topic, [{"name": "no.such", "value": "1"}]), ends=True)
case(44, "an invalid setting", ANY, alter(2, own_topic, [{"name": "retention.ms", "value": "soon"}]), ends=True)
case(44, "unknown broker", PLAIN, alter(4, lambda side: "77", SETTING), ends=True)
case(44, "a kind that there is not", PLAIN, alter(99, lambda side: "a", SETTING), ends=True)
case(74, "of all kinds", PLAIN, lambda side: {"resourceTypes": []}, lists=True)
case(74, "of brokers", PLAIN, lambda side: {"resourceTypes": [4]}, lambda version: version >= 1)
case(74, "of a kind that there is not", PLAIN, lambda side: {"resourceTypes": [99]}, lambda version: version >= 1)
