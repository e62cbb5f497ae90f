"""What the differential harness asks about groups, transactions and the cluster."""

from differential_cases import (ANY, BOOKS, LEADER, PLAIN, READERS, UNKNOWN_ID, adding, books, case, commit, join,
                                joining, ledger, missing, offsets, own_group, own_transaction)

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
case(11, "with nothing in common", PLAIN, lambda side: {**joining(join(side)["groupId"]), "protocolType": "connect"},
     ends=True)
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
case(16, "those that are empty", PLAIN, lambda side: {"statesFilter": ["Empty"]},
     lambda version: version >= 4, lists=True)
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
    side, own_group(side), subscribedTopicRegex="(", subscribedTopicNames=None), lambda version: version >= 1,
     ends=True)
case(68, "of an unknown member", ANY, lambda side: consuming(side, consumers(side), "m-1", 4), ends=True)
case(68, "with an unknown assignor", ANY, lambda side: consuming(side, own_group(side), serverAssignor="none"),
     ends=True)
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
case(24, "a partition", ANY, lambda side: adding(own_transaction(side), ledger(side)))
case(24, "unknown topic", ANY, lambda side: adding(own_transaction(side), missing(side)), ends=True)
case(24, "two partitions, one unknown", ANY, lambda side: adding(own_transaction(side), ledger(side), (0, 7)),
     ends=True)
case(24, "with an unknown producer", ANY,
     lambda side: {**adding(own_transaction(side), ledger(side)), "v3AndBelowProducerId": 1}, ends=True)
case(25, "a group", PLAIN, lambda side: {**own_transaction(side), "groupId": own_group(side)})
case(25, "with an unknown producer", PLAIN, lambda side: {**own_transaction(side), "producerId": 1,
                                                          "groupId": own_group(side)}, ends=True)
case(26, "nothing in it", PLAIN, lambda side: {**own_transaction(side), "committed": True})
case(26, "aborted", PLAIN, lambda side: {**_with_group(side), "committed": False}, ends=True)
case(26, "with an unknown producer", PLAIN, lambda side: {**own_transaction(side), "producerId": 1}, ends=True)
case(27, "of a topic", LEADER, lambda side: markers(side, ledger(side)))
case(27, "unknown topic", LEADER, lambda side: markers(side, missing(side)))
case(28, "of a topic", ANY, lambda side: {**_with_group(side), "topics": offsets(side, books(side))})
case(28, "unknown topic", ANY, lambda side: {**_with_group(side), "topics": offsets(side, missing(side))}, ends=True)
case(28, "unknown partition", ANY, lambda side: {**_with_group(side), "topics": offsets(side, books(side), 7)},
     ends=True)
case(65, "one", PLAIN, lambda side: {"transactionalIds": [own_transaction(side)["transactionalId"]]})
case(65, "an unknown one", PLAIN, lambda side: {"transactionalIds": [side.named("nobody")]})
case(66, "all", PLAIN, lambda side: {}, lists=True)
case(66, "in each state that there is", PLAIN, lambda side: {"stateFilters": [
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence"]},
    lists=True)
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
