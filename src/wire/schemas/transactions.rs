//! Schemas of the messages of idempotent and transactional producers.
//!
//! Tables only, in the order and with the names of the JSON schemas of Kafka 4.3.1.

use super::super::schema::{
    Message, boolean, int8, int16, int32, int32s, int64, int64s, message, string, strings, structs,
};

pub(super) const INIT_PRODUCER_ID_REQUEST: Message = message(0, 6).flexible(2).fields(&[
    string("TransactionalId").nullable(0),
    int32("TransactionTimeoutMs"),
    int64("ProducerId").since(3),
    int16("ProducerEpoch").since(3),
    boolean("Enable2Pc").since(6),
    boolean("KeepPreparedTxn").since(6),
]);

pub(super) const INIT_PRODUCER_ID_RESPONSE: Message = message(0, 6).flexible(2).fields(&[
    int32("ThrottleTimeMs"),
    int16("ErrorCode"),
    int64("ProducerId"),
    int16("ProducerEpoch"),
    int64("OngoingTxnProducerId").since(6),
    int16("OngoingTxnProducerEpoch").since(6),
]);

pub(super) const ADD_PARTITIONS_TO_TXN_REQUEST: Message = message(0, 5).flexible(3).fields(&[
    structs(
        "Transactions",
        &[
            string("TransactionalId").since(4),
            int64("ProducerId").since(4),
            int16("ProducerEpoch").since(4),
            boolean("VerifyOnly").since(4),
            structs("Topics", &[string("Name"), int32s("Partitions")]).since(4),
        ],
    )
    .since(4),
    string("V3AndBelowTransactionalId").versions(0, 3),
    int64("V3AndBelowProducerId").versions(0, 3),
    int16("V3AndBelowProducerEpoch").versions(0, 3),
    structs("V3AndBelowTopics", &[string("Name"), int32s("Partitions")]).versions(0, 3),
]);

pub(super) const ADD_PARTITIONS_TO_TXN_RESPONSE: Message = message(0, 5).flexible(3).fields(&[
    int32("ThrottleTimeMs"),
    int16("ErrorCode").since(4),
    structs(
        "ResultsByTransaction",
        &[
            string("TransactionalId").since(4),
            structs(
                "TopicResults",
                &[
                    string("Name"),
                    structs("ResultsByPartition", &[int32("PartitionIndex"), int16("PartitionErrorCode")]),
                ],
            )
            .since(4),
        ],
    )
    .since(4),
    structs(
        "ResultsByTopicV3AndBelow",
        &[string("Name"), structs("ResultsByPartition", &[int32("PartitionIndex"), int16("PartitionErrorCode")])],
    )
    .versions(0, 3),
]);

pub(super) const WRITE_TXN_MARKERS_REQUEST: Message = message(1, 2).flexible(1).fields(&[structs(
    "Markers",
    &[
        int64("ProducerId"),
        int16("ProducerEpoch"),
        boolean("TransactionResult"),
        structs("Topics", &[string("Name"), int32s("PartitionIndexes")]),
        int32("CoordinatorEpoch"),
        int8("TransactionVersion").since(2),
    ],
)]);

pub(super) const LIST_TRANSACTIONS_REQUEST: Message = message(0, 2).flexible(0).fields(&[
    strings("StateFilters"),
    int64s("ProducerIdFilters"),
    int64("DurationFilter").since(1),
    string("TransactionalIdPattern").since(2).nullable(2),
]);
