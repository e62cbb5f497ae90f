//! `/metrics`: every counter of the proxy under its public name.
//!
//! Labels by topic are bounded: the largest topics by bytes, and `other` for the rest.

use std::sync::atomic::Ordering;

use super::Sources;
use super::exposition::Exposition;
use crate::kafka_server::TopicBytes;
use crate::object_storage::{LATENCY_BUCKETS_MS, Operation};

/// Topics that have labels of their own.
const TOPICS_LABELLED: usize = 200;

pub(super) fn render(sources: &Sources) -> Result<Vec<u8>, prometheus::Error> {
    let mut out = Exposition::default();
    build(sources, &mut out);
    store(sources, &mut out);
    produce(sources, &mut out);
    cache(sources, &mut out);
    log(sources, &mut out);
    clients(sources, &mut out);
    topics(sources, &mut out);
    out.encode()
}

fn build(sources: &Sources, out: &mut Exposition) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("zone", sources.proxy.config.proxy.zone.as_str())];
    out.gauge("sidestream_build_info", "The running version.", &labels, 1.0);
}

fn store(sources: &Sources, out: &mut Exposition) {
    for operation in Operation::ALL {
        let counts = sources.store.stats().counts(operation);
        let labels = [("operation", operation.name())];
        out.counter(
            "sidestream_object_store_requests_total",
            "Requests sent to the object store, retries included: what is billed.",
            &labels,
            counts.attempts,
        );
        out.counter(
            "sidestream_object_store_retries_total",
            "Requests that repeated another.",
            &labels,
            counts.retries(),
        );
        out.counter(
            "sidestream_object_store_errors_total",
            "Operations that failed in the end.",
            &labels,
            counts.errors,
        );
        out.counter(
            "sidestream_object_store_bytes_total",
            "Bytes moved by operations that succeeded.",
            &labels,
            counts.bytes,
        );
        out.histogram(
            "sidestream_object_store_operation_seconds",
            "Time of whole operations, retries included.",
            &labels,
            counts.latency_us_sum as f64 / 1e6,
            LATENCY_BUCKETS_MS.iter().map(|ms| *ms as f64 / 1e3),
            &counts.buckets,
        );
    }
}

fn produce(sources: &Sources, out: &mut Exposition) {
    let counts = sources.proxy.produce.counts();
    out.counter("sidestream_produce_batches_total", "Record batches taken in.", &[], counts.batches);
    out.counter("sidestream_produce_bytes_total", "Bytes of record batches taken in.", &[], counts.bytes);
    out.counter("sidestream_produce_segments_total", "WAL segments rolled.", &[], counts.segments_rolled);
    out.counter(
        "sidestream_produce_segments_failed_total",
        "WAL segments whose upload failed; their batches were refused with a retriable error.",
        &[],
        counts.segments_failed,
    );
    out.counter(
        "sidestream_produce_commits_unknown_total",
        "Commits whose outcome was not known in time.",
        &[],
        counts.commits_unknown,
    );
    out.gauge(
        "sidestream_produce_inflight_bytes",
        "Bytes taken in and not answered.",
        &[],
        counts.inflight_bytes as f64,
    );
    let refused = sources.proxy.stats.produce_refused_total.load(Ordering::Relaxed);
    out.counter(
        "sidestream_produce_refused_batches_total",
        "Batches refused by policy: not idempotent, or transactional.",
        &[],
        refused,
    );
}

fn cache(sources: &Sources, out: &mut Exposition) {
    let counts = sources.cache.counts();
    out.counter("sidestream_cache_hits_total", "Ranges found in the zone cache.", &[], counts.hits);
    out.counter("sidestream_cache_misses_total", "Ranges fetched from the object store.", &[], counts.misses);
    out.gauge("sidestream_cache_bytes", "Bytes in the zone cache.", &[], counts.bytes as f64);
}

fn log(sources: &Sources, out: &mut Exposition) {
    let coordination = &sources.proxy.coordination;
    let stats = coordination.stats();
    let appended = stats.appended.load(Ordering::Relaxed);
    out.counter(
        "sidestream_metadata_log_appended_total",
        "Commands appended to the metadata log, repeats included.",
        &[],
        appended,
    );
    let applied = stats.applied.load(Ordering::Relaxed);
    out.counter("sidestream_metadata_log_applied_total", "Commands applied, of all proxies.", &[], applied);
    for (reason, count) in stats.refused() {
        let labels = [("reason", reason)];
        out.counter(
            "sidestream_metadata_log_refused_total",
            "Commands refused when they were applied.",
            &labels,
            count,
        );
    }
    let lag = stats.apply_lag_ms.load(Ordering::Relaxed) as f64 / 1e3;
    out.gauge("sidestream_metadata_log_lag_seconds", "Wall time minus log time at the last applied record.", &[], lag);
    out.gauge("sidestream_metadata_log_position", "The last applied position.", &[], coordination.applied().0 as f64);
    let checkpoint = coordination.checkpoint();
    out.gauge(
        "sidestream_metadata_checkpoint_position",
        "Log position of the last checkpoint.",
        &[],
        checkpoint.position.0 as f64,
    );
    out.gauge(
        "sidestream_metadata_checkpoint_digest",
        "The first 48 bits of the state's digest at the last checkpoint, as a number: equal on all proxies at the same position.",
        &[],
        checkpoint.digest.prefix() as f64,
    );
    let serving = f64::from(u8::from(super::not_serving_because(coordination).is_none()));
    out.gauge("sidestream_serving", "1 while diskless topics are served.", &[], serving);
    let strays = sources.strays.partitions.load(Ordering::Relaxed);
    out.gauge(
        "sidestream_stray_partitions",
        "Diskless partitions that a client wrote to past the proxy.",
        &[],
        strays as f64,
    );
}

fn clients(sources: &Sources, out: &mut Exposition) {
    let stats = &sources.proxy.stats;
    let open = stats.connections.load(Ordering::Relaxed);
    out.gauge("sidestream_client_connections", "Open client connections.", &[], open as f64);
    let total = stats.connections_total.load(Ordering::Relaxed);
    out.counter("sidestream_client_connections_total", "Client connections accepted.", &[], total);
    let refused = stats.connections_refused_total.load(Ordering::Relaxed);
    out.counter("sidestream_client_connections_refused_total", "Client connections over the limit.", &[], refused);
}

fn topics(sources: &Sources, out: &mut Exposition) {
    let mut all: Vec<(String, [u64; 3])> =
        sources.proxy.stats.topics().into_iter().map(|(name, bytes)| (name, load(&bytes))).collect();
    all.sort_by(|a, b| (b.1[0] + b.1[2]).cmp(&(a.1[0] + a.1[2])).then_with(|| a.0.cmp(&b.0)));
    let rest = all.split_off(all.len().min(TOPICS_LABELLED));
    if !rest.is_empty() {
        let sum = rest.iter().fold([0; 3], |sum, (_, one)| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
        all.push(("other".to_owned(), sum));
    }
    for (name, [produced, records, fetched]) in all {
        let labels = [("topic", name.as_str())];
        out.counter("sidestream_topic_produced_bytes_total", "Bytes produced to a diskless topic.", &labels, produced);
        out.counter(
            "sidestream_topic_produced_records_total",
            "Records produced to a diskless topic.",
            &labels,
            records,
        );
        out.counter("sidestream_topic_fetched_bytes_total", "Bytes fetched from a diskless topic.", &labels, fetched);
    }
}

fn load(bytes: &TopicBytes) -> [u64; 3] {
    [&bytes.produced_bytes, &bytes.produced_records, &bytes.fetched_bytes].map(|n| n.load(Ordering::Relaxed))
}
