"""Where the proxy's answers differ from Kafka's, and why. A difference that is not here fails the harness, and so does
a line here that nothing differs by any more. README gives the same reasons, in the same words.
"""

import fnmatch

PASSED, VIRTUAL, DISKLESS = ("bootstrap", "mapped"), ("bootstrap", "diskless"), ("diskless",)
EVERYWHERE = ("bootstrap", "mapped", "diskless")

CAPS = "later versions name other brokers' addresses, past the proxies"
TRANSACTION_2 = "these belong to `transaction.version` 2, where a partition's leader adds it to the transaction"
CORDONED = "version 5 only adds whether a directory is cordoned (KIP-1066)"
SHARE = "share groups would read the empty shadow topic"
BROKERS = "virtual brokers are listed with the brokers, since clients must reach them"
LEADERS = "virtual brokers lead diskless partitions and are their replicas"
LOG = "the proxies' own log is not shown"
AT_ONCE = "a diskless topic exists when it is answered; Kafka says that there is none and creates it meanwhile"
SETTING = "diskless topics show `diskless.enable`"
IDEMPOTENCE = "refused for diskless topics, since a retry could write twice"
TRANSACTIONS = "refused for diskless topics, which have no transactions yet"
DELETION = "refused for diskless topics, which delete no records yet"
PRODUCERS = "refused for diskless topics, whose producers are not listed yet"
REPEATED = ("answered as it was at first, without an append time where the topic has none; Kafka gives its last "
            "timestamp")
REFUSED_BATCH = "says that the metadata log refused it, and gives no log start; no client uses that beside an error"
NO_GROUPS = "a virtual broker coordinates none; each broker lists its own"
NO_REPLICAS = "a virtual broker has no directories of replicas: the call ends the connection"
DIRECTORY = "a virtual broker has one directory, the object store, with the diskless partitions"
HANDSHAKE_0 = "version 0 ends the connection, since no frames come after it; librdkafka wants it listed"

# API key, case, sides, path in the answer, reason. `*` stands for anything.
EXPECTED = [
    (18, "of a client", PASSED, "apiKeys.0.maxVersion", CAPS),
    (18, "of a client", PASSED, "apiKeys.1.maxVersion", CAPS),
    (18, "of a client", PASSED, "apiKeys.55.maxVersion", CAPS),
    (18, "of a client", PASSED, "apiKeys.26.maxVersion", TRANSACTION_2),
    (18, "of a client", PASSED, "apiKeys.27.maxVersion", TRANSACTION_2),
    (18, "of a client", PASSED, "apiKeys.28.maxVersion", TRANSACTION_2),
    (18, "of a client", PASSED, "*Features.transaction.version", TRANSACTION_2),
    (18, "of a client", PASSED, "apiKeys.24.maxVersion", "later versions are for brokers"),
    (18, "of a client", PASSED, "apiKeys.2.maxVersion", "version 11 only adds an offset of tiered storage (KIP-1023)"),
    (18, "of a client", PASSED, "apiKeys.35.maxVersion", CORDONED),
    *((18, "of a client", PASSED, f"apiKeys.{key}", SHARE) for key in (76, 77, 78, 79, 90, 91, 92)),
    *((18, "of a client", PASSED, f"apiKeys.{key}", "these are between brokers") for key in (83, 84, 85, 86, 87)),
    (3, "*", EVERYWHERE, "brokers.100001", BROKERS),
    (60, "*", PASSED, "brokers.100001", BROKERS),
    *((3, "*", DISKLESS, f"topics.{topic}.partitions.*.{field}", LEADERS)
      for topic in ("books", "ledger") for field in ("leaderId", "replicaNodes.*", "isrNodes.*")),
    (75, "*", DISKLESS, "topics.books.partitions.*.leaderId", LEADERS),
    (75, "*", DISKLESS, "topics.books.partitions.*.replicaNodes.*", LEADERS),
    (75, "*", DISKLESS, "topics.books.partitions.*.isrNodes.*", LEADERS),
    (3, "all topics*", EVERYWHERE, "topics.__differential_log", LOG),
    (3, "a topic that is created by that", DISKLESS, "topics.auto.*", AT_ONCE),
    (19, "*", DISKLESS, "topics.new.configs.diskless.enable", SETTING),
    (32, "a topic*", DISKLESS, "results.0.configs.diskless.enable", SETTING),
    (0, "not idempotent", DISKLESS, "responses.0.partitionResponses.0.*", IDEMPOTENCE),
    (0, "of a transaction", DISKLESS, "responses.0.partitionResponses.0.*", TRANSACTIONS),
    (24, "*", DISKLESS, "resultsByTopicV3AndBelow.0.resultsByPartition.*.partitionErrorCode", TRANSACTIONS),
    (27, "*", DISKLESS, "*", TRANSACTIONS),
    (21, "*", DISKLESS, "topics.own.partitions.0.*", DELETION),
    (61, "of a*", DISKLESS, "topics.books.partitions.0.*", PRODUCERS),
    (0, "a repeated batch", DISKLESS, "responses.0.partitionResponses.0.logAppendTimeMs", REPEATED),
    (0, "out of sequence", DISKLESS, "responses.0.partitionResponses.0.errorMessage", REFUSED_BATCH),
    (0, "out of sequence", DISKLESS, "responses.0.partitionResponses.0.logStartOffset", REFUSED_BATCH),
    (16, "*", ("bootstrap",), "groups.readers", NO_GROUPS),
    (66, "*", ("bootstrap",), "transactionStates.txn", NO_GROUPS),
    (34, "*", VIRTUAL, "*", NO_REPLICAS),
    (35, "*", VIRTUAL, "results.0.*", DIRECTORY),
    (17, "*", PASSED, "*", HANDSHAKE_0),
]


def reasons(difference):
    """The lines that explain a difference."""
    return [line for line in EXPECTED if _explains(line, difference)]


def _explains(line, difference):
    api, case, sides, path, _ = line
    return (api == difference.api and difference.side in sides and fnmatch.fnmatchcase(difference.case, case)
            and fnmatch.fnmatchcase(difference.path, path))
