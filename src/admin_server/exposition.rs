//! Builds Prometheus metric families from numbers that are counted elsewhere.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder as _, TextEncoder};

/// The families of one scrape.
#[derive(Default)]
pub(super) struct Exposition {
    families: Vec<MetricFamily>,
}

/// Labels of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    pub(super) fn counter(&mut self, name: &str, help: &str, labels: Labels<'_>, value: u64) {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        let mut metric = labelled(labels);
        metric.set_counter(counter);
        self.push(name, help, MetricType::COUNTER, metric);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = labelled(labels);
        metric.set_gauge(gauge);
        self.push(name, help, MetricType::GAUGE, metric);
    }

    /// `counts` are not cumulative and have one more than `bounds`.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        sum: f64,
        bounds: impl Iterator<Item = f64>,
        counts: &[u64],
    ) {
        let mut so_far = 0;
        let buckets = bounds.zip(counts).map(|(bound, count)| {
            so_far += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(so_far);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(sum);
        let mut metric = labelled(labels);
        metric.set_histogram(histogram);
        self.push(name, help, MetricType::HISTOGRAM, metric);
    }

    fn push(&mut self, name: &str, help: &str, kind: MetricType, metric: Metric) {
        if let Some(family) = self.families.iter_mut().find(|f| f.name() == name) {
            family.mut_metric().push(metric);
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(vec![metric]);
        self.families.push(family);
    }

    /// The text format of Prometheus.
    pub(super) fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.families, &mut out)?;
        Ok(out)
    }
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.iter().map(pair).collect());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_share_a_family() {
        let mut out = Exposition::default();
        out.counter("a_total", "A.", &[("x", "1")], 3);
        out.counter("a_total", "A.", &[("x", "2")], 4);
        out.histogram("h", "H.", &[], 2.5, [1.0, 2.0].into_iter(), &[1, 2, 3]);
        let text = String::from_utf8(out.encode().expect("valid")).expect("text");
        assert_eq!(text.matches("# TYPE a_total counter").count(), 1);
        assert!(text.contains("a_total{x=\"2\"} 4"));
        assert!(text.contains("h_bucket{le=\"2\"} 3"));
        assert!(text.contains("h_bucket{le=\"+Inf\"} 6"));
    }
}
