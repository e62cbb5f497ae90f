//! Record batches of format v2: the fields that are read, the checks on what a producer sent, and the few
//! bytes that are rewritten when a batch is served.
//!
//! ```text
//! offset  size  field                  covered by the CRC
//!      0     8  base offset            no    set when served
//!      8     4  batch length           no    bytes after this field
//!     12     4  partition leader epoch no    set when served
//!     16     1  magic                  no
//!     17     4  CRC-32C                no    of bytes 21 to the end
//!     21     2  attributes             yes   bit 3 set when served with LogAppendTime
//!     23     4  last offset delta      yes
//!     27     8  base timestamp         yes
//!     35     8  max timestamp          yes   set when served with LogAppendTime
//!     43     8  producer id            yes
//!     51     2  producer epoch         yes
//!     53     4  base sequence          yes
//!     57     4  records count          yes
//!     61     -  records                yes   one compressed block when a codec is set
//! ```
//!
//! Never changes bytes in place: they may be shared with the cache and with other answers. Decompresses only where a
//! record is looked up by its timestamp, with a bound, and never on the way in or out.

mod decompress;
mod header;
mod patch;
mod pieces;
mod records;
#[cfg(test)]
pub mod testing;
mod validate;

pub use header::{BatchHeader, CompressionType, HEADER_SIZE, HeaderError, LOG_OVERHEAD, NO_PRODUCER_ID, NO_TIMESTAMP};
pub use patch::{ServeAs, patch};
pub use pieces::{checksum, copy_prefix, crc_is_valid, skip_prefix, total_len};
pub use records::{FoundRecord, MOST_RECORD_BYTES, Precision, Progress, RecordSearch, Wanted};
pub use validate::{InvalidBatch, Limits, validate};
