//! The threads that make records durable: one `fdatasync` covers everything that was written when
//! it begins. Meanwhile others write on, and the next sync may begin.

#![expect(clippy::disallowed_methods, reason = "where no simulation gives threads")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use cairn_base::planted::{Bug, is_planted};

use parking_lot::Mutex;

use crate::files;
use crate::format::hint::Hint;
use crate::log::{Log, Next, finish};
use crate::shared::{StoreShared, Syncer};

impl StoreShared {
    /// Puts a log in the queue of the syncer.
    pub(crate) fn tell(self: &Arc<Self>, log: &Arc<Log>) {
        let syncer = self.syncer.get_or_init(|| match &self.config.threads {
            None => Syncer::Threads(spawn(&Arc::downgrade(self), self.config.syncers)),
            Some(_) => Syncer::Turns(Mutex::default()),
        });
        match syncer {
            // The threads end only when the store is dropped, and `self` keeps the store.
            Syncer::Threads(sender) => drop(sender.send(Arc::clone(log))),
            Syncer::Turns(due) => {
                due.lock().push_back(Arc::clone(log));
                let shared = Arc::clone(self);
                if let Some(threads) = &self.config.threads {
                    threads.run(Box::new(move || shared.before_waiting()));
                }
            }
        }
    }

    /// To be called before waiting for a sync: if there are no threads for syncs, they are done
    /// now.
    pub(crate) fn before_waiting(&self) {
        let Some(Syncer::Turns(due)) = self.syncer.get() else { return };
        loop {
            let Some(log) = due.lock().pop_front() else { return };
            self.serve(&log, 0);
        }
    }

    fn serve(&self, log: &Arc<Log>, syncer: usize) {
        let file = log.sync_files.get(syncer).unwrap_or(&log.file);
        loop {
            let (next, written) = log.begin_sync();
            match next {
                Next::Nothing => return,
                Next::Seal => return self.seal(log),
                Next::Sync if is_planted(Bug::SkippedFsync) => self.durable(log, written),
                Next::Sync => match file.sync_data() {
                    Ok(()) => self.durable(log, written),
                    Err(error) => return self.poison(log, &error),
                },
            }
            if !log.is_closed() {
                return;
            }
        }
    }

    fn durable(&self, log: &Log, end: u64) {
        let flights;
        {
            // One step: a log without flights is sealed, and a sealed segment to which the index
            // does not point is removed.
            let mut state = self.state.write();
            flights = log.synced(end);
            for flight in flights.iter().filter(|flight| flight.done.is_some()) {
                state.settle(log.number, &flight.outcome);
            }
        }
        flights.into_iter().for_each(|flight| finish(flight, || Ok(())));
    }

    /// Writes the hint of a full segment, and returns its unused space.
    fn seal(&self, log: &Arc<Log>) {
        let end = log.durable_end();
        {
            let mut state = self.state.write();
            let Some(segment) = state.segments.get_mut(&log.number) else { return };
            if segment.log.take().is_none() {
                return;
            }
            segment.end = end;
        }
        let hint = Hint { segment: log.number, salt: log.salt, end, entries: log.take_entries() };
        // On a full disk the hint may need the returned space. Without a hint the segment is read
        // at the next start; a file that was not cut is only longer.
        let cut = log.file.set_len(end);
        if let Err(error) = files::write_hint(&*self.disk, &hint).and(cut) {
            tracing::warn!(segment = log.number, %error, "a segment was not sealed");
        }
        self.log_ended();
    }
}

fn spawn(shared: &Weak<StoreShared>, syncers: usize) -> Sender<Arc<Log>> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for syncer in 0..syncers.max(1) {
        let (shared, receiver) = (Weak::clone(shared), Arc::clone(&receiver));
        std::thread::Builder::new()
            .name(format!("blocks-sync-{syncer}"))
            .spawn(move || run(&shared, &receiver, syncer))
            .expect("a thread can be started");
    }
    sender
}

fn run(shared: &Weak<StoreShared>, receiver: &Mutex<Receiver<Arc<Log>>>, syncer: usize) {
    loop {
        let received = receiver.lock().recv();
        let (Ok(log), Some(shared)) = (received, shared.upgrade()) else { return };
        shared.serve(&log, syncer);
    }
}
