//! The objects of one bucket: their bytes in memory or in files, their keys in order, and S3's operations on them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::checksum::ChecksumHasher;
use s3s::dto::*;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};

use crate::front::Staleness;

/// Keys of one listing, at most; as S3 has it.
const PAGE: usize = 1_000;

struct Stored {
    /// Absent for objects in files.
    bytes: Option<Bytes>,
    size: u64,
    etag: String,
    modified: SystemTime,
    put: Instant,
    /// Deleted objects are remembered for listings that are stale.
    deleted: Option<Instant>,
}

impl Stored {
    fn is_listed(&self, at: Instant) -> bool {
        self.put <= at && self.deleted.is_none_or(|deleted| deleted > at)
    }
}

pub(crate) struct Objects {
    bucket: String,
    directory: Option<PathBuf>,
    keys: Mutex<BTreeMap<String, Stored>>,
}

impl Objects {
    /// Finds what an earlier process left in the directory.
    pub(crate) fn open(bucket: String, directory: Option<PathBuf>) -> std::io::Result<Self> {
        let mut keys = BTreeMap::new();
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory)?;
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with('.') {
                    continue;
                }
                let key = percent_decode_str(&name).decode_utf8_lossy().into_owned();
                let bytes = std::fs::read(entry.path())?;
                let modified = entry.metadata()?.modified()?;
                keys.insert(key, Stored { bytes: None, modified, ..stored(&bytes) });
            }
        }
        Ok(Self { bucket, directory, keys: Mutex::new(keys) })
    }

    fn check(&self, bucket: &str) -> S3Result<()> {
        if bucket == self.bucket { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
    }

    /// Works on the keys. Nothing in it may wait.
    fn with_keys<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Stored>) -> T) -> S3Result<T> {
        let mut keys = self.keys.lock().map_err(|_| s3_error!(InternalError, "an earlier request panicked"))?;
        Ok(work(&mut keys))
    }

    async fn keep(&self, key: &str, bytes: &Bytes) -> S3Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let (whole, part) = (file_of(directory, key), directory.join(format!(".{:016x}", fastrand::u64(..))));
        let kept = async {
            tokio::fs::write(&part, bytes).await?;
            tokio::fs::rename(&part, whole).await
        };
        kept.await.map_err(|error| s3_error!(error, InternalError, "the object cannot be kept"))
    }

    async fn bytes_of(&self, key: &str) -> S3Result<(Bytes, ETag, Timestamp)> {
        let found = self.with_keys(|keys| {
            let stored = keys.get(key).filter(|stored| stored.deleted.is_none());
            stored.map(|stored| (stored.bytes.clone(), ETag::Strong(stored.etag.clone()), stored.modified.into()))
        })?;
        let (bytes, etag, modified) = found.ok_or_else(|| s3_error!(NoSuchKey))?;
        if let Some(bytes) = bytes {
            return Ok((bytes, etag, modified));
        }
        let file = self.directory.as_deref().map(|directory| file_of(directory, key)).unwrap_or_default();
        let bytes = tokio::fs::read(file).await.map_err(|error| s3_error!(error, NoSuchKey))?;
        Ok((bytes.into(), etag, modified))
    }

    async fn remove(&self, key: &str) -> S3Result<()> {
        self.with_keys(|keys| {
            if let Some(stored) = keys.get_mut(key).filter(|stored| stored.deleted.is_none()) {
                stored.deleted = Some(Instant::now());
                stored.bytes = None;
            }
        })?;
        if let Some(directory) = &self.directory {
            let _ = tokio::fs::remove_file(file_of(directory, key)).await;
        }
        Ok(())
    }
}

fn stored(bytes: &[u8]) -> Stored {
    let mut crc = ChecksumHasher { crc64nvme: Some(Default::default()), ..Default::default() };
    crc.update(bytes);
    Stored {
        bytes: None,
        size: bytes.len() as u64,
        etag: crc.finalize().checksum_crc64nvme.unwrap_or_default().replace(['=', '/', '+'], "x"),
        modified: SystemTime::now(),
        put: Instant::now(),
        deleted: None,
    }
}

/// One file for each object, flat: a key is no path.
fn file_of(directory: &Path, key: &str) -> PathBuf {
    directory.join(utf8_percent_encode(key, NON_ALPHANUMERIC).to_string())
}

/// Compares the checksums that a client has sent with those of what came.
fn verify(input: &PutObjectInput, bytes: &[u8]) -> S3Result<()> {
    let mut hasher = ChecksumHasher {
        crc32: input.checksum_crc32.is_some().then(Default::default),
        crc32c: input.checksum_crc32c.is_some().then(Default::default),
        sha1: input.checksum_sha1.is_some().then(Default::default),
        sha256: input.checksum_sha256.is_some().then(Default::default),
        crc64nvme: input.checksum_crc64nvme.is_some().then(Default::default),
    };
    hasher.update(bytes);
    let computed = hasher.finalize();
    let agree = computed.checksum_crc32 == input.checksum_crc32
        && computed.checksum_crc32c == input.checksum_crc32c
        && computed.checksum_sha1 == input.checksum_sha1
        && computed.checksum_sha256 == input.checksum_sha256
        && computed.checksum_crc64nvme == input.checksum_crc64nvme;
    if agree { Ok(()) } else { Err(s3_error!(BadDigest)) }
}

fn whole_number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        self.check(&request.input.bucket)?;
        let body = request.input.body.take().map_or_else(Body::empty, Body::from);
        let bytes = body.collect().await.map_err(|_| s3_error!(IncompleteBody))?.to_bytes();
        let input = request.input;
        verify(&input, &bytes)?;
        let exists = self.with_keys(|keys| keys.get(&input.key).is_some_and(|stored| stored.deleted.is_none()))?;
        if exists && input.if_none_match.is_some() {
            return Err(s3_error!(PreconditionFailed));
        }
        self.keep(&input.key, &bytes).await?;
        let mut object = stored(&bytes);
        let e_tag = Some(ETag::Strong(object.etag.clone()));
        object.bytes = self.directory.is_none().then_some(bytes);
        self.with_keys(|keys| keys.insert(input.key, object))?;
        Ok(S3Response::new(PutObjectOutput { e_tag, ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        self.check(&input.bucket)?;
        let (bytes, etag, modified) = self.bytes_of(&input.key).await?;
        let size = bytes.len() as u64;
        let mut output = GetObjectOutput {
            e_tag: Some(etag),
            last_modified: Some(modified),
            accept_ranges: Some("bytes".to_owned()),
            ..Default::default()
        };
        let mut part = bytes;
        if let Some(range) = input.range {
            let range = range.check(size).map_err(|_| s3_error!(InvalidRange))?;
            output.content_range = Some(format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1)));
            let end = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
            part = part.slice(end(range.start)..end(range.end));
        }
        output.content_length = Some(whole_number(part.len() as u64));
        output.body = Some(StreamingBlob::from(Body::from(part)));
        Ok(S3Response::new(output))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        self.check(&request.input.bucket)?;
        let (bytes, etag, modified) = self.bytes_of(&request.input.key).await?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(whole_number(bytes.len() as u64)),
            e_tag: Some(etag),
            last_modified: Some(modified),
            accept_ranges: Some("bytes".to_owned()),
            ..Default::default()
        }))
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.check(&request.input.bucket)?;
        self.remove(&request.input.key).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.check(&input.bucket)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            self.remove(&object.key).await?;
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        let deleted = (input.delete.quiet != Some(true)).then_some(deleted);
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        self.check(&input.bucket)?;
        let stale = request.extensions.get::<Staleness>().map_or(Duration::ZERO, |staleness| staleness.0);
        let now = Instant::now();
        let at = now.checked_sub(stale).unwrap_or(now);
        let prefix = input.prefix.clone().unwrap_or_default();
        let limit = input.max_keys.and_then(|keys| usize::try_from(keys).ok()).unwrap_or(PAGE).min(PAGE);
        // The token is the last key of the page before.
        let after = input.continuation_token.clone().or(input.start_after.clone());
        let page = self.with_keys(|keys| page(keys, &prefix, after, input.delimiter.as_deref(), limit, at))?;
        let count = i32::try_from(page.contents.len() + page.common.len()).unwrap_or(i32::MAX);
        let common = page.common.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) }).collect();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: Some(i32::try_from(limit).unwrap_or(i32::MAX)),
            key_count: Some(count),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next,
            contents: Some(page.contents),
            common_prefixes: Some(common),
            ..Default::default()
        }))
    }
}

#[derive(Default)]
struct Page {
    contents: Vec<Object>,
    common: Vec<String>,
    /// The last key of this page, where more follow.
    next: Option<String>,
}

fn page(
    keys: &BTreeMap<String, Stored>,
    prefix: &str,
    after: Option<String>,
    delimiter: Option<&str>,
    limit: usize,
    at: Instant,
) -> Page {
    let from =
        after.filter(|after| after.as_str() >= prefix).map_or(Bound::Included(prefix.to_owned()), Bound::Excluded);
    let mut page = Page::default();
    let mut last = None;
    for (key, stored) in keys.range((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix)) {
        if !stored.is_listed(at) {
            continue;
        }
        let rest = &key[prefix.len()..];
        let group = delimiter.and_then(|d| rest.find(d).map(|end| key[..prefix.len() + end + d.len()].to_owned()));
        if group.is_some() && group.as_ref() == page.common.last() {
            last = Some(key.clone());
            continue;
        }
        if page.contents.len() + page.common.len() == limit {
            page.next = last;
            break;
        }
        last = Some(key.clone());
        match group {
            Some(group) => page.common.push(group),
            None => page.contents.push(Object {
                key: Some(key.clone()),
                size: Some(whole_number(stored.size)),
                e_tag: Some(ETag::Strong(stored.etag.clone())),
                last_modified: Some(stored.modified.into()),
                ..Default::default()
            }),
        }
    }
    page
}
