//! Properties that hold whatever stands in the log.

use proptest::prelude::*;

use super::*;

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Commit { proxy: usize, partition: i32, producer: i64, base: i32, count: u32, repeat: bool },
    Open { proxy: usize, nonce: u8 },
    Delete,
    Grow(i32),
    Pass(i64),
    Junk(Vec<u8>),
    Stray { epoch: i64, counter: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1usize..4, 0i32..4, -1i64..3, 0i32..6, 1u32..4, any::<bool>()).prop_map(
            |(proxy, partition, producer, base, count, repeat)| {
                Step::Commit { proxy, partition, producer, base, count, repeat }
            }
        ),
        2 => (1usize..4, 0u8..3).prop_map(|(proxy, nonce)| Step::Open { proxy, nonce }),
        1 => Just(Step::Delete),
        1 => (0i32..5).prop_map(Step::Grow),
        2 => (0i64..40_000).prop_map(Step::Pass),
        1 => proptest::collection::vec(any::<u8>(), 0..20)
            .prop_filter("0xD1 is ours", |bytes| bytes.first() != Some(&0xD1))
            .prop_map(Step::Junk),
        1 => (-2i64..50, 0u64..9).prop_map(|(epoch, counter)| Step::Stray { epoch, counter }),
    ]
}

fn run(log: &mut Log, step: Step, n: u32) {
    match step {
        Step::Commit { proxy, partition: index, producer, base, count, repeat } => {
            let birth = if repeat { LogPosition(4) } else { log.state.applied };
            let mut commit = segment(birth, if repeat { 0 } else { n }, &[batch(producer, base, count)]);
            commit.partitions[0].partition = partition(index);
            log.send_as(proxy, Command::CommitSegment(commit));
        }
        Step::Open { proxy, nonce } => {
            log.open(proxy, nonce);
        }
        Step::Delete => {
            log.send(Command::TopicDeleted { topic_id: TOPIC });
        }
        Step::Grow(partitions) => {
            log.send(Command::PartitionsCreated { topic_id: TOPIC, partitions });
        }
        Step::Pass(ms) => log.pass(ms),
        Step::Junk(bytes) => {
            let _ = log.append(bytes);
        }
        Step::Stray { epoch, counter } => {
            log.raw(2, LogPosition(epoch), counter, &Command::Heartbeat);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn i1_i5_i6_hold_in_any_history(steps in proptest::collection::vec(step(), 1..80)) {
        let mut log = Log::with_topic();
        for (n, step) in steps.into_iter().enumerate() {
            run(&mut log, step, u32::try_from(n).expect("few steps") + 1);
        }
        log.verify();
        let mut again = State::default();
        for record in &log.records {
            let _ = apply(&mut again, record).expect("it was applied before");
        }
        again.settle();
        prop_assert_eq!(again.digest(), log.state.digest());
        prop_assert_eq!(&again.checkpoints, &log.state.checkpoints);
        prop_assert_eq!(again, log.state);
    }
}
