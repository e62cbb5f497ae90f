//! Deterministic simulation: the real coordination, Produce, Fetch and metadata store of several proxies, in one thread
//! and in simulated time, on a log, a store, disks and networks that fail as a seed says.
//!
//! ```text
//! cargo test --release --test simulation                                  200 seeds, and twice the same
//! cargo test --release --test simulation -- --from 0 --to 10000           a long run; goes on with --from
//! cargo test --release --test simulation -- --seed 4711 --history FILE    one seed again, written down
//! ```

mod batches;
mod chance;
mod crash_points;
mod disk;
mod faults;
mod log;
mod nemesis;
mod network;
mod producers;
mod proxy;
mod readers;
mod recorder;
mod store;
mod time;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use parking_lot::Mutex;
use world::{Report, Script};

#[derive(Parser, Debug)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value = "0")]
    from: u64,
    /// The seed after the last.
    #[arg(long)]
    to: Option<u64>,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Write the history of the seed there, for `sidestream verify`.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Only the crash points.
    #[arg(long)]
    crash_points: bool,
    /// Stop at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// What `cargo test` hands to every test binary; ignored.
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    #[arg(hide = true)]
    filter: Vec<String>,
}

/// Seeds without further arguments.
const SEEDS: u64 = 200;
/// Of these, as many are lived through twice.
const REPEATED: u64 = 10;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    }
    if let Some(seed) = arguments.seed {
        return one(seed, arguments.history.as_deref());
    }
    if arguments.crash_points {
        return if dies_everywhere() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let to = arguments.to.unwrap_or(arguments.from + SEEDS);
    let is_good = many(arguments.from, to, arguments.first);
    let survives = arguments.to.is_some() || dies_everywhere();
    let is_same = arguments.to.is_some() || (arguments.from..arguments.from + REPEATED).all(is_repeatable);
    if is_good && is_same && survives { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn live(seed: u64) -> Report {
    block_on(world::live(Script::drawn(seed)))
}

/// In simulated time.
fn block_on<T>(world: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(world)
}

fn lines(report: &Report) -> String {
    report.events.iter().map(|event| event.to_line() + "\n").collect()
}

fn one(seed: u64, history: Option<&std::path::Path>) -> ExitCode {
    let report = live(seed);
    if let Some(path) = history {
        std::fs::write(path, lines(&report)).expect("the history can be written");
    }
    println!("seed {seed}: {:?} simulated, troubles {:?}", report.simulated, report.troubles);
    report.counts.iter().for_each(|(what, count)| println!("  {what}: {count}"));
    report.wrong.iter().for_each(|wrong| println!("  WRONG {wrong}"));
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A process dies at each point, and at each after each.
fn dies_everywhere() -> bool {
    let deaths = crash_points::all();
    let (next, failed, unreached) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    on_all_cores(|| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(planned) = usize::try_from(number).ok().and_then(|number| deaths.get(number)) else { return false };
        let report = block_on(crash_points::live(number, planned.clone()));
        if !report.unreached.is_empty() {
            println!("planned {planned:?}, but {:?} was not reached", report.unreached);
            unreached.fetch_add(1, Ordering::Relaxed);
        }
        if !report.wrong.is_empty() {
            println!("after dying at {planned:?} (number {number}):");
            report.wrong.iter().take(5).for_each(|wrong| println!("  {wrong}"));
            failed.fetch_add(1, Ordering::Relaxed);
        }
        true
    });
    let (failed, unreached) = (failed.into_inner(), unreached.into_inner());
    println!("crash points: {} deaths, single and in pairs: {failed} failed, {unreached} not reached", deaths.len());
    failed == 0 && unreached == 0
}

/// Repeats something in as many threads as there are cores, until it says that nothing is left.
fn on_all_cores(again: impl Fn() -> bool + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| while again() {});
        }
    });
}

/// The same seed twice gives the same history, byte for byte.
fn is_repeatable(seed: u64) -> bool {
    let (first, second) = (lines(&live(seed)), lines(&live(seed)));
    let differs = first.lines().zip(second.lines()).position(|(a, b)| a != b);
    if first != second {
        println!("seed {seed} gave two histories that differ from line {differs:?} on");
    }
    first == second
}

#[derive(Default)]
struct Sum {
    counts: BTreeMap<String, u64>,
    simulated_s: f64,
    failed: Vec<u64>,
}

/// Lives through many seeds, as many at a time as there are cores.
fn many(from: u64, to: u64, stop_at_first: bool) -> bool {
    let (began, next, sum) = (Instant::now(), AtomicU64::new(from), Mutex::<Sum>::default());
    on_all_cores(|| {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= to || (stop_at_first && !sum.lock().failed.is_empty()) {
            return false;
        }
        let report = live(seed);
        add(&mut sum.lock(), seed, report);
        true
    });
    let (mut sum, seconds) = (sum.into_inner(), began.elapsed().as_secs_f64());
    sum.failed.sort_unstable();
    let seeds = next.load(Ordering::Relaxed).min(to) - from;
    sum.counts.iter().for_each(|(what, count)| println!("  {what}: {count}"));
    println!(
        "simulation: seeds {from} to {to}: {} failed {:?}; {:.2} simulated hours in {seconds:.0} s, {:.0} seeds a minute, {:.0} times real time",
        sum.failed.len(),
        sum.failed,
        sum.simulated_s / 3600.0,
        seeds as f64 * 60.0 / seconds,
        sum.simulated_s / seconds
    );
    sum.failed.is_empty()
}

fn add(sum: &mut Sum, seed: u64, report: Report) {
    sum.simulated_s += report.simulated.as_secs_f64();
    for (what, count) in report.counts {
        *sum.counts.entry(what).or_default() += count;
    }
    if !report.wrong.is_empty() {
        println!("seed {seed} failed; again: cargo test --release --test simulation -- --seed {seed}");
        report.wrong.iter().take(5).for_each(|wrong| println!("  {wrong}"));
        sum.failed.push(seed);
    }
}
