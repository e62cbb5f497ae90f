"""What the matrix shall show, cell by cell. Whatever is not named here works; what is named and works after all fails too."""

# Calls that a client does not have, for topics of either kind.
NO_API = {
    "confluent-kafka": ["log_dirs"],
    "kafka-python": ["kip_848"],
    "aiokafka": ["kip_848", "log_dirs"],
    "sarama": ["kip_848", "pattern"],
    "kafka-go": ["idempotent", "kip_848", "pattern", "pause", "delete_records", "log_dirs"],
    "kafkajs": ["assigned", "kip_848", "log_dirs"],
    "platformatic": ["assigned", "pattern", "pause"],
}

# What a diskless topic refuses, with POLICY_VIOLATION.
REFUSED = {
    "not_idempotent": "A retry of a producer that is not idempotent could write twice. `diskless.idempotence = \"warn\"` "
                      "takes such producers.",
    "delete_records": "Diskless topics do not delete records yet.",
}

# Clients that show an empty key, value or header as null.
READS_EMPTY_AS_NULL = ["kafka-go"]

# What else a reader of one column should know.
NOTES = {
    "kafka-go": "segmentio/kafka-go. It has no idempotent producer: what it writes to diskless topics it writes with "
                "`diskless.idempotence = \"warn\"`, but for the refusal. It reads empty keys and values as null.",
    "platformatic": "@platformatic/kafka. It pauses whole streams, not partitions, and reads in groups only.",
    "kafkajs": "It reads in groups only. lz4, snappy and zstd come from other packages.",
    "confluent-kafka": "librdkafka; kcat, which is made of it as well, is tested beside the matrix.",
}


def expected(client, operation, kind):
    if operation in NO_API.get(client, []):
        return "no API"
    if kind == "diskless" and operation in REFUSED:
        return "refused"
    return "yes"
