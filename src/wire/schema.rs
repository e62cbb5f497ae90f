//! A bounded walker: checks a whole message body against its schema before anything decodes it.
//!
//! Every count is held against the bytes that follow (each element takes at least its smallest encoding), every
//! length against the end. Bytes that some clients leave behind a message are not part of it. The walk allocates nothing; a small budget for elements
//! bounds what a decoder will allocate afterwards, since a two-byte element can become a hundred bytes in memory.
//!
//! Decides nothing about values, and does not check that strings are UTF-8: decoders refuse those cleanly.

use super::WireError;
use super::reader::Reader;

/// Unknown tagged fields in one message. Clients that know newer fields than we do know a handful.
const MAX_UNKNOWN_TAGGED_FIELDS: usize = 1000;

/// The schema of a request or response in all its versions.
pub(super) struct Message {
    first: i16,
    last: i16,
    flexible_from: i16,
    fields: &'static [Field],
}

/// One field, with the versions that have it.
pub(super) struct Field {
    name: &'static str,
    kind: Kind,
    first: i16,
    last: i16,
    /// May be null from this version on.
    null_from: i16,
    tag: Option<u32>,
}

enum Kind {
    /// Numbers, booleans and UUIDs: this many bytes.
    Fixed(usize),
    String,
    /// Bytes or records.
    Bytes,
    Struct(&'static [Field]),
    FixedArray(usize),
    StringArray,
    StructArray(&'static [Field]),
}

/// A message with these first and last versions.
pub(super) const fn message(first: i16, last: i16) -> Message {
    Message { first, last, flexible_from: i16::MAX, fields: &[] }
}

impl Message {
    /// The first version with compact lengths and tagged fields.
    pub(super) const fn flexible(self, from: i16) -> Self {
        Self { flexible_from: from, ..self }
    }

    pub(super) const fn fields(self, fields: &'static [Field]) -> Self {
        Self { fields, ..self }
    }
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, first: 0, last: i16::MAX, null_from: i16::MAX, tag: None }
}

macro_rules! kinds {
    ($($name:ident => $kind:expr;)+) => {
        $(pub(super) const fn $name(name: &'static str) -> Field { field(name, $kind) })+
    };
}

kinds! {
    boolean => Kind::Fixed(1);
    int8 => Kind::Fixed(1);
    int16 => Kind::Fixed(2);
    int32 => Kind::Fixed(4);
    int64 => Kind::Fixed(8);
    uuid => Kind::Fixed(16);
    string => Kind::String;
    bytes => Kind::Bytes;
    int32s => Kind::FixedArray(4);
    int64s => Kind::FixedArray(8);
    strings => Kind::StringArray;
}

pub(super) const fn structure(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Kind::Struct(fields))
}

pub(super) const fn structs(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Kind::StructArray(fields))
}

impl Field {
    pub(super) const fn since(self, first: i16) -> Self {
        Self { first, ..self }
    }

    pub(super) const fn versions(self, first: i16, last: i16) -> Self {
        Self { first, last, ..self }
    }

    /// May be null from this version on.
    pub(super) const fn nullable(self, from: i16) -> Self {
        Self { null_from: from, ..self }
    }

    pub(super) const fn tagged(self, tag: u32) -> Self {
        Self { tag: Some(tag), ..self }
    }

    fn exists(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn is_nullable(&self, version: i16) -> bool {
        version >= self.null_from
    }

    /// The fewest bytes that this field can take.
    fn smallest(&self, version: i16, flexible: bool) -> usize {
        match self.kind {
            Kind::Fixed(size) => size,
            Kind::String if !flexible => 2,
            Kind::Bytes | Kind::FixedArray(_) | Kind::StringArray | Kind::StructArray(_) if !flexible => 4,
            Kind::Struct(fields) if !self.is_nullable(version) => smallest_struct(fields, version, flexible),
            _ => 1,
        }
    }
}

fn smallest_struct(fields: &[Field], version: i16, flexible: bool) -> usize {
    let inline = fields.iter().filter(|f| f.tag.is_none() && f.exists(version));
    inline.map(|f| f.smallest(version, flexible)).sum::<usize>() + usize::from(flexible)
}

/// Checks that `body` is exactly one `message` of this version, with no more than `max_elements` array elements.
pub(super) fn walk(
    message: &Message,
    api_key: i16,
    version: i16,
    body: &[u8],
    max_elements: usize,
) -> Result<(), WireError> {
    match body.len() - walk_prefix(message, api_key, version, body, max_elements)? {
        0 => Ok(()),
        count => Err(WireError::TrailingBytes { count }),
    }
}

/// As [`walk`], but bytes may follow the message. Says how long it is.
pub(super) fn walk_prefix(
    message: &Message,
    api_key: i16,
    version: i16,
    body: &[u8],
    max_elements: usize,
) -> Result<usize, WireError> {
    if !(message.first..=message.last).contains(&version) {
        return Err(WireError::UnsupportedVersion { api_key, version });
    }
    let mut walker = Walker {
        reader: Reader::new(body),
        version,
        flexible: version >= message.flexible_from,
        elements: 0,
        max_elements,
        unknown_tagged_fields: 0,
    };
    walker.structure(message.fields)?;
    Ok(walker.reader.position())
}

struct Walker<'a> {
    reader: Reader<'a>,
    version: i16,
    flexible: bool,
    elements: usize,
    max_elements: usize,
    unknown_tagged_fields: usize,
}

impl Walker<'_> {
    fn structure(&mut self, fields: &[Field]) -> Result<(), WireError> {
        for field in fields {
            if field.tag.is_none() && field.exists(self.version) {
                self.field(field)?;
            }
        }
        if self.flexible { self.tagged_fields(fields) } else { Ok(()) }
    }

    fn tagged_fields(&mut self, fields: &[Field]) -> Result<(), WireError> {
        for _ in 0..self.reader.tagged_field_count()? {
            let tag = self.reader.tag()?;
            let size = self.reader.uvarint("a tagged field's size")? as usize;
            let Some(field) = fields.iter().find(|f| f.tag == Some(tag) && f.exists(self.version)) else {
                self.unknown_tagged_field(size)?;
                continue;
            };
            // The decoder trusts the field's own lengths and not its size, so the two must agree.
            let outer_end = self.reader.narrow(field.name, size)?;
            self.field(field)?;
            self.reader.widen(outer_end)?;
        }
        Ok(())
    }

    fn unknown_tagged_field(&mut self, size: usize) -> Result<(), WireError> {
        self.unknown_tagged_fields += 1;
        if self.unknown_tagged_fields > MAX_UNKNOWN_TAGGED_FIELDS {
            return Err(WireError::TooManyElements { limit: MAX_UNKNOWN_TAGGED_FIELDS });
        }
        self.reader.skip("a tagged field", size).map(drop)
    }

    fn field(&mut self, field: &Field) -> Result<(), WireError> {
        let name = field.name;
        let present = match field.kind {
            Kind::Fixed(size) => self.reader.skip(name, size).map(|_| true)?,
            Kind::String => self.reader.nullable_string(name, self.flexible)?.is_some(),
            Kind::Bytes => match self.reader.long_length(name, self.flexible)? {
                Some(length) => self.reader.skip(name, length).map(|_| true)?,
                None => false,
            },
            Kind::Struct(fields) => self.nullable_structure(field, fields)?,
            Kind::FixedArray(size) => match self.reader.count(name, self.flexible, size)? {
                Some(count) => self.reader.skip(name, count * size).map(|_| true)?,
                None => false,
            },
            Kind::StringArray => self.strings(name)?,
            Kind::StructArray(fields) => self.structs(name, fields)?,
        };
        if present || field.is_nullable(self.version) { Ok(()) } else { Err(WireError::Null { field: name }) }
    }

    /// A structure that may be null has a byte in front: -1 for null, 1 otherwise.
    fn nullable_structure(&mut self, field: &Field, fields: &[Field]) -> Result<bool, WireError> {
        if field.is_nullable(self.version) && self.reader.int8(field.name)? < 0 {
            return Ok(false);
        }
        self.structure(fields)?;
        Ok(true)
    }

    fn strings(&mut self, name: &'static str) -> Result<bool, WireError> {
        let smallest = if self.flexible { 1 } else { 2 };
        let Some(count) = self.reader.count(name, self.flexible, smallest)? else { return Ok(false) };
        self.spend(count)?;
        for _ in 0..count {
            self.reader.string(name, self.flexible)?;
        }
        Ok(true)
    }

    fn structs(&mut self, name: &'static str, fields: &[Field]) -> Result<bool, WireError> {
        let smallest = smallest_struct(fields, self.version, self.flexible);
        let Some(count) = self.reader.count(name, self.flexible, smallest)? else { return Ok(false) };
        self.spend(count)?;
        for _ in 0..count {
            self.structure(fields)?;
        }
        Ok(true)
    }

    fn spend(&mut self, elements: usize) -> Result<(), WireError> {
        self.elements = self.elements.saturating_add(elements);
        if self.elements > self.max_elements {
            return Err(WireError::TooManyElements { limit: self.max_elements });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
