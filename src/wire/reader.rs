//! A cursor over bytes from a peer: every read is checked, nothing is copied or allocated.

use std::ops::Range;

use super::WireError;

/// Longest string that Kafka's own readers accept, also where the encoding would allow more.
const MAX_STRING_BYTES: usize = i16::MAX as usize;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: bytes.len() }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Narrows the cursor to the next `length` bytes. Give the answer to [`Self::widen`] afterwards.
    pub(super) fn narrow(&mut self, field: &'static str, length: usize) -> Result<usize, WireError> {
        if length > self.remaining() {
            return Err(WireError::Truncated { field });
        }
        Ok(std::mem::replace(&mut self.end, self.at + length))
    }

    /// Ends a [`Self::narrow`]: all of its bytes must have been read.
    pub(super) fn widen(&mut self, outer_end: usize) -> Result<(), WireError> {
        self.finish()?;
        self.end = outer_end;
        Ok(())
    }

    /// All bytes must have been read.
    pub(super) fn finish(&self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes { count }),
        }
    }

    pub(super) fn skip(&mut self, field: &'static str, length: usize) -> Result<Range<usize>, WireError> {
        if length > self.remaining() {
            return Err(WireError::Truncated { field });
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let range = self.skip(field, N)?;
        self.bytes[range].try_into().map_err(|_| WireError::Truncated { field })
    }

    pub(super) fn int8(&mut self, field: &'static str) -> Result<i8, WireError> {
        self.array(field).map(i8::from_be_bytes)
    }

    pub(super) fn int16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array(field).map(i16::from_be_bytes)
    }

    pub(super) fn int32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(super) fn int64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array(field).map(i64::from_be_bytes)
    }

    pub(super) fn uuid(&mut self, field: &'static str) -> Result<[u8; 16], WireError> {
        self.array(field)
    }

    /// An unsigned varint of at most 32 bits.
    pub(super) fn uvarint(&mut self, field: &'static str) -> Result<u32, WireError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value)
                    .map_err(|_| WireError::BadLength { field, length: value.try_into().unwrap_or(i64::MAX) });
            }
        }
        Err(WireError::BadLength { field, length: i64::MAX })
    }

    /// Length of a string, or `None` for null.
    pub(super) fn string_length(&mut self, field: &'static str, flexible: bool) -> Result<Option<usize>, WireError> {
        let length = if flexible {
            self.compact_length(field)?
        } else {
            let length = self.int16(field)?;
            plain_length(field, i64::from(length))?
        };
        match length {
            Some(length) if length > MAX_STRING_BYTES => {
                Err(WireError::BadLength { field, length: length.try_into().unwrap_or(i64::MAX) })
            }
            length => Ok(length),
        }
    }

    /// Length of a byte field or record field, or count of an array, or `None` for null.
    pub(super) fn long_length(&mut self, field: &'static str, flexible: bool) -> Result<Option<usize>, WireError> {
        if flexible {
            return self.compact_length(field);
        }
        let length = self.int32(field)?;
        plain_length(field, i64::from(length))
    }

    /// Count of an array whose elements take at least `element_bytes` each, or `None` for null.
    pub(super) fn count(
        &mut self,
        field: &'static str,
        flexible: bool,
        element_bytes: usize,
    ) -> Result<Option<usize>, WireError> {
        let Some(count) = self.long_length(field, flexible)? else { return Ok(None) };
        let remaining = self.remaining();
        if count > remaining / element_bytes.max(1) {
            return Err(WireError::BadCount { field, count, remaining });
        }
        Ok(Some(count))
    }

    /// The place of a string's bytes, or `None` for null. Not checked for UTF-8.
    pub(super) fn nullable_string(
        &mut self,
        field: &'static str,
        flexible: bool,
    ) -> Result<Option<Range<usize>>, WireError> {
        self.string_length(field, flexible)?.map(|length| self.skip(field, length)).transpose()
    }

    /// The place of a string's bytes. Not checked for UTF-8.
    pub(super) fn string(&mut self, field: &'static str, flexible: bool) -> Result<Range<usize>, WireError> {
        self.nullable_string(field, flexible)?.ok_or(WireError::Null { field })
    }

    pub(super) fn tagged_field_count(&mut self) -> Result<usize, WireError> {
        let count = self.uvarint("tagged fields")? as usize;
        let remaining = self.remaining();
        // A tagged field is a tag and a size: two bytes or more.
        if count > remaining / 2 {
            return Err(WireError::BadCount { field: "tagged fields", count, remaining });
        }
        Ok(count)
    }

    /// A tag is an int to Kafka. Codecs that keep it as one lose a field whose tag is not when they write it again.
    pub(super) fn tag(&mut self) -> Result<u32, WireError> {
        let tag = self.uvarint("a tag")?;
        i32::try_from(tag).map(|_| tag).map_err(|_| WireError::BadTag { tag })
    }

    /// Calls `read` for each tagged field with its tag; whatever `read` leaves of it is skipped.
    pub(super) fn tagged_fields(
        &mut self,
        mut read: impl FnMut(u32, &mut Self) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        for _ in 0..self.tagged_field_count()? {
            let tag = self.tag()?;
            let size = self.uvarint("a tagged field's size")? as usize;
            let outer_end = self.narrow("a tagged field", size)?;
            read(tag, self)?;
            self.at = self.end;
            self.end = outer_end;
        }
        Ok(())
    }

    pub(super) fn skip_tagged_fields(&mut self) -> Result<(), WireError> {
        self.tagged_fields(|_, _| Ok(()))
    }

    fn compact_length(&mut self, field: &'static str) -> Result<Option<usize>, WireError> {
        Ok((self.uvarint(field)? as usize).checked_sub(1))
    }
}

/// A length of the older encoding: -1 is null, anything lower is nonsense.
fn plain_length(field: &'static str, length: i64) -> Result<Option<usize>, WireError> {
    match length {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| WireError::BadLength { field, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_stop_at_32_bits() {
        assert_eq!(Reader::new(&[0x05]).uvarint("x"), Ok(5));
        assert_eq!(Reader::new(&[0xac, 0x02]).uvarint("x"), Ok(300));
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).uvarint("x"), Ok(u32::MAX));
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).uvarint("x").is_err());
        assert!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).uvarint("x").is_err());
        assert_eq!(Reader::new(&[0x80]).uvarint("x"), Err(WireError::Truncated { field: "x" }));
    }

    #[test]
    fn lengths_know_null_and_refuse_nonsense() {
        assert_eq!(Reader::new(&[0xff, 0xff]).nullable_string("x", false), Ok(None));
        assert_eq!(Reader::new(&[0]).nullable_string("x", true), Ok(None));
        assert_eq!(Reader::new(&[0, 1, b'a']).nullable_string("x", false), Ok(Some(2..3)));
        assert_eq!(Reader::new(&[2, b'a']).nullable_string("x", true), Ok(Some(1..2)));
        assert_eq!(Reader::new(&[0xff, 0xfe]).string("x", false), Err(WireError::BadLength { field: "x", length: -2 }));
        assert_eq!(Reader::new(&[0, 2, b'a']).string("x", false), Err(WireError::Truncated { field: "x" }));
    }

    #[test]
    fn counts_are_checked_against_the_bytes_that_follow() {
        let bytes = [0, 0, 0, 3, 1, 1, 1, 1];
        assert_eq!(Reader::new(&bytes).count("x", false, 1), Ok(Some(3)));
        assert_eq!(
            Reader::new(&bytes).count("x", false, 2),
            Err(WireError::BadCount { field: "x", count: 3, remaining: 4 })
        );
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).count("x", false, 0).is_err());
    }
}
