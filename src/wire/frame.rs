//! Frames: the length in front, and the request header behind it. Pure functions on bytes; reading is the caller's.

use std::ops::Range;

use super::WireError;
use super::codec::request_header_version;
use super::reader::Reader;

/// Kafka's default for `socket.request.max.bytes`.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 100 * 1024 * 1024;
/// Kafka's default for `sasl.server.max.receive.size`: all that a peer may send before it has authenticated.
pub const UNAUTHENTICATED_MAX_FRAME_BYTES: usize = 512 * 1024;
/// API key, version and correlation id.
pub const SHORTEST_REQUEST_BYTES: usize = 8;
/// The correlation id.
pub const SHORTEST_RESPONSE_BYTES: usize = 4;

/// A frame's length cannot be what a Kafka peer meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the peer speaks TLS, but this side expects plaintext: check the security protocol of both")]
    TlsOnPlaintext,
    #[error("the peer speaks HTTP, but this is a Kafka port")]
    HttpOnKafka,
    #[error("a frame of {length} bytes is over the limit of {limit}")]
    TooLarge { length: usize, limit: usize },
    #[error("a frame has the length {0}, which is too short for a header")]
    TooShort(i32),
}

/// The length of a request frame from the four bytes in front of it.
pub fn request_length(prefix: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    frame_length(prefix, SHORTEST_REQUEST_BYTES, limit)
}

/// The length of a response frame from the four bytes in front of it.
pub fn response_length(prefix: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    frame_length(prefix, SHORTEST_RESPONSE_BYTES, limit)
}

fn frame_length(prefix: [u8; 4], shortest: usize, limit: usize) -> Result<usize, FrameError> {
    let signed = i32::from_be_bytes(prefix);
    let length = usize::try_from(signed).map_err(|_| FrameError::TooShort(signed))?;
    if length > limit {
        return Err(other_protocol(prefix).unwrap_or(FrameError::TooLarge { length, limit }));
    }
    if length < shortest {
        return Err(FrameError::TooShort(signed));
    }
    Ok(length)
}

/// Which other protocol begins with these bytes. Asked only about lengths over the limit.
fn other_protocol(prefix: [u8; 4]) -> Option<FrameError> {
    match &prefix {
        // A TLS handshake or alert record: type, then version 3.x.
        [0x15 | 0x16, 0x03, 0x00..=0x04, _] => Some(FrameError::TlsOnPlaintext),
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"CONN" | b"TRAC" | b"PATC" | b"PRI " | b"HTTP" => {
            Some(FrameError::HttpOnKafka)
        }
        _ => None,
    }
}

/// The header of a request. For an API key that we do not know only the first eight bytes are read:
/// no client id, and the body is said to start at byte 8.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    /// Where the client id lies in the frame. Not checked for UTF-8.
    pub client_id: Option<Range<usize>>,
    /// Where the body starts in the frame.
    pub body_start: usize,
}

/// Reads the header from the first bytes of a request frame (without its length).
///
/// `frame` may be the beginning of a frame: an error then means that more bytes are needed, or that it is bad, and
/// [`may_be_cut`] tells which.
pub fn parse_request_header(frame: &[u8]) -> Result<RequestHeader, WireError> {
    let mut reader = Reader::new(frame);
    let api_key = reader.int16("the API key")?;
    let api_version = reader.int16("the API version")?;
    let correlation_id = reader.int32("the correlation id")?;
    let header_version = request_header_version(api_key, api_version);
    let client_id = match header_version {
        // Never compact, also in the flexible header.
        Some(1..) => reader.nullable_string("the client id", false)?,
        _ => None,
    };
    if header_version == Some(2) {
        reader.skip_tagged_fields()?;
    }
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id, body_start: reader.position() })
}

/// Whether this may come of a frame's bytes that are not there yet, as lengths and counts of more than is there do.
pub fn may_be_cut(error: &WireError) -> bool {
    matches!(error, WireError::Truncated { .. } | WireError::BadCount { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_cut_anywhere_asks_for_more() {
        // Metadata, version 12, with a client id and two tagged fields.
        let frame = b"\0\x03\0\x0c\0\0\0\x07\0\x02id\x02\x05\x03abc\x09\0";
        let header = parse_request_header(frame).expect("it is whole");
        assert_eq!(header.body_start, frame.len());
        for cut in 0..frame.len() {
            let error = parse_request_header(&frame[..cut]).expect_err("it is cut");
            assert!(may_be_cut(&error), "{error} of {cut} bytes");
        }
    }

    #[test]
    fn lengths_are_held_between_a_header_and_the_limit() {
        let table = [
            (8i32, Ok(8)),
            (1000, Ok(1000)),
            (1001, Err(FrameError::TooLarge { length: 1001, limit: 1000 })),
            (7, Err(FrameError::TooShort(7))),
            (-1, Err(FrameError::TooShort(-1))),
        ];
        for (length, expected) in table {
            assert_eq!(request_length(length.to_be_bytes(), 1000), expected);
        }
        assert_eq!(response_length(4i32.to_be_bytes(), 1000), Ok(4));
    }

    #[test]
    fn other_protocols_are_named() {
        for prefix in [[0x16, 3, 1, 2], [0x15, 3, 3, 0]] {
            assert_eq!(request_length(prefix, DEFAULT_MAX_FRAME_BYTES), Err(FrameError::TlsOnPlaintext));
        }
        for prefix in [*b"GET ", *b"POST", *b"HTTP"] {
            assert_eq!(request_length(prefix, DEFAULT_MAX_FRAME_BYTES), Err(FrameError::HttpOnKafka));
        }
    }

    #[test]
    fn headers_of_each_kind_are_read() {
        // Produce 8: header 1.
        let plain = [0, 0, 0, 8, 0, 0, 0, 5, 0, 1, b'x', 9];
        assert_eq!(
            parse_request_header(&plain),
            Ok(RequestHeader {
                api_key: 0,
                api_version: 8,
                correlation_id: 5,
                client_id: Some(10..11),
                body_start: 11
            })
        );
        // Produce 9: header 2, with one tagged field.
        let flexible = [0, 0, 0, 9, 0, 0, 0, 5, 0xff, 0xff, 1, 4, 2, 8, 8, 9];
        assert_eq!(
            parse_request_header(&flexible),
            Ok(RequestHeader { api_key: 0, api_version: 9, correlation_id: 5, client_id: None, body_start: 15 })
        );
        // An unknown key: nothing after the correlation id is trusted.
        let unknown = [0x27, 0x10, 0, 0, 0, 0, 0, 5, 0xff];
        assert_eq!(
            parse_request_header(&unknown),
            Ok(RequestHeader { api_key: 10_000, api_version: 0, correlation_id: 5, client_id: None, body_start: 8 })
        );
    }

    #[test]
    fn short_headers_are_errors_at_every_length() {
        let whole = [0, 0, 0, 9, 0, 0, 0, 5, 0, 1, b'x', 1, 4, 2, 8, 8];
        for length in 0..whole.len() {
            assert!(parse_request_header(&whole[..length]).is_err());
        }
        assert!(parse_request_header(&whole).is_ok());
    }
}
