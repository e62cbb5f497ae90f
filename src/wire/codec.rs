//! Control-plane messages to and from bytes: the walk first, then `kafka-protocol`.
//!
//! The only place that calls that crate's decoders and encoders.

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request};

use super::reader::Reader;
use super::schema::{walk, walk_prefix};
use super::{StrBytes, WireError, schemas};

/// Array elements in a request: enough for an admin client that names every topic of a large cluster.
const MAX_REQUEST_ELEMENTS: usize = 250_000;
/// Array elements in a response of the upstream cluster: a million partitions.
const MAX_RESPONSE_ELEMENTS: usize = 1_500_000;

/// Decodes a request body (without its header). Bytes behind the message are passed over, as brokers do: librdkafka
/// leaves three when it asks for the metadata of all topics, since it writes the absent list in the old form.
pub fn decode_request<T: Request>(version: i16, body: Bytes) -> Result<T, WireError> {
    let schema = schemas::request(T::KEY).ok_or(WireError::UnsupportedVersion { api_key: T::KEY, version })?;
    check_version::<T>(T::KEY, version)?;
    let length = walk_prefix(schema, T::KEY, version, &body, MAX_REQUEST_ELEMENTS)?;
    decode(T::KEY, version, body.slice(..length))
}

/// Decodes the body of the response to a `T` (without its header), which must be exactly one.
pub fn decode_response<T: Request>(version: i16, body: Bytes) -> Result<T::Response, WireError> {
    let schema = schemas::response(T::KEY).ok_or(WireError::UnsupportedVersion { api_key: T::KEY, version })?;
    check_version::<T::Response>(T::KEY, version)?;
    walk(schema, T::KEY, version, &body, MAX_RESPONSE_ELEMENTS)?;
    decode(T::KEY, version, body)
}

/// As [`decode_response`], for brokers that leave bytes behind the message.
pub(super) fn decode_response_prefix<T: Request>(version: i16, body: Bytes) -> Result<T::Response, WireError> {
    let schema = schemas::response(T::KEY).ok_or(WireError::UnsupportedVersion { api_key: T::KEY, version })?;
    check_version::<T::Response>(T::KEY, version)?;
    let length = walk_prefix(schema, T::KEY, version, &body, MAX_RESPONSE_ELEMENTS)?;
    decode(T::KEY, version, body.slice(..length))
}

/// Decodes a response frame (without its length): the correlation id, and the body. Bytes behind the message are passed
/// over, as clients do: librdkafka's mock cluster leaves some.
pub fn decode_response_frame<T: Request>(version: i16, frame: Bytes) -> Result<(i32, T::Response), WireError> {
    let mut reader = Reader::new(&frame);
    let correlation_id = reader.int32("the correlation id")?;
    if T::Response::header_version(version) >= 1 {
        reader.skip_tagged_fields()?;
    }
    let body = frame.slice(reader.position()..);
    Ok((correlation_id, decode_response_prefix::<T>(version, body)?))
}

/// A whole request frame, with its length in front.
pub fn encode_request<T: Request>(
    correlation_id: i32,
    version: i16,
    client_id: &str,
    request: &T,
) -> Result<Bytes, WireError> {
    check_version::<T>(T::KEY, version)?;
    let header = RequestHeader::default()
        .with_request_api_key(T::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    encode_frame(T::KEY, version, (&header, T::header_version(version)), request)
}

/// A whole response frame, with its length in front and the header version that the response asks for
/// (ApiVersions: always 0, so that a client of any version can read it).
pub fn encode_response<T: Request>(
    correlation_id: i32,
    version: i16,
    response: &T::Response,
) -> Result<Bytes, WireError> {
    check_version::<T::Response>(T::KEY, version)?;
    let header = kafka_protocol::messages::ResponseHeader::default().with_correlation_id(correlation_id);
    encode_frame(T::KEY, version, (&header, T::Response::header_version(version)), response)
}

/// The header version of a request, or `None` for an API key that we do not know.
pub(super) fn request_header_version(api_key: i16, version: i16) -> Option<i16> {
    Some(ApiKey::try_from(api_key).ok()?.request_header_version(version))
}

fn check_version<M: Message>(api_key: i16, version: i16) -> Result<(), WireError> {
    if (M::VERSIONS.min..=M::VERSIONS.max).contains(&version) {
        Ok(())
    } else {
        Err(WireError::UnsupportedVersion { api_key, version })
    }
}

/// Decodes walked bytes.
fn decode<M: Decodable>(api_key: i16, version: i16, mut body: Bytes) -> Result<M, WireError> {
    let message =
        M::decode(&mut body, version).map_err(|error| WireError::Undecodable { api_key, reason: error.to_string() })?;
    match body.len() {
        0 => Ok(message),
        count => Err(WireError::TrailingBytes { count }),
    }
}

fn encode_frame<H: Encodable, M: Encodable>(
    api_key: i16,
    version: i16,
    (header, header_version): (&H, i16),
    message: &M,
) -> Result<Bytes, WireError> {
    let failed = |reason: String| WireError::Unencodable { api_key, version, reason };
    let size = header.compute_size(header_version).and_then(|h| message.compute_size(version).map(|m| h + m));
    let size = size.map_err(|error| failed(error.to_string()))?;
    let length = i32::try_from(size).map_err(|_| failed(format!("{size} bytes do not fit into a frame")))?;
    let mut frame = BytesMut::with_capacity(4 + size);
    frame.put_i32(length);
    header.encode(&mut frame, header_version).map_err(|error| failed(error.to_string()))?;
    message.encode(&mut frame, version).map_err(|error| failed(error.to_string()))?;
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse};

    use super::*;
    use crate::wire::frame::parse_request_header;

    #[test]
    fn an_api_versions_answer_has_the_oldest_header_in_every_version() {
        for version in 0..=4 {
            let frame =
                encode_response::<ApiVersionsRequest>(7, version, &ApiVersionsResponse::default()).expect("encodes");
            assert_eq!(&frame[4..8], &7i32.to_be_bytes());
            assert_eq!(&frame[8..10], &[0, 0], "the error code follows at once in version {version}");
            let (id, answer) = decode_response_frame::<ApiVersionsRequest>(version, frame.slice(4..)).expect("decodes");
            assert_eq!((id, answer.error_code), (7, 0));
        }
    }

    #[test]
    fn bytes_behind_a_request_are_passed_over() {
        // What librdkafka 2.16 sends for all topics.
        let body = Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0]);
        let request: MetadataRequest = decode_request(13, body).expect("decodes");
        assert_eq!(request.topics, None);
    }

    #[test]
    fn a_request_frame_reads_back() {
        for version in 0..=13 {
            let request = MetadataRequest::default();
            let frame = encode_request(9, version, "me", &request).expect("encodes");
            assert_eq!(frame.len(), 4 + i32::from_be_bytes(frame[..4].try_into().expect("four")) as usize);
            let frame = frame.slice(4..);
            let header = parse_request_header(&frame).expect("a header");
            assert_eq!((header.api_key, header.api_version, header.correlation_id), (3, version, 9));
            assert_eq!(header.client_id.map(|at| frame.slice(at)), Some(Bytes::from_static(b"me")));
            assert!(decode_request::<MetadataRequest>(version, frame.slice(header.body_start..)).is_ok());
        }
    }

    #[test]
    fn a_four_byte_body_that_claims_two_billion_topics_is_refused() {
        let error = decode_request::<MetadataRequest>(1, Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]));
        assert_eq!(error, Err(WireError::BadCount { field: "Topics", count: 0x7fff_ffff, remaining: 0 }));
    }

    #[test]
    fn versions_out_of_range_are_errors_and_not_panics() {
        for version in [-1, 14, i16::MIN, i16::MAX] {
            assert!(decode_request::<MetadataRequest>(version, Bytes::new()).is_err());
            assert!(encode_response::<MetadataRequest>(1, version, &MetadataResponse::default()).is_err());
        }
    }
}
