//! What the demo's traffic would cost on AWS, in dollars per month of 30 days. A rough figure: storage, machines and
//! discounts are left out, and named prices are list prices of us-east-1.

const SECONDS_PER_MONTH: f64 = 30.0 * 24.0 * 3600.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Dollars per GiB that crosses zones: 0.01 out of one and 0.01 into the other.
const CROSS_ZONE_PER_GIB: f64 = 0.02;
/// Dollars per PUT and per GET to S3 Standard.
const PER_PUT: f64 = 0.005 / 1000.0;
const PER_GET: f64 = 0.0004 / 1000.0;
const ZONES: f64 = 3.0;
const REPLICATION_FACTOR: f64 = 3.0;

/// Times that a byte written to a classic topic crosses zones: its copies, its way from a producer of any zone to the
/// leader, and its way from the leader to a consumer of any zone.
pub(super) fn crossings_per_byte(groups: f64) -> f64 {
    let elsewhere = (ZONES - 1.0) / ZONES;
    (REPLICATION_FACTOR - 1.0) + elsewhere + elsewhere * groups
}

/// What a classic topic with this traffic pays for crossing zones.
pub(super) fn classic_per_month(bytes_per_second: f64, groups: f64) -> f64 {
    bytes_per_second * SECONDS_PER_MONTH / GIB * crossings_per_byte(groups) * CROSS_ZONE_PER_GIB
}

/// What the requests cost.
pub(super) fn requests_per_month(puts_per_second: f64, gets_per_second: f64) -> f64 {
    (puts_per_second * PER_PUT + gets_per_second * PER_GET) * SECONDS_PER_MONTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mebibyte_a_second_costs_what_the_formula_says() {
        // 2 copies + 2/3 to the leader + 2/3 to one group = 3 1/3 crossings of 2,531.25 GiB at 0.02.
        let cost = classic_per_month(1024.0 * 1024.0, 1.0);
        assert!((cost - 2531.25 * (10.0 / 3.0) * 0.02).abs() < 0.01, "{cost}");
    }

    #[test]
    fn four_puts_a_second_cost_about_fifty_dollars() {
        let cost = requests_per_month(4.0, 0.0);
        assert!((cost - 51.84).abs() < 0.01, "{cost}");
    }
}
