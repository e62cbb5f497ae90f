//! Kafka's messages: everything that a client or upstream can have us decode.

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sidestream::wire::api_versions::parse_upstream_api_versions;
use sidestream::wire::fetch_request::{FetchRequest as OurFetchRequest, with_rack};
use sidestream::wire::frame::parse_request_header;
use sidestream::wire::produce_request::ProduceRequest as OurProduceRequest;
use sidestream::wire::produce_skim::{ProduceSkim, Skimmed};
use sidestream::wire::{self, WireError};

use super::{MESSAGE_BYTES, within};

/// A reader for each type, and the keys that have one.
macro_rules! readers {
    ($keys:ident, $read:ident, $one:ident: $($message:ident)+) => {
        /// The API keys that have a reader here, in the order in which inputs number them.
        pub fn $keys() -> Vec<i16> {
            vec![$($message::KEY),+]
        }

        /// Reads a body as the message of this key, if there is one.
        fn $read(api_key: i16, version: i16, body: &Bytes) {
            $(if api_key == $message::KEY {
                $one::<$message>(version, body);
            })+
        }
    };
}

readers! { request_keys, read_control_request, decode_one_request:
    ProduceRequest FetchRequest
    ListOffsetsRequest MetadataRequest FindCoordinatorRequest ListGroupsRequest SaslHandshakeRequest ApiVersionsRequest
    CreateTopicsRequest DeleteTopicsRequest DeleteRecordsRequest InitProducerIdRequest OffsetForLeaderEpochRequest
    AddPartitionsToTxnRequest WriteTxnMarkersRequest DescribeConfigsRequest AlterConfigsRequest DescribeLogDirsRequest
    SaslAuthenticateRequest CreatePartitionsRequest IncrementalAlterConfigsRequest DescribeClusterRequest
    DescribeProducersRequest ListTransactionsRequest DescribeTopicPartitionsRequest
}

readers! { response_keys, read_response, decode_one_response:
    ListOffsetsRequest MetadataRequest FindCoordinatorRequest SaslHandshakeRequest ApiVersionsRequest
    CreateTopicsRequest DeleteTopicsRequest InitProducerIdRequest OffsetForLeaderEpochRequest AddPartitionsToTxnRequest
    DescribeAclsRequest DescribeConfigsRequest AlterConfigsRequest SaslAuthenticateRequest CreatePartitionsRequest
    IncrementalAlterConfigsRequest DescribeClusterRequest DescribeTopicPartitionsRequest
}

/// The body of a request: the first three bytes choose its key, its version and the size of the chunks it comes in.
pub fn request(input: &[u8]) {
    let Some(([key, version, chunk], body)) = input.split_first_chunk::<3>() else { return };
    let keys = request_keys();
    let body = Bytes::copy_from_slice(body);
    let (key, version) = (keys[usize::from(*key) % keys.len()], i16::from(*version % 18));
    read_request(key, version, &body);
    if key == ProduceRequest::KEY {
        skim(version, &body, usize::from(*chunk) + 1);
    }
}

/// The body of a response of upstream: the first two bytes choose its key and version.
pub fn response(input: &[u8]) {
    let Some(([key, version], body)) = input.split_first_chunk::<2>() else { return };
    let keys = response_keys();
    let body = Bytes::copy_from_slice(body);
    let version = i16::from(*version % 18);
    read_response(keys[usize::from(*key) % keys.len()], version, &body);
    let _ = within(body.len(), MESSAGE_BYTES, || parse_upstream_api_versions(version, body.clone()).is_ok());
}

/// What is done with a request's body, by whichever door it came.
pub fn read_request(key: i16, version: i16, body: &Bytes) {
    match key {
        ProduceRequest::KEY => drop(within(body.len(), MESSAGE_BYTES, || OurProduceRequest::read(version, body))),
        FetchRequest::KEY => fetch(version, body),
        _ => {}
    }
    read_control_request(key, version, body);
}

fn decode_one_request<R: Request + PartialEq + std::fmt::Debug>(version: i16, body: &Bytes) {
    let read = within(body.len(), MESSAGE_BYTES, || wire::decode_request::<R>(version, body.clone()));
    let Ok(request) = read else { return };
    let frame = wire::encode_request(7, version, "id", &request).expect("what was read can be written").slice(4..);
    let header = parse_request_header(&frame).expect("our own header");
    let again = wire::decode_request::<R>(version, frame.slice(header.body_start..));
    assert_eq!(again.as_ref(), Ok(&request), "what was written reads as it was");
}

fn decode_one_response<R: Request>(version: i16, body: &Bytes)
where
    R::Response: PartialEq + std::fmt::Debug,
{
    let _ = within(body.len(), MESSAGE_BYTES, || wire::decode_response_frame::<R>(version, body.clone()).is_ok());
    let read = within(body.len(), MESSAGE_BYTES, || wire::decode_response::<R>(version, body.clone()));
    let Ok(response) = read else { return };
    let frame = wire::encode_response::<R>(7, version, &response).expect("what was read can be written");
    let (id, again) = wire::decode_response_frame::<R>(version, frame.slice(4..)).expect("what was written reads");
    assert_eq!(id, 7);
    assert_eq!(again, response, "what was written reads as it was");
}

fn fetch(version: i16, body: &Bytes) {
    let Ok(request) = within(body.len(), MESSAGE_BYTES, || OurFetchRequest::read(version, body)) else { return };
    let Some(changed) = with_rack(body, version, "zone-a") else {
        assert!(version < 11 || !request.rack_id.is_empty(), "only a rack that is there is kept");
        return;
    };
    let changed = OurFetchRequest::read(version, &changed).expect("a rack changes nothing else");
    assert_eq!(&*changed.rack_id, "zone-a");
    assert_eq!((changed.topics, changed.forgotten), (request.topics, request.forgotten));
}

/// A Produce on its way upstream. Whatever the reader accepts, the skim must see the same names in.
fn skim(version: i16, body: &Bytes, chunk: usize) {
    let skimmed = within(body.len(), MESSAGE_BYTES, || skim_names(version, body, chunk));
    if let Ok(request) = OurProduceRequest::read(version, body) {
        let names: Vec<_> = request.topics.iter().map(|topic| topic.name.as_bytes().to_vec()).collect();
        assert_eq!(skimmed, Ok((request.acks, names)));
    }
}

fn skim_names(version: i16, body: &[u8], chunk: usize) -> Result<(i16, Vec<Vec<u8>>), WireError> {
    let mut skim = ProduceSkim::new(version, body.len())?;
    let (mut acks, mut names) = (i16::MAX, Vec::new());
    for part in body.chunks(chunk) {
        skim.feed(part, |seen| match seen {
            Skimmed::Acks(value) => acks = value,
            Skimmed::Topic(name) => names.push(name.to_vec()),
        })?;
    }
    Ok((acks, names))
}
