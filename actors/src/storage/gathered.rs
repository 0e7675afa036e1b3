//! The next batch: the requests since the store was last called, and their replies.
//!
//! Used by the StorageActor alone. It carries nothing out.

use std::collections::VecDeque;

use actix::prelude::*;

use super::StorageActor;
use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::operation::{AddTask, Dispatch, Operation, Outcome, Outcomes};

/// Most operations in one transaction: enough that each has a small share of the commit, few enough that the last one
/// does not wait long for it.
pub(super) const BATCH_OPERATIONS_MAX: usize = 256;
/// Most bytes of payloads in one transaction: where a batch is sent as a message, it must not exceed a message's limit.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most rows of bulk requests that share one transaction: small lists do, so that thousands of them do not take a
/// commit each.
const ROWS_TOGETHER_MAX: usize = 64;

/// Called with the outcome of a request.
pub(super) type Reply =
    Box<dyn FnOnce(&mut StorageActor, &mut Context<StorageActor>, StoreResult<Outcomes>)>;

/// Requests in the order in which they came. Those that change many rows have a queue of their own, so that a worker's
/// request waits for only one large or a few small ones of them, however many tails there are. A sender that needs two
/// requests in order waits for the first answer.
#[derive(Default)]
pub(super) struct Gathered {
    bulk: VecDeque<Asked>,
    others: VecDeque<Asked>,
    last: u64,
}

struct Asked {
    /// Its place in the order of arrival.
    number: u64,
    operations: Vec<Operation>,
    load: Load,
    reply: Reply,
}

/// What a batch holds of everything that is limited.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    operations: usize,
    /// How many rows change at most, for operations that may change many.
    bulk_rows: usize,
    hand_outs: usize,
    bytes: usize,
}

impl Load {
    fn of(operations: &[Operation]) -> Self {
        let bytes = |operation: &Operation| match operation {
            Operation::AddTask(AddTask { task, .. }) => task.payload.len(),
            _ => 0,
        };
        let is_hand_out = |operation: &&Operation| matches!(operation, Operation::Dispatch(_));
        Self {
            operations: operations.len(),
            bulk_rows: operations.iter().map(Operation::bulk_rows).sum(),
            hand_outs: operations.iter().filter(is_hand_out).count(),
            bytes: operations.iter().map(bytes).sum(),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            bulk_rows: self.bulk_rows + other.bulk_rows,
            hand_outs: self.hand_outs + other.hand_outs,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The replies to the requests of a batch under way.
pub(super) struct Replies {
    /// With the number of operations of each.
    asked: Vec<(usize, Reply)>,
    /// Operations that may end or begin a lease, or have a job stop, with their place in the batch.
    of_leases: Vec<(usize, Operation)>,
    /// Whether an operation may have brought work for waiting workers.
    pub(super) makes_work: bool,
    pub(super) writes: bool,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.bulk.is_empty() && self.others.is_empty()
    }

    /// How many requests there are; `None` if there are bulk ones.
    pub(super) fn requests(&self) -> Option<usize> {
        self.bulk.is_empty().then_some(self.others.len())
    }

    pub(super) fn push(&mut self, operations: Vec<Operation>, reply: Reply) {
        let load = Load::of(&operations);
        let queue = if load.bulk_rows > 0 { &mut self.bulk } else { &mut self.others };
        self.last += 1;
        queue.push_back(Asked { number: self.last, operations, load, reply });
    }

    /// Takes the next batch out, with at most `hand_outs_max` hand-outs. One message's operations stay together. Bulk
    /// ones that came before all others begin a batch, where they cost least.
    pub(super) fn take(&mut self, hand_outs_max: usize) -> (Vec<Operation>, Replies) {
        let (mut batch, mut asked, mut taken) = (Vec::new(), Vec::new(), Load::default());
        let first_other = self.others.front().map_or(u64::MAX, |first| first.number);
        while let Some(Asked { operations, load, reply, .. }) =
            self.next(first_other, taken, hand_outs_max)
        {
            asked.push((operations.len(), reply));
            batch.extend(operations);
            taken = taken.with(load);
        }
        let writes = |operation: &Operation| {
            !(operation.only_reads() || matches!(operation, Operation::Probe(_)))
        };
        let makes_work = batch.iter().any(Operation::may_bring_work);
        let writes = batch.iter().any(writes);
        let of_leases = batch.iter().enumerate().filter(|(_, operation)| is_of_leases(operation));
        let of_leases = of_leases.map(|(at, operation)| (at, operation.clone())).collect();
        (batch, Replies { asked, of_leases, makes_work, writes })
    }

    /// The next request that fits into a batch which holds `taken`. The first one always fits.
    fn next(&mut self, first_other: u64, taken: Load, hand_outs_max: usize) -> Option<Asked> {
        let fits = |asked: &mut Asked| {
            let together = taken.with(asked.load);
            taken.operations == 0
                || together.operations <= BATCH_OPERATIONS_MAX
                    && together.hand_outs <= hand_outs_max
                    && together.bytes <= BATCH_BYTES_MAX
        };
        let may_join = |asked: &mut Asked| {
            let rows = taken.with(asked.load).bulk_rows;
            asked.number < first_other
                && (taken.bulk_rows == 0 || rows <= ROWS_TOGETHER_MAX)
                && fits(asked)
        };
        self.bulk.pop_front_if(may_join).or_else(|| self.others.pop_front_if(fits))
    }
}

impl Replies {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn send(
        self,
        actor: &mut StorageActor,
        ctx: &mut Context<StorageActor>,
        outcomes: StoreResult<Vec<Result<Outcome, Rejected>>>,
    ) {
        for (at, operation) in &self.of_leases {
            let outcome =
                outcomes.as_ref().ok().and_then(|outcomes| outcomes.get(*at)?.as_ref().ok());
            outcome.into_iter().for_each(|outcome| actor.note_leases(ctx, operation, outcome));
        }
        let mut outcomes = outcomes.map(Vec::into_iter);
        for (operations, reply) in self.asked {
            let its = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.take(operations).collect::<Vec<_>>().into_iter()),
                Err(error) => Err(error.clone()),
            };
            reply(actor, ctx, its);
        }
    }
}

/// Whether an operation may have ended a lease, or made one this daemon's, or has a job stop. [`Operation::Expire`] is
/// left out because the StorageActor itself sends it, and dispatches because it handles their answers.
fn is_of_leases(operation: &Operation) -> bool {
    match operation {
        Operation::CompleteAttempt(_)
        | Operation::Release(_)
        | Operation::Undo(_)
        | Operation::Requeue(_)
        | Operation::Stop(_)
        | Operation::Heartbeat(_)
        | Operation::LoseRelay(_) => true,
        Operation::Relayed(it) => {
            let is_stop = |it: &Operation| matches!(it, Operation::Stop(_));
            it.operations.iter().any(|it| is_classic_dispatch(it) || is_stop(it))
        }
        _ => false,
    }
}

pub(super) fn is_classic_dispatch(operation: &Operation) -> bool {
    matches!(operation, Operation::Dispatch(Dispatch { holder: None, .. }))
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::{Key, Row, Run};

    use super::*;
    use shiftboss_queue::operation::{BeginDeletion, CountInFlight};

    /// However many files are removed at once, a request that comes after them is in the next batch.
    #[test]
    fn a_request_waits_for_few_of_thousands() {
        let mut gathered = Gathered::default();
        let reply = || -> Reply { Box::new(|_, _, _| {}) };
        for started in 0..1_000 {
            let run = Run { fetcher: "f".into(), started };
            gathered.push(vec![Operation::BeginDeletion(BeginDeletion(run))], reply());
        }
        let asked = Operation::CountInFlight(CountInFlight);
        gathered.push(vec![asked.clone()], reply());
        let (batch, _) = gathered.take(usize::MAX);
        assert_eq!((batch.len(), batch.last()), (ROWS_TOGETHER_MAX + 1, Some(&asked)));
    }

    /// Neither a batch nor its answer has more payload than a message may have, except that one request always goes.
    #[test]
    fn payloads_are_shared_out() {
        let mut gathered = Gathered::default();
        let reply = || -> Reply { Box::new(|_, _, _| {}) };
        let task = |bytes| {
            let row = Row { key: Key::new("a").unwrap(), payload: "p".repeat(bytes) };
            vec![Operation::AddTask(AddTask { task: row, id: None })]
        };
        for bytes in [BATCH_BYTES_MAX + 1, BATCH_BYTES_MAX / 2, BATCH_BYTES_MAX / 2, 1] {
            gathered.push(task(bytes), reply());
        }
        assert_eq!([(); 3].map(|()| gathered.take(usize::MAX).0.len()), [1, 2, 1]);
        for _ in 0..5 {
            gathered.push(
                vec![Operation::Dispatch(Dispatch { holder: None, fetchers: None })],
                reply(),
            );
        }
        assert_eq!([(); 3].map(|()| gathered.take(2).0.len()), [2, 2, 1]);
    }
}
