//! Which commands go out when, and what answers mean for them.

use super::*;

fn submit(submissions: &mut Submissions) -> (Submitted, Option<u64>) {
    let (submitted, append) = submissions.take(Command::Heartbeat, Instant::now());
    let counter = append.map(|(counter, _)| counter);
    (submitted, counter)
}

fn open_at(submissions: &mut Submissions, epoch: i64) -> Vec<u64> {
    submissions.opened(LogPosition(epoch), Instant::now()).map(|(counter, _)| counter).collect()
}

#[test]
fn commands_wait_for_an_open_and_then_go_out_in_order() {
    let mut submissions = Submissions::new();
    let waiting: Vec<_> = (0..3).map(|_| submit(&mut submissions)).collect();
    assert!(waiting.iter().all(|(_, counter)| counter.is_none()));
    assert_eq!(open_at(&mut submissions, 10), [1, 2, 3]);
    assert_eq!(submit(&mut submissions).1, Some(4));
}

#[tokio::test]
async fn an_answer_of_the_old_epoch_is_not_taken_for_a_command_that_waits() {
    let mut submissions = Submissions::new();
    open_at(&mut submissions, 10);
    let (sent, counter) = submit(&mut submissions);
    assert_eq!(counter, Some(1));
    submissions.opening(Instant::now());
    let (waits, _) = submit(&mut submissions);
    let settled = submissions.answered(LogPosition(10), 1, Ok(&Outcome::Done));
    assert_eq!(settled, Meaning::Settled);
    assert_eq!(sent.await, Ok(Outcome::Done));
    assert_eq!(open_at(&mut submissions, 20), [1], "only what is unanswered goes out again");
    let late = submissions.answered(LogPosition(10), 1, Ok(&Outcome::Refused(Refusal::Superseded)));
    assert_eq!(late, Meaning::Settled);
    submissions.answered(LogPosition(20), 1, Ok(&Outcome::Done));
    assert_eq!(waits.await, Ok(Outcome::Done));
}

#[test]
fn a_hole_in_the_counters_opens_again_and_a_repeat_does_not() {
    let mut submissions = Submissions::new();
    open_at(&mut submissions, 10);
    let counter = |expected, got| Outcome::Refused(Refusal::Counter { expected, got });
    assert_eq!(submissions.answered(LogPosition(10), 3, Ok(&counter(2, 3))), Meaning::Reopen);
    assert_eq!(submissions.answered(LogPosition(10), 1, Ok(&counter(2, 1))), Meaning::Settled);
    let fenced = Outcome::Refused(Refusal::Fenced { newer: LogPosition(30) });
    assert_eq!(submissions.answered(LogPosition(10), 2, Ok(&fenced)), Meaning::Fenced(LogPosition(30)));
}

#[tokio::test]
async fn what_waits_too_long_is_unknown() {
    let mut submissions = Submissions::new();
    let (old, _) = submit(&mut submissions);
    submissions.give_up(Duration::from_secs(5), Instant::now());
    assert!(submissions.oldest_append(Instant::now()).is_some(), "not yet");
    submissions.give_up(Duration::ZERO, Instant::now());
    assert_eq!(old.await, Err(SubmitError::Unknown));
}

#[tokio::test]
async fn more_than_the_limit_is_refused_at_once() {
    let mut submissions = Submissions::new();
    let _waiting: Vec<_> = (0..MAX_UNANSWERED).map(|_| submit(&mut submissions)).collect();
    assert_eq!(submit(&mut submissions).0.await, Err(SubmitError::NotAppended));
}
