//! Commands of the daemon to a running group. The group handles commands one at a time, between two
//! ticks.
//!
//! A command sets the wake-up event on which the group sleeps between ticks. The group checks for a
//! command only when the event is set, so that a tick takes no additional time.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_os::wake_event::WakeEvent;

use super::group_update::{GroupUpdate, RetiredSources};

/// A command to a group.
#[derive(Debug)]
pub(super) enum GroupCommand {
    /// Apply this update, and return the sources that the group no longer needs.
    Update(Box<GroupUpdate>, Sender<RetiredSources>),
    /// Queue the open slab for the recorder now.
    Flush(Sender<()>),
}

/// The daemon's side of the channel.
#[derive(Debug, Clone)]
pub struct GroupHandle {
    commands: Sender<GroupCommand>,
    wake: Arc<WakeEvent>,
}

/// The group's side of the channel. To stop the group, the daemon sets first the stop event and
/// then the wake-up event.
#[derive(Debug)]
pub struct CommandReceiver {
    commands: Receiver<GroupCommand>,
    pub(super) wake: Arc<WakeEvent>,
    stop: Arc<WakeEvent>,
}

/// Creates both sides of the channel. The group ends when `stop` is set and the group is woken.
pub fn command_channel(stop: Arc<WakeEvent>) -> (GroupHandle, CommandReceiver) {
    let (to, words) = bounded(1);
    let bell = Arc::new(WakeEvent::new());
    (
        GroupHandle { commands: to, wake: Arc::clone(&bell) },
        CommandReceiver { commands: words, wake: bell, stop },
    )
}

impl GroupHandle {
    /// Wakes the group, so that it notices the stop event.
    pub fn wake(&self) {
        self.wake.set();
    }

    /// Sends an update to the group, and waits until the group has applied it. Dropping the
    /// returned sources may take a while. Returns `None` if the group has ended.
    pub fn update(&self, change: Box<GroupUpdate>) -> Option<RetiredSources> {
        self.request(|reply| GroupCommand::Update(change, reply))
    }

    /// Makes the group queue its open slab, and waits until the group has done so. Returns `None`
    /// if the group has ended.
    pub fn flush(&self) -> Option<()> {
        self.request(GroupCommand::Flush)
    }

    fn request<T>(&self, command: impl FnOnce(Sender<T>) -> GroupCommand) -> Option<T> {
        let (reply, answer) = bounded(1);
        self.commands.send(command(reply)).ok()?;
        self.wake();
        // If the group ends, it drops the command, and with the command the sender of the reply.
        answer.recv().ok()
    }
}

impl CommandReceiver {
    /// Creates a receiver that receives no commands, only the stop event.
    #[cfg(any(test, feature = "testing"))]
    pub fn stop_only(stop: Arc<WakeEvent>) -> Self {
        Self { commands: bounded(1).1, wake: Arc::clone(&stop), stop }
    }

    /// Returns the next command after the wake-up event was set, or `Stop` if the group must end.
    pub(super) fn receive(&self) -> ReceivedCommand {
        if self.stop.is_set() {
            return ReceivedCommand::Stop;
        }
        // The event is cleared before the check for a command, so that a command that is sent after
        // the check sets the event again.
        self.wake.clear();
        if self.stop.is_set() {
            return ReceivedCommand::Stop;
        }
        self.commands.try_recv().map_or(ReceivedCommand::Nothing, ReceivedCommand::Command)
    }
}

/// The result of checking for a command.
#[derive(Debug)]
pub(super) enum ReceivedCommand {
    /// The group must end.
    Stop,
    /// There is no command, because the group has already handled the command that set the event.
    Nothing,
    /// A command.
    Command(GroupCommand),
}
