//! Kafka's error codes, as far as Sidestream gives or reads them (`org.apache.kafka.common.protocol.Errors`).

macro_rules! error_codes {
    ($($name:ident = $code:literal,)+) => {
        /// A Kafka error code that this proxy gives of its own accord.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
        #[repr(i16)]
        pub enum ErrorCode { $($name = $code,)+ }

        impl ErrorCode {
            pub fn code(self) -> i16 {
                self as i16
            }

            /// The code as an enum, where it is one of ours.
            pub fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1,
    None = 0,
    OffsetOutOfRange = 1,
    CorruptMessage = 2,
    UnknownTopicOrPartition = 3,
    LeaderNotAvailable = 5,
    NotLeaderOrFollower = 6,
    RequestTimedOut = 7,
    MessageTooLarge = 10,
    CoordinatorNotAvailable = 15,
    NotCoordinator = 16,
    InvalidTopic = 17,
    NotEnoughReplicas = 19,
    InvalidRequiredAcks = 21,
    TopicAuthorizationFailed = 29,
    GroupAuthorizationFailed = 30,
    ClusterAuthorizationFailed = 31,
    InvalidTimestamp = 32,
    IllegalSaslState = 34,
    UnsupportedVersion = 35,
    TopicAlreadyExists = 36,
    InvalidConfig = 40,
    InvalidRequest = 42,
    PolicyViolation = 44,
    OutOfOrderSequenceNumber = 45,
    InvalidProducerEpoch = 47,
    InvalidTxnState = 48,
    OperationNotAttempted = 55,
    KafkaStorageError = 56,
    FetchSessionIdNotFound = 70,
    InvalidFetchSessionEpoch = 71,
    FencedLeaderEpoch = 74,
    UnknownLeaderEpoch = 75,
    UnsupportedCompressionType = 76,
    OffsetNotAvailable = 78,
    InvalidRecord = 87,
    UnknownTopicId = 100,
    InconsistentTopicId = 103,
    FetchSessionTopicIdError = 106,
}
