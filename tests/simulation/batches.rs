//! Record batches whose records hold one number each: written as a producer does, read as a consumer does.

use bytes::{BufMut as _, Bytes, BytesMut};
use sidestream::history::Record;
use sidestream::record_batch::{BatchHeader, HEADER_SIZE, checksum};

/// Which producer a batch is of: id, epoch, first sequence.
pub(crate) type Producer = (i64, i16, i32);

const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

pub(crate) fn batch((producer_id, epoch, sequence): Producer, values: &[u64], timestamp: i64) -> Bytes {
    let mut records = BytesMut::new();
    for (delta, value) in (0i64..).zip(values) {
        let mut record = BytesMut::new();
        record.put_i8(0);
        put_varint(&mut record, 0);
        put_varint(&mut record, delta);
        put_varint(&mut record, -1);
        put_varint(&mut record, 8);
        record.put_u64(*value);
        put_varint(&mut record, 0);
        put_varint(&mut records, i64::try_from(record.len()).expect("small"));
        records.extend_from_slice(&record);
    }
    let count = i32::try_from(values.len()).expect("few");
    let mut batch = BytesMut::new();
    batch.put_i64(0);
    batch.put_i32(i32::try_from(HEADER_SIZE - 12 + records.len()).expect("small"));
    batch.put_i32(-1);
    batch.put_i8(2);
    batch.put_u32(0);
    batch.put_i16(0);
    batch.put_i32(count - 1);
    batch.put_i64(timestamp);
    batch.put_i64(timestamp);
    batch.put_i64(producer_id);
    batch.put_i16(epoch);
    batch.put_i32(sequence);
    batch.put_i32(count);
    batch.extend_from_slice(&records);
    let crc = checksum([&batch[CRC_FROM..]]);
    batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    batch.freeze()
}

/// The records of whole batches, from an offset on.
pub(crate) fn read(mut bytes: &[u8], from: i64) -> Result<Vec<Record>, String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::parse(bytes).map_err(|error| format!("{error:?}"))?;
        let size = header.size_in_bytes().filter(|size| *size <= bytes.len()).ok_or("a batch that is cut off")?;
        if checksum([&bytes[CRC_FROM..size]]) != header.crc {
            return Err(format!("the CRC of the batch at {} is wrong", header.base_offset));
        }
        let mut at = HEADER_SIZE;
        for _ in 0..header.records_count {
            let length = take_varint(bytes, &mut at)?;
            let end = at + usize::try_from(length).map_err(|_| "a negative length")?;
            at += 1;
            take_varint(bytes, &mut at)?;
            let delta = take_varint(bytes, &mut at)?;
            take_varint(bytes, &mut at)?;
            take_varint(bytes, &mut at)?;
            let value = bytes.get(at..at + 8).ok_or("a record that is cut off")?;
            let value = u64::from_be_bytes(value.try_into().expect("eight bytes"));
            let offset = header.base_offset + delta;
            if offset >= from {
                found.push(Record { offset, value, crc: Some(header.crc) });
            }
            at = end;
        }
        bytes = &bytes[size..];
    }
    Ok(found)
}

fn put_varint(out: &mut BytesMut, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.put_u8(u8::try_from(zigzag & 0x7f).expect("seven bits") | 0x80);
        zigzag >>= 7;
    }
    out.put_u8(u8::try_from(zigzag).expect("seven bits"));
}

fn take_varint(bytes: &[u8], at: &mut usize) -> Result<i64, String> {
    let (mut zigzag, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at).ok_or("a record that is cut off")?;
        *at += 1;
        zigzag |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed()));
        }
        shift += 7;
    }
}
