//! Who is answered next on one client connection. Pure: no sockets, no tasks.
//!
//! Kafka answers a connection's requests strictly in their order. Here some answers come from upstream (and
//! arrive in the order their requests were sent there), some are made locally and may be ready at any time, and
//! some upstream answers belong to requests of our own (*calls*) that the client never sees. Two queues in step
//! keep this straight: what the client is owed, and what upstream owes.
//!
//! O-1. Answers leave in the order of their requests.
//! O-2. An upstream answer for the client is read only when the client is owed it next, so a slow client stops
//!      the reading and no answer is ever buffered.
//! O-3. An upstream answer to a call of our own is read as soon as it is upstream's next, whatever the client
//!      is owed: a local answer may be waiting for it.

use std::collections::VecDeque;

/// The answers owed on one connection. `L` is a finished local answer, `C` tells whose call an answer is for.
#[derive(Debug)]
pub(super) struct AnswerOrder<L, C> {
    owed_to_client: VecDeque<ClientSlot<L>>,
    owed_by_upstream: VecDeque<UpstreamSlot<C>>,
    next_slot: u64,
}

#[derive(Debug)]
struct ClientSlot<L> {
    id: SlotId,
    answer: Answer<L>,
}

#[derive(Debug)]
enum Answer<L> {
    FromUpstream,
    Local(Option<L>),
}

#[derive(Debug)]
enum UpstreamSlot<C> {
    Client,
    Call(C),
}

/// Names a local answer that is still to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotId(u64);

/// What to do next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step<L, C> {
    /// Write this to the client.
    WriteLocal(L),
    /// Read one answer from upstream and pass it to the client.
    PassUpstream,
    /// Read one answer from upstream; it is for this call.
    TakeCall(C),
    /// Nothing can be done until something is pushed or finished.
    Wait,
}

impl<L, C> Default for AnswerOrder<L, C> {
    fn default() -> Self {
        Self { owed_to_client: VecDeque::new(), owed_by_upstream: VecDeque::new(), next_slot: 0 }
    }
}

impl<L, C> AnswerOrder<L, C> {
    /// A request of the client goes upstream as it is and will be answered there. Not for requests that get no
    /// answer (Produce with acks=0).
    pub(super) fn push_forwarded(&mut self) {
        let id = self.new_slot();
        self.owed_to_client.push_back(ClientSlot { id, answer: Answer::FromUpstream });
        self.owed_by_upstream.push_back(UpstreamSlot::Client);
    }

    /// A request of the client will be answered by us.
    pub(super) fn push_local(&mut self) -> SlotId {
        let id = self.new_slot();
        self.owed_to_client.push_back(ClientSlot { id, answer: Answer::Local(None) });
        id
    }

    /// A request of our own goes upstream.
    pub(super) fn push_call(&mut self, call: C) {
        self.owed_by_upstream.push_back(UpstreamSlot::Call(call));
    }

    /// The local answer is made. False if the slot is not known or was finished before.
    pub(super) fn finish(&mut self, slot: SlotId, answer: L) -> bool {
        let Some(first) = self.owed_to_client.front().map(|s| s.id.0) else { return false };
        let Some(at) = slot.0.checked_sub(first).and_then(|n| usize::try_from(n).ok()) else { return false };
        match self.owed_to_client.get_mut(at).map(|s| &mut s.answer) {
            Some(Answer::Local(empty @ None)) => {
                *empty = Some(answer);
                true
            }
            _ => false,
        }
    }

    /// Takes the next step; what it names is no longer owed.
    pub(super) fn step(&mut self) -> Step<L, C> {
        if let Some(UpstreamSlot::Call(_)) = self.owed_by_upstream.front()
            && let Some(UpstreamSlot::Call(call)) = self.owed_by_upstream.pop_front()
        {
            return Step::TakeCall(call);
        }
        match self.owed_to_client.front_mut().map(|s| &mut s.answer) {
            Some(Answer::FromUpstream) => {
                self.owed_to_client.pop_front();
                self.owed_by_upstream.pop_front();
                Step::PassUpstream
            }
            Some(Answer::Local(answer)) => match answer.take() {
                Some(answer) => {
                    self.owed_to_client.pop_front();
                    Step::WriteLocal(answer)
                }
                None => Step::Wait,
            },
            None => Step::Wait,
        }
    }

    /// Answers that the client still waits for.
    pub(super) fn owed_to_client(&self) -> usize {
        self.owed_to_client.len()
    }

    /// Answers that upstream has still to give.
    pub(super) fn owed_by_upstream(&self) -> usize {
        self.owed_by_upstream.len()
    }

    fn new_slot(&mut self) -> SlotId {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_local_answer_waits_for_the_upstream_answer_before_it() {
        let mut order = AnswerOrder::<u32, u32>::default();
        order.push_forwarded();
        let slot = order.push_local();
        assert!(order.finish(slot, 7));
        assert_eq!(order.step(), Step::PassUpstream);
        assert_eq!(order.step(), Step::WriteLocal(7));
        assert_eq!(order.step(), Step::Wait);
    }

    #[test]
    fn a_call_is_taken_while_the_client_waits_for_a_local_answer() {
        let mut order = AnswerOrder::<u32, u32>::default();
        order.push_local();
        order.push_call(1);
        assert_eq!(order.step(), Step::TakeCall(1));
        assert_eq!(order.step(), Step::Wait);
    }

    #[test]
    fn a_forwarded_answer_is_not_read_before_its_turn() {
        let mut order = AnswerOrder::<u32, u32>::default();
        let slot = order.push_local();
        order.push_forwarded();
        order.push_call(1);
        assert_eq!(order.step(), Step::Wait, "upstream's next answer is the client's, and not due");
        assert!(order.finish(slot, 1));
        assert_eq!(order.step(), Step::WriteLocal(1));
        assert_eq!(order.step(), Step::PassUpstream);
        assert_eq!(order.step(), Step::TakeCall(1));
    }

    #[test]
    fn an_answer_is_finished_once() {
        let mut order = AnswerOrder::<u32, u32>::default();
        let slot = order.push_local();
        assert!(order.finish(slot, 1));
        assert!(!order.finish(slot, 2));
        assert_eq!(order.step(), Step::WriteLocal(1));
        assert!(!order.finish(slot, 3));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Forward,
        Local,
        Call,
        Silent,
        Finish(prop::sample::Index),
        Step,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            Just(Event::Forward),
            Just(Event::Local),
            Just(Event::Call),
            Just(Event::Silent),
            any::<prop::sample::Index>().prop_map(Event::Finish),
            Just(Event::Step),
            Just(Event::Step),
        ];
        prop::collection::vec(event, 0..200)
    }

    /// A model of both sides: upstream answers in the order it was asked, and tags each answer with its request.
    #[derive(Default)]
    struct World {
        order: AnswerOrder<u64, u64>,
        upstream: VecDeque<u64>,
        next_request: u64,
        open: Vec<(SlotId, u64)>,
        expected: Vec<u64>,
        written: Vec<u64>,
    }

    impl World {
        fn run(&mut self, event: &Event) {
            let request = self.next_request;
            self.next_request += 1;
            match event {
                Event::Forward => {
                    self.order.push_forwarded();
                    self.upstream.push_back(request);
                    self.expected.push(request);
                }
                Event::Local => {
                    self.open.push((self.order.push_local(), request));
                    self.expected.push(request);
                }
                Event::Call => {
                    self.order.push_call(request);
                    self.upstream.push_back(request);
                }
                Event::Silent => {}
                Event::Finish(which) => {
                    if !self.open.is_empty() {
                        let (slot, request) = self.open.swap_remove(which.index(self.open.len()));
                        assert!(self.order.finish(slot, request));
                    }
                }
                Event::Step => {
                    self.step();
                }
            }
        }

        fn step(&mut self) -> bool {
            match self.order.step() {
                Step::WriteLocal(request) => self.written.push(request),
                Step::PassUpstream => self.written.push(self.upstream.pop_front().expect("upstream owes an answer")),
                Step::TakeCall(call) => assert_eq!(self.upstream.pop_front(), Some(call)),
                Step::Wait => return false,
            }
            true
        }
    }

    proptest! {
        #[test]
        fn every_answer_goes_to_its_request_in_order(events in events()) {
            let mut world = World::default();
            for event in &events {
                world.run(event);
                prop_assert!(world.expected.starts_with(&world.written));
            }
            for (slot, request) in std::mem::take(&mut world.open) {
                prop_assert!(world.order.finish(slot, request));
            }
            while world.step() {}
            prop_assert_eq!(&world.written, &world.expected);
            prop_assert!(world.upstream.is_empty());
            prop_assert_eq!(world.order.owed_to_client() + world.order.owed_by_upstream(), 0);
        }
    }
}
