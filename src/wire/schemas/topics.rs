//! Schemas of the messages that create, delete and configure topics.
//!
//! Tables only, in the order and with the names of the JSON schemas of Kafka 4.3.1.

use super::super::schema::{Message, boolean, int8, int16, int32, int32s, message, string, strings, structs, uuid};

pub(super) const CREATE_TOPICS_REQUEST: Message = message(2, 7).flexible(5).fields(&[
    structs(
        "Topics",
        &[
            string("Name"),
            int32("NumPartitions"),
            int16("ReplicationFactor"),
            structs("Assignments", &[int32("PartitionIndex"), int32s("BrokerIds")]),
            structs("Configs", &[string("Name"), string("Value").nullable(0)]),
        ],
    ),
    int32("timeoutMs"),
    boolean("validateOnly"),
]);

pub(super) const CREATE_TOPICS_RESPONSE: Message = message(2, 7).flexible(5).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Topics",
        &[
            string("Name"),
            uuid("TopicId").since(7),
            int16("ErrorCode"),
            string("ErrorMessage").nullable(0),
            int16("TopicConfigErrorCode").since(5).tagged(0),
            int32("NumPartitions").since(5),
            int16("ReplicationFactor").since(5),
            structs(
                "Configs",
                &[
                    string("Name").since(5),
                    string("Value").since(5).nullable(5),
                    boolean("ReadOnly").since(5),
                    int8("ConfigSource").since(5),
                    boolean("IsSensitive").since(5),
                ],
            )
            .since(5)
            .nullable(5),
        ],
    ),
]);

pub(super) const DELETE_TOPICS_REQUEST: Message = message(1, 6).flexible(4).fields(&[
    structs("Topics", &[string("Name").since(6).nullable(6), uuid("TopicId").since(6)]).since(6),
    strings("TopicNames").versions(0, 5),
    int32("TimeoutMs"),
]);

pub(super) const DELETE_TOPICS_RESPONSE: Message = message(1, 6).flexible(4).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Responses",
        &[
            string("Name").nullable(6),
            uuid("TopicId").since(6),
            int16("ErrorCode"),
            string("ErrorMessage").since(5).nullable(5),
        ],
    ),
]);

pub(super) const CREATE_PARTITIONS_REQUEST: Message = message(0, 3).flexible(2).fields(&[
    structs("Topics", &[string("Name"), int32("Count"), structs("Assignments", &[int32s("BrokerIds")]).nullable(0)]),
    int32("TimeoutMs"),
    boolean("ValidateOnly"),
]);

pub(super) const CREATE_PARTITIONS_RESPONSE: Message = message(0, 3).flexible(2).fields(&[
    int32("ThrottleTimeMs"),
    structs("Results", &[string("Name"), int16("ErrorCode"), string("ErrorMessage").nullable(0)]),
]);

pub(super) const DESCRIBE_CONFIGS_REQUEST: Message = message(1, 4).flexible(4).fields(&[
    structs("Resources", &[int8("ResourceType"), string("ResourceName"), strings("ConfigurationKeys").nullable(0)]),
    boolean("IncludeSynonyms"),
    boolean("IncludeDocumentation").since(3),
]);

pub(super) const DESCRIBE_CONFIGS_RESPONSE: Message = message(1, 4).flexible(4).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Results",
        &[
            int16("ErrorCode"),
            string("ErrorMessage").nullable(0),
            int8("ResourceType"),
            string("ResourceName"),
            structs(
                "Configs",
                &[
                    string("Name"),
                    string("Value").nullable(0),
                    boolean("ReadOnly"),
                    int8("ConfigSource"),
                    boolean("IsSensitive"),
                    structs("Synonyms", &[string("Name"), string("Value").nullable(0), int8("Source")]),
                    int8("ConfigType").since(3),
                    string("Documentation").since(3).nullable(0),
                ],
            ),
        ],
    ),
]);

pub(super) const ALTER_CONFIGS_REQUEST: Message = message(0, 2).flexible(2).fields(&[
    structs(
        "Resources",
        &[
            int8("ResourceType"),
            string("ResourceName"),
            structs("Configs", &[string("Name"), string("Value").nullable(0)]),
        ],
    ),
    boolean("ValidateOnly"),
]);

pub(super) const ALTER_CONFIGS_RESPONSE: Message = message(0, 2).flexible(2).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Responses",
        &[int16("ErrorCode"), string("ErrorMessage").nullable(0), int8("ResourceType"), string("ResourceName")],
    ),
]);

pub(super) const INCREMENTAL_ALTER_CONFIGS_REQUEST: Message = message(0, 1).flexible(1).fields(&[
    structs(
        "Resources",
        &[
            int8("ResourceType"),
            string("ResourceName"),
            structs("Configs", &[string("Name"), int8("ConfigOperation"), string("Value").nullable(0)]),
        ],
    ),
    boolean("ValidateOnly"),
]);

pub(super) const INCREMENTAL_ALTER_CONFIGS_RESPONSE: Message = message(0, 1).flexible(1).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Responses",
        &[int16("ErrorCode"), string("ErrorMessage").nullable(0), int8("ResourceType"), string("ResourceName")],
    ),
]);
