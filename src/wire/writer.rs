//! Writes Kafka's primitive types, in the older and in the flexible encoding.

use bytes::{BufMut as _, BytesMut};

pub(super) fn put_uvarint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// A length or count: `n + 1` as a varint where flexible, else a plain 32-bit number. Longer than 2 GiB is written
/// as the largest length, which the frame's own length check refuses before it is sent.
pub(super) fn put_length(out: &mut BytesMut, flexible: bool, length: usize) {
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    if flexible {
        put_uvarint(out, length.unsigned_abs() + 1);
    } else {
        out.put_i32(length);
    }
}

/// A null byte field or array.
pub(super) fn put_null(out: &mut BytesMut, flexible: bool) {
    if flexible {
        out.put_u8(0);
    } else {
        out.put_i32(-1);
    }
}

/// A string, cut at the longest length that a reader accepts.
pub(super) fn put_string(out: &mut BytesMut, flexible: bool, text: &str) {
    let longest = (0..=text.len().min(i16::MAX as usize)).rev().find(|end| text.is_char_boundary(*end));
    let text = &text[..longest.unwrap_or(0)];
    if flexible {
        put_length(out, true, text.len());
    } else {
        out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    }
    out.put_slice(text.as_bytes());
}

pub(super) fn put_nullable_string(out: &mut BytesMut, flexible: bool, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, flexible, text),
        None if flexible => out.put_u8(0),
        None => out.put_i16(-1),
    }
}

/// The end of a structure in a flexible version: no tagged fields.
pub(super) fn put_no_tagged_fields(out: &mut BytesMut, flexible: bool) {
    if flexible {
        out.put_u8(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_between_characters() {
        let mut out = BytesMut::new();
        put_string(&mut out, false, &"é".repeat(20_000));
        assert_eq!(out.len(), 2 + 32_766);
        assert_eq!(&out[..2], &32_766i16.to_be_bytes());
    }
}
