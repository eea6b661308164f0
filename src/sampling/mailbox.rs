//! What the daemon says to a group that is at work: one word at a time, taken between two ticks.
//!
//! The bell is the event that the group sleeps on anyway. It looks for a word only where the bell has rung, so that a word costs a
//! tick nothing.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::change::{Change, Left};
use crate::os::event::Event;

/// What is said.
#[derive(Debug)]
pub(super) enum Word {
    /// Go on like this; what is no longer needed comes back.
    Change(Box<Change>, Sender<Left>),
    /// Hand over what is in the open slab, now.
    HandOver(Sender<()>),
}

/// The daemon's end.
#[derive(Debug, Clone)]
pub struct GroupLink {
    words: Sender<Word>,
    bell: Arc<Event>,
}

/// The group's end. It is stopped by the stop event, whoever sets it; the bell must ring then.
#[derive(Debug)]
pub struct Mailbox {
    words: Receiver<Word>,
    pub(super) bell: Arc<Event>,
    stop: Arc<Event>,
}

/// Both ends, for a group that ends when `stop` is set and the bell rung.
pub fn mailbox(stop: Arc<Event>) -> (GroupLink, Mailbox) {
    let (to, words) = bounded(1);
    let bell = Arc::new(Event::new());
    (GroupLink { words: to, bell: Arc::clone(&bell) }, Mailbox { words, bell, stop })
}

impl GroupLink {
    /// Wakes the group, so that it sees that it is to end.
    pub fn ring(&self) {
        self.bell.set();
    }

    /// Changes the group, and waits until that is done. What comes back is to be dropped where that may take a while. None if the group
    /// has ended.
    pub fn change(&self, change: Box<Change>) -> Option<Left> {
        self.ask(|reply| Word::Change(change, reply))
    }

    /// Has the group hand over what is in its open slab, and waits until that is done. None if it has ended.
    pub fn hand_over(&self) -> Option<()> {
        self.ask(Word::HandOver)
    }

    fn ask<T>(&self, word: impl FnOnce(Sender<T>) -> Word) -> Option<T> {
        let (reply, answer) = bounded(1);
        self.words.send(word(reply)).ok()?;
        self.ring();
        // A group that ends drops the word, and the sender in it.
        answer.recv().ok()
    }
}

impl Mailbox {
    /// For a group that nobody says anything to until `stop` is set.
    pub fn silent(stop: Arc<Event>) -> Self {
        Self { words: bounded(1).1, bell: Arc::clone(&stop), stop }
    }

    /// The bell has rung: what was said; none if the group is to end.
    pub(super) fn listen(&self) -> Heard {
        if self.stop.is_set() {
            return Heard::Stop;
        }
        // Before the looks: who says something after them rings again.
        self.bell.clear();
        if self.stop.is_set() {
            return Heard::Stop;
        }
        self.words.try_recv().map_or(Heard::Nothing, Heard::Word)
    }
}

/// What a look into the mailbox has found.
#[derive(Debug)]
pub(super) enum Heard {
    /// The group is to end.
    Stop,
    /// Nothing: it has been taken already.
    Nothing,
    /// This.
    Word(Word),
}
