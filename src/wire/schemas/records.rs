//! Schemas of the messages that go to a partition's leader.
//!
//! Tables only, in the order and with the names of the JSON schemas of Kafka 4.3.1.

use super::super::schema::{
    Message, bytes, int8, int16, int32, int32s, int64, message, string, structs, structure, uuid,
};

pub(super) const PRODUCE_REQUEST: Message = message(3, 13).flexible(9).fields(&[
    string("TransactionalId").nullable(3),
    int16("Acks"),
    int32("TimeoutMs"),
    structs(
        "TopicData",
        &[
            string("Name").versions(0, 12),
            uuid("TopicId").since(13),
            structs("PartitionData", &[int32("Index"), bytes("Records").nullable(0)]),
        ],
    ),
]);

pub(super) const FETCH_REQUEST: Message = message(4, 18).flexible(12).fields(&[
    string("ClusterId").since(12).nullable(12).tagged(0),
    int32("ReplicaId").versions(0, 14),
    structure("ReplicaState", &[int32("ReplicaId").since(15), int64("ReplicaEpoch").since(15)]).since(15).tagged(1),
    int32("MaxWaitMs"),
    int32("MinBytes"),
    int32("MaxBytes"),
    int8("IsolationLevel"),
    int32("SessionId").since(7),
    int32("SessionEpoch").since(7),
    structs(
        "Topics",
        &[
            string("Topic").versions(0, 12),
            uuid("TopicId").since(13),
            structs(
                "Partitions",
                &[
                    int32("Partition"),
                    int32("CurrentLeaderEpoch").since(9),
                    int64("FetchOffset"),
                    int32("LastFetchedEpoch").since(12),
                    int64("LogStartOffset").since(5),
                    int32("PartitionMaxBytes"),
                    uuid("ReplicaDirectoryId").since(17).tagged(0),
                    int64("HighWatermark").since(18).tagged(1),
                ],
            ),
        ],
    ),
    structs(
        "ForgottenTopicsData",
        &[string("Topic").versions(7, 12), uuid("TopicId").since(13), int32s("Partitions").since(7)],
    )
    .since(7),
    string("RackId").since(11),
]);

pub(super) const LIST_OFFSETS_REQUEST: Message = message(1, 11).flexible(6).fields(&[
    int32("ReplicaId"),
    int8("IsolationLevel").since(2),
    structs(
        "Topics",
        &[
            string("Name"),
            structs("Partitions", &[int32("PartitionIndex"), int32("CurrentLeaderEpoch").since(4), int64("Timestamp")]),
        ],
    ),
    int32("TimeoutMs").since(10),
]);

pub(super) const LIST_OFFSETS_RESPONSE: Message = message(1, 11).flexible(6).fields(&[
    int32("ThrottleTimeMs").since(2),
    structs(
        "Topics",
        &[
            string("Name"),
            structs(
                "Partitions",
                &[
                    int32("PartitionIndex"),
                    int16("ErrorCode"),
                    int64("Timestamp"),
                    int64("Offset"),
                    int32("LeaderEpoch").since(4),
                ],
            ),
        ],
    ),
]);

pub(super) const OFFSET_FOR_LEADER_EPOCH_REQUEST: Message = message(2, 4).flexible(4).fields(&[
    int32("ReplicaId").since(3),
    structs(
        "Topics",
        &[
            string("Topic"),
            structs("Partitions", &[int32("Partition"), int32("CurrentLeaderEpoch"), int32("LeaderEpoch")]),
        ],
    ),
]);

pub(super) const OFFSET_FOR_LEADER_EPOCH_RESPONSE: Message = message(2, 4).flexible(4).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Topics",
        &[
            string("Topic"),
            structs("Partitions", &[int16("ErrorCode"), int32("Partition"), int32("LeaderEpoch"), int64("EndOffset")]),
        ],
    ),
]);

pub(super) const DELETE_RECORDS_REQUEST: Message = message(0, 2).flexible(2).fields(&[
    structs("Topics", &[string("Name"), structs("Partitions", &[int32("PartitionIndex"), int64("Offset")])]),
    int32("TimeoutMs"),
]);

pub(super) const DESCRIBE_PRODUCERS_REQUEST: Message =
    message(0, 0).flexible(0).fields(&[structs("Topics", &[string("Name"), int32s("PartitionIndexes")])]);
