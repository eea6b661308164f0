//! Threads whose behaviour is known, and what their own clocks say of it.

use std::error::Error;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::thread::{pin_to_cpus, set_realtime_priority};
use rustix::process::setpriority_process;

const NS_PER_MS: u64 = 1_000_000;

/// The lowest priority of a thread; see nice(2).
const NICE_LOWEST: i32 = 19;

/// Time for which each workload runs.
const RUN_NS: u64 = 2_000 * NS_PER_MS;

/// The times of a thread in a period, by its own clock and the kernel's.
#[derive(Debug, Clone)]
pub struct ThreadAccount {
    /// Its name, which is also the name of its role.
    pub name: &'static str,
    /// Its id.
    pub thread: u32,
    /// Begin and end of the stretch, on `CLOCK_MONOTONIC`.
    pub span_ns: (u64, u64),
    /// Its CPU time, by `CLOCK_THREAD_CPUTIME_ID`.
    pub running_ns: u64,
    /// The time that it was ready and waited for a CPU, by /proc/PID/task/TID/schedstat.
    pub ready_ns: u64,
}

impl ThreadAccount {
    /// The time that it neither ran nor was ready.
    pub fn sleeping_ns(&self) -> u64 {
        (self.span_ns.1 - self.span_ns.0).saturating_sub(self.running_ns + self.ready_ns)
    }
}

/// One workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Runs it.
    pub run: fn() -> Result<Vec<ThreadAccount>, Box<dyn Error>>,
    /// Whether its threads wake on CPUs that are idle. A virtual CPU needs some 20 us to leave its
    /// idle state, which the kernel's account attributes wrongly:
    ///
    /// - A thread that another CPU wakes counts as ready only when its CPU has heard of it.
    /// - A thread that a timer of its own CPU wakes counts as running from the wakeup on, since the
    ///   scheduler saves an update of its clock (`rq_clock_skip_update` in kernel/sched/core.c).
    ///
    /// The recording, as perf(1), takes the times of wakeup and switch. So of such threads the
    /// running time alone is judged.
    pub wakes_idle_cpus: bool,
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "runs 3 ms, sleeps 7 ms", run: duty_cycle, wakes_idle_cpus: true },
    Workload { name: "same, on a busy CPU", run: busy_duty_cycle, wakes_idle_cpus: false },
    Workload { name: "two threads, one CPU", run: one_cpu, wakes_idle_cpus: false },
    Workload { name: "lock convoy", run: || lock_convoy(None), wakes_idle_cpus: true },
    Workload { name: "lock convoy, one CPU", run: || lock_convoy(Some(0)), wakes_idle_cpus: false },
    Workload { name: "priority inversion", run: priority_inversion, wakes_idle_cpus: false },
];

/// Reads the clocks at the begin of a stretch.
struct Stopwatch {
    name: &'static str,
    thread: u32,
    begin: (u64, u64, u64),
}

/// Monotonic time, CPU time and time ready, in this order.
fn clocks() -> Result<(u64, u64, u64), Box<dyn Error + Send + Sync>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ready = text.split_ascii_whitespace().nth(1).ok_or("no schedstat")?.parse()?;
    Ok((monotonic_ns(), thread_cpu_ns(), ready))
}

impl Stopwatch {
    fn start(name: &'static str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())?;
        Ok(Self { name, thread, begin: clocks()? })
    }

    fn stop(self) -> Result<ThreadAccount, Box<dyn Error + Send + Sync>> {
        let (end_ns, running_ns, ready_ns) = clocks()?;
        Ok(ThreadAccount {
            name: self.name,
            thread: self.thread,
            span_ns: (self.begin.0, end_ns),
            running_ns: running_ns - self.begin.1,
            ready_ns: ready_ns - self.begin.2,
        })
    }
}

/// Runs for so much CPU time.
fn spin(cpu_ns: u64) {
    let until = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
}

/// Runs what threads do, each on a thread of this name, and returns their accounts.
fn run_all<F>(threads: Vec<(&'static str, F)>) -> Result<Vec<ThreadAccount>, Box<dyn Error>>
where
    F: FnOnce(u64) -> Result<(), Box<dyn Error + Send + Sync>> + Send,
{
    let barrier = Barrier::new(threads.len());
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for (name, work) in threads {
            let barrier = &barrier;
            let body = move || -> Result<ThreadAccount, Box<dyn Error + Send + Sync>> {
                barrier.wait();
                let stopwatch = Stopwatch::start(name)?;
                work(stopwatch.begin.0 + RUN_NS)?;
                stopwatch.stop()
            };
            handles.push(thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body)?);
        }
        let mut accounts = Vec::new();
        for handle in handles {
            let account = handle.join().map_err(|_| "a thread of the workload panicked")?;
            accounts.push(account.map_err(|error| -> Box<dyn Error> { error })?);
        }
        Ok(accounts)
    })
}

type Work<'w> = Box<dyn FnOnce(u64) -> Result<(), Box<dyn Error + Send + Sync>> + Send + 'w>;

/// Runs 3 ms and sleeps 7 ms, again and again.
fn cycle(until: u64) {
    while monotonic_ns() < until {
        spin(3 * NS_PER_MS);
        thread::sleep(Duration::from_millis(7));
    }
}

fn duty_cycle() -> Result<Vec<ThreadAccount>, Box<dyn Error>> {
    let work = |until| {
        cycle(until);
        Ok(())
    };
    run_all(vec![("duty-cycle", work)])
}

/// The same on a CPU that is never idle, since another thread with the lowest priority runs there,
/// too.
fn busy_duty_cycle() -> Result<Vec<ThreadAccount>, Box<dyn Error>> {
    let cycling: Work<'_> = Box::new(|until| {
        pin_to_cpus(&[0])?;
        cycle(until);
        Ok(())
    });
    let filling: Work<'_> = Box::new(|until| {
        pin_to_cpus(&[0])?;
        // Linux sets the priority of the calling thread alone.
        setpriority_process(None, NICE_LOWEST)?;
        while monotonic_ns() < until {
            spin(NS_PER_MS);
        }
        Ok(())
    });
    run_all(vec![("busy-cycle", cycling), ("filler", filling)])
}

fn one_cpu() -> Result<Vec<ThreadAccount>, Box<dyn Error>> {
    let work = |_| -> Work<'_> {
        Box::new(|until| {
            pin_to_cpus(&[0])?;
            while monotonic_ns() < until {
                spin(NS_PER_MS);
            }
            Ok(())
        })
    };
    run_all(vec![("rival-a", work(0)), ("rival-b", work(1))])
}

fn lock_convoy(cpu: Option<u32>) -> Result<Vec<ThreadAccount>, Box<dyn Error>> {
    let lock = Mutex::new(());
    let lock = &lock;
    let work = |_| -> Work<'_> {
        Box::new(move |until| {
            if let Some(cpu) = cpu {
                pin_to_cpus(&[cpu])?;
            }
            while monotonic_ns() < until {
                let guard = lock.lock().map_err(|_| "poisoned")?;
                spin(NS_PER_MS);
                drop(guard);
            }
            Ok(())
        })
    };
    run_all(vec![("convoy-a", work(0)), ("convoy-b", work(1)), ("convoy-c", work(2)), ("convoy-d", work(3))])
}

/// On one CPU, a thread of high priority waits for a lock whose owner, of low priority, is kept
/// from running by a third one between them.
fn priority_inversion() -> Result<Vec<ThreadAccount>, Box<dyn Error>> {
    let lock = Mutex::new(());
    let low: Work<'_> = Box::new(|until| {
        pin_to_cpus(&[0])?;
        while monotonic_ns() < until {
            let guard = lock.lock().map_err(|_| "poisoned")?;
            spin(10 * NS_PER_MS);
            drop(guard);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    let middle: Work<'_> = Box::new(|until| {
        pin_to_cpus(&[0])?;
        set_realtime_priority(1)?;
        while monotonic_ns() < until {
            thread::sleep(Duration::from_millis(15));
            spin(25 * NS_PER_MS);
        }
        Ok(())
    });
    let high: Work<'_> = Box::new(|until| {
        pin_to_cpus(&[0])?;
        set_realtime_priority(2)?;
        while monotonic_ns() < until {
            thread::sleep(Duration::from_millis(5));
            let guard = lock.lock().map_err(|_| "poisoned")?;
            spin(NS_PER_MS);
            drop(guard);
        }
        Ok(())
    });
    run_all(vec![("priority-low", low), ("priority-mid", middle), ("priority-high", high)])
}
