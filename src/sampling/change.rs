//! What becomes of a group while it is at work: sources that come, go or are replaced, and how its thread runs.
//!
//! Everything is made by the daemon before; the group exchanges and sends back what it no longer needs, so that nothing is opened,
//! started or closed on its thread. Sources that stay keep their deadlines, numbers, budgets and files.

use std::io;

use super::budget::Budget;
use super::errand::Errand;
use super::group::{ActiveSource, Group, GroupSource, Way};
use super::mailbox::{Heard, Word};
use super::privileges;
use super::sampler::Opened;
use super::schedule::Tick;
use crate::config;
use crate::frame::Envelope;
use crate::metrics::{GroupLatencies, Limit, Producer};
use crate::os::clock::monotonic_ns;
use crate::slab::{Causes, OnFull};

/// How a group goes on.
#[derive(Debug)]
pub struct Change {
    /// Its sources from now on, in this order. What it has and is not among them ends.
    pub sources: Vec<Then>,
    /// How its thread runs.
    pub config: config::Group,
    /// What becomes of a slab that finds its queue full.
    pub on_full: OnFull,
    /// Latencies of these sources, in this order.
    pub latencies: Producer<GroupLatencies>,
}

/// A source of a group that goes on.
#[derive(Debug)]
pub enum Then {
    /// One that the group has, as it is.
    Kept {
        /// Its id.
        id: u16,
        /// If it gets another budget: most of a core that it may take, in hundredths of a percent.
        budget: Option<u32>,
    },
    /// A new one; or one that the group has under this id, opened anew: it goes on with that one's numbers.
    Ready(Box<ReadySource>),
}

/// A source that only waits to be read.
#[derive(Debug)]
pub struct ReadySource {
    pub(super) source: ActiveSource,
    pub(super) period_ns: u64,
}

/// What a group no longer needs. To drop it closes files, and ends threads once their readings have come back.
#[derive(Debug)]
#[allow(dead_code, reason = "kept to be dropped elsewhere")]
pub struct Left(Vec<ActiveSource>);

impl ReadySource {
    /// Makes a source ready, from `now_ns` on, to be read on these processors, or on all, if it has a thread of its own.
    ///
    /// # Errors
    /// The kernel refuses the thread for a source that needs one.
    pub fn new(source: GroupSource, cpus: &[u32], now_ns: u64) -> io::Result<Self> {
        let GroupSource { id, period_ns, budget, sampler, errand, metrics } = source;
        let envelope = Envelope::new(id);
        let source = ActiveSource {
            model: match &sampler {
                Opened::Built(_) => Box::default(),
                Opened::Fixed(sampler) => envelope.around(sampler.model().payload()),
            },
            envelope,
            metrics,
            next_seq: 0,
            payload_bytes: 0,
            builds: 0,
            build_ns: 0,
            budget: Budget::new(budget, period_ns, now_ns),
            way: match errand {
                None => Way::Here(sampler),
                Some((name, timeout_ns)) => {
                    Way::Errand(Errand::start(&name, sampler, timeout_ns, cpus.to_vec())?)
                }
            },
        };
        Ok(Self { source, period_ns })
    }
}

impl Group {
    /// The bell has rung. Does what was said; false if the group is to end.
    #[cold]
    pub(super) fn listen(&mut self) -> bool {
        match self.mailbox.listen() {
            Heard::Stop => return false,
            Heard::Nothing => {}
            // Nobody may be left to hear the answer: the run ends.
            Heard::Word(Word::HandOver(reply)) => {
                self.hand_over.hand_over(monotonic_ns());
                let _nobody_waits = reply.send(());
            }
            Heard::Word(Word::Change(change, reply)) => {
                let _nobody_waits = reply.send(self.change(*change));
            }
        }
        true
    }

    /// Goes on like this. A tick that has come and was not served counts as missed for a source that ends, or whose period is another
    /// one from now on; all others serve it next.
    fn change(&mut self, change: Change) -> Left {
        let now = self.collect_errands();
        let mut had: Vec<_> = std::mem::take(&mut self.sources).into_iter().map(Some).collect();
        let gone_by: Vec<u64> = self.schedule.gone_by(now).collect();
        let mut left = Vec::with_capacity(had.len());
        let mut ticks = Vec::with_capacity(change.sources.len());
        let mut unhurried = Vec::with_capacity(change.sources.len()); // places of those whose budget begins anew
        for then in change.sources {
            let id = then.id();
            let at = had.iter().position(|source| source.as_ref().is_some_and(|source| source.id() == id));
            let before = at.and_then(|at| {
                let gone_by = gone_by.get(at).copied().unwrap_or(0);
                Some((had.get_mut(at)?.take()?, self.schedule.tick(at)?, gone_by))
            });
            let place = self.sources.len();
            match (then, before) {
                (Then::Kept { budget, .. }, Some((mut source, tick, _))) => {
                    if let Some(basis_points) = budget {
                        source.budget = Budget::new(basis_points, tick.period_ns(), now);
                        unhurried.push(place);
                    }
                    ticks.push(tick);
                    self.sources.push(source);
                }
                (Then::Kept { .. }, None) => {}
                (Then::Ready(ready), before) => {
                    let ReadySource { mut source, period_ns } = *ready;
                    let mut tick = Tick::behind(now, period_ns, self.start_ns);
                    if let Some((before, old_tick, gone_by)) = before {
                        source.next_seq = before.next_seq;
                        if old_tick.period_ns() == period_ns {
                            tick = old_tick;
                        } else {
                            before.metrics.missed.add(gone_by);
                        }
                        left.push(before);
                    }
                    unhurried.push(place);
                    ticks.push(tick);
                    self.sources.push(source);
                }
            }
        }
        for (source, gone_by) in had.into_iter().zip(gone_by) {
            let Some(source) = source else { continue };
            source.metrics.missed.add(gone_by);
            source.metrics.demand.set(0);
            left.push(source);
        }
        self.dismiss(&mut left, now);
        self.schedule.set(ticks);
        for place in unhurried {
            self.schedule.set_stride(place, 1, now);
            if let Some(source) = self.sources.get(place) {
                source.metrics.demand.set(0);
                source.metrics.set_pace(1, Limit::Source);
            }
        }
        self.has_errands = self.sources.iter().any(|source| matches!(source.way, Way::Errand(_)));
        self.is_held_back = self.sources.iter().any(|source| source.budget.is_held_back());
        std::mem::replace(&mut self.latencies, change.latencies).finish();
        self.hand_over.set_on_full(change.on_full);
        let before = std::mem::replace(&mut self.config, change.config);
        if before != self.config {
            self.waiter.set_timing(self.config.timing);
            privileges::change(self.name, &before, &self.config);
        }
        Left(left)
    }

    /// The end of sources while the group goes on. What is being read for them and is not back is lost: nobody waits. A program that
    /// is waited for is killed.
    fn dismiss(&mut self, sources: &mut [ActiveSource], now_ns: u64) {
        for source in &mut *sources {
            if let Way::Errand(errand) = &mut source.way {
                errand.cut_short();
                if let Some(reading) = errand.abandon() {
                    source.metrics.timed_out.add(1);
                    self.hand_over.lose(reading, Causes::TIMED_OUT);
                }
            }
            self.hand_over.settle(source.id());
        }
        if !sources.is_empty() {
            self.hand_over.hand_over(now_ns);
        }
    }
}

impl Then {
    fn id(&self) -> u16 {
        match self {
            Self::Kept { id, .. } => *id,
            Self::Ready(ready) => ready.source.id(),
        }
    }
}
