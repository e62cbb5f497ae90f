//! Schemas of the messages that describe the cluster and open a connection.
//!
//! Tables only, in the order and with the names of the JSON schemas of Kafka 4.3.1.

use super::super::schema::{
    Message, boolean, bytes, int8, int16, int32, int32s, int64, message, string, strings, structs, structure, uuid,
};

pub(super) const API_VERSIONS_REQUEST: Message = message(0, 4)
    .flexible(3)
    .fields(&[string("ClientSoftwareName").since(3), string("ClientSoftwareVersion").since(3)]);

pub(super) const API_VERSIONS_RESPONSE: Message = message(0, 4).flexible(3).fields(&[
    int16("ErrorCode"),
    structs("ApiKeys", &[int16("ApiKey"), int16("MinVersion"), int16("MaxVersion")]),
    int32("ThrottleTimeMs").since(1),
    structs(
        "SupportedFeatures",
        &[string("Name").since(3), int16("MinVersion").since(3), int16("MaxVersion").since(3)],
    )
    .since(3)
    .tagged(0),
    int64("FinalizedFeaturesEpoch").since(3).tagged(1),
    structs(
        "FinalizedFeatures",
        &[string("Name").since(3), int16("MaxVersionLevel").since(3), int16("MinVersionLevel").since(3)],
    )
    .since(3)
    .tagged(2),
    boolean("ZkMigrationReady").since(3).tagged(3),
]);

pub(super) const SASL_HANDSHAKE_REQUEST: Message = message(0, 1).fields(&[string("Mechanism")]);

pub(super) const SASL_HANDSHAKE_RESPONSE: Message = message(0, 1).fields(&[int16("ErrorCode"), strings("Mechanisms")]);

pub(super) const SASL_AUTHENTICATE_REQUEST: Message = message(0, 2).flexible(2).fields(&[bytes("AuthBytes")]);

pub(super) const SASL_AUTHENTICATE_RESPONSE: Message = message(0, 2).flexible(2).fields(&[
    int16("ErrorCode"),
    string("ErrorMessage").nullable(0),
    bytes("AuthBytes"),
    int64("SessionLifetimeMs").since(1),
]);

pub(super) const METADATA_REQUEST: Message = message(0, 13).flexible(9).fields(&[
    structs("Topics", &[uuid("TopicId").since(10), string("Name").nullable(10)]).nullable(1),
    boolean("AllowAutoTopicCreation").since(4),
    boolean("IncludeClusterAuthorizedOperations").versions(8, 10),
    boolean("IncludeTopicAuthorizedOperations").since(8),
]);

pub(super) const METADATA_RESPONSE: Message = message(0, 13).flexible(9).fields(&[
    int32("ThrottleTimeMs").since(3),
    structs("Brokers", &[int32("NodeId"), string("Host"), int32("Port"), string("Rack").since(1).nullable(1)]),
    string("ClusterId").since(2).nullable(2),
    int32("ControllerId").since(1),
    structs(
        "Topics",
        &[
            int16("ErrorCode"),
            string("Name").nullable(12),
            uuid("TopicId").since(10),
            boolean("IsInternal").since(1),
            structs(
                "Partitions",
                &[
                    int16("ErrorCode"),
                    int32("PartitionIndex"),
                    int32("LeaderId"),
                    int32("LeaderEpoch").since(7),
                    int32s("ReplicaNodes"),
                    int32s("IsrNodes"),
                    int32s("OfflineReplicas").since(5),
                ],
            ),
            int32("TopicAuthorizedOperations").since(8),
        ],
    ),
    int32("ClusterAuthorizedOperations").versions(8, 10),
    int16("ErrorCode").since(13),
]);

pub(super) const FIND_COORDINATOR_REQUEST: Message = message(0, 6).flexible(3).fields(&[
    string("Key").versions(0, 3),
    int8("KeyType").since(1),
    strings("CoordinatorKeys").since(4),
]);

pub(super) const FIND_COORDINATOR_RESPONSE: Message = message(0, 6).flexible(3).fields(&[
    int32("ThrottleTimeMs").since(1),
    int16("ErrorCode").versions(0, 3),
    string("ErrorMessage").versions(1, 3).nullable(1),
    int32("NodeId").versions(0, 3),
    string("Host").versions(0, 3),
    int32("Port").versions(0, 3),
    structs(
        "Coordinators",
        &[
            string("Key").since(4),
            int32("NodeId").since(4),
            string("Host").since(4),
            int32("Port").since(4),
            int16("ErrorCode").since(4),
            string("ErrorMessage").since(4).nullable(4),
        ],
    )
    .since(4),
]);

pub(super) const DESCRIBE_CLUSTER_REQUEST: Message = message(0, 2).flexible(0).fields(&[
    boolean("IncludeClusterAuthorizedOperations"),
    int8("EndpointType").since(1),
    boolean("IncludeFencedBrokers").since(2),
]);

pub(super) const DESCRIBE_CLUSTER_RESPONSE: Message = message(0, 2).flexible(0).fields(&[
    int32("ThrottleTimeMs"),
    int16("ErrorCode"),
    string("ErrorMessage").nullable(0),
    int8("EndpointType").since(1),
    string("ClusterId"),
    int32("ControllerId"),
    structs(
        "Brokers",
        &[int32("BrokerId"), string("Host"), int32("Port"), string("Rack").nullable(0), boolean("IsFenced").since(2)],
    ),
    int32("ClusterAuthorizedOperations"),
]);

pub(super) const DESCRIBE_TOPIC_PARTITIONS_REQUEST: Message = message(0, 0).flexible(0).fields(&[
    structs("Topics", &[string("Name")]),
    int32("ResponsePartitionLimit"),
    structure("Cursor", &[string("TopicName"), int32("PartitionIndex")]).nullable(0),
]);

pub(super) const DESCRIBE_TOPIC_PARTITIONS_RESPONSE: Message = message(0, 0).flexible(0).fields(&[
    int32("ThrottleTimeMs"),
    structs(
        "Topics",
        &[
            int16("ErrorCode"),
            string("Name").nullable(0),
            uuid("TopicId"),
            boolean("IsInternal"),
            structs(
                "Partitions",
                &[
                    int16("ErrorCode"),
                    int32("PartitionIndex"),
                    int32("LeaderId"),
                    int32("LeaderEpoch"),
                    int32s("ReplicaNodes"),
                    int32s("IsrNodes"),
                    int32s("EligibleLeaderReplicas").nullable(0),
                    int32s("LastKnownElr").nullable(0),
                    int32s("OfflineReplicas"),
                ],
            ),
            int32("TopicAuthorizedOperations"),
        ],
    ),
    structure("NextCursor", &[string("TopicName"), int32("PartitionIndex")]).nullable(0),
]);

pub(super) const DESCRIBE_LOG_DIRS_REQUEST: Message =
    message(1, 5).flexible(2).fields(&[structs("Topics", &[string("Topic"), int32s("Partitions")]).nullable(0)]);

pub(super) const LIST_GROUPS_REQUEST: Message =
    message(0, 5).flexible(3).fields(&[strings("StatesFilter").since(4), strings("TypesFilter").since(5)]);

pub(super) const DESCRIBE_ACLS_RESPONSE: Message = message(0, 3).flexible(2).fields(&[
    int32("ThrottleTimeMs"),
    int16("ErrorCode"),
    string("ErrorMessage").nullable(0),
    structs(
        "Resources",
        &[
            int8("ResourceType"),
            string("ResourceName"),
            int8("PatternType").since(1),
            structs("Acls", &[string("Principal"), string("Host"), int8("Operation"), int8("PermissionType")]),
        ],
    ),
]);
