//! The schema of every message that this crate decodes with `kafka-protocol`, by API key.
//!
//! A message without a row here cannot be decoded: its walk is refused before any byte is read.

mod cluster;
mod records;
mod topics;
mod transactions;

use super::schema::Message;

/// The schema of a request.
pub(super) fn request(api_key: i16) -> Option<&'static Message> {
    Some(match api_key {
        0 => &records::PRODUCE_REQUEST,
        1 => &records::FETCH_REQUEST,
        2 => &records::LIST_OFFSETS_REQUEST,
        3 => &cluster::METADATA_REQUEST,
        10 => &cluster::FIND_COORDINATOR_REQUEST,
        16 => &cluster::LIST_GROUPS_REQUEST,
        17 => &cluster::SASL_HANDSHAKE_REQUEST,
        18 => &cluster::API_VERSIONS_REQUEST,
        19 => &topics::CREATE_TOPICS_REQUEST,
        20 => &topics::DELETE_TOPICS_REQUEST,
        21 => &records::DELETE_RECORDS_REQUEST,
        22 => &transactions::INIT_PRODUCER_ID_REQUEST,
        23 => &records::OFFSET_FOR_LEADER_EPOCH_REQUEST,
        24 => &transactions::ADD_PARTITIONS_TO_TXN_REQUEST,
        27 => &transactions::WRITE_TXN_MARKERS_REQUEST,
        32 => &topics::DESCRIBE_CONFIGS_REQUEST,
        33 => &topics::ALTER_CONFIGS_REQUEST,
        35 => &cluster::DESCRIBE_LOG_DIRS_REQUEST,
        36 => &cluster::SASL_AUTHENTICATE_REQUEST,
        37 => &topics::CREATE_PARTITIONS_REQUEST,
        44 => &topics::INCREMENTAL_ALTER_CONFIGS_REQUEST,
        60 => &cluster::DESCRIBE_CLUSTER_REQUEST,
        61 => &records::DESCRIBE_PRODUCERS_REQUEST,
        66 => &transactions::LIST_TRANSACTIONS_REQUEST,
        75 => &cluster::DESCRIBE_TOPIC_PARTITIONS_REQUEST,
        _ => return None,
    })
}

/// The schema of a response.
pub(super) fn response(api_key: i16) -> Option<&'static Message> {
    Some(match api_key {
        2 => &records::LIST_OFFSETS_RESPONSE,
        3 => &cluster::METADATA_RESPONSE,
        10 => &cluster::FIND_COORDINATOR_RESPONSE,
        17 => &cluster::SASL_HANDSHAKE_RESPONSE,
        18 => &cluster::API_VERSIONS_RESPONSE,
        19 => &topics::CREATE_TOPICS_RESPONSE,
        20 => &topics::DELETE_TOPICS_RESPONSE,
        22 => &transactions::INIT_PRODUCER_ID_RESPONSE,
        23 => &records::OFFSET_FOR_LEADER_EPOCH_RESPONSE,
        24 => &transactions::ADD_PARTITIONS_TO_TXN_RESPONSE,
        29 => &cluster::DESCRIBE_ACLS_RESPONSE,
        32 => &topics::DESCRIBE_CONFIGS_RESPONSE,
        33 => &topics::ALTER_CONFIGS_RESPONSE,
        36 => &cluster::SASL_AUTHENTICATE_RESPONSE,
        37 => &topics::CREATE_PARTITIONS_RESPONSE,
        44 => &topics::INCREMENTAL_ALTER_CONFIGS_RESPONSE,
        60 => &cluster::DESCRIBE_CLUSTER_RESPONSE,
        75 => &cluster::DESCRIBE_TOPIC_PARTITIONS_RESPONSE,
        _ => return None,
    })
}
