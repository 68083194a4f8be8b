//! The audit, the access log and the log of this process, on their way to files, buckets and a
//! webhook.

mod bucket;
mod errors;
mod file;
mod names;
pub mod own;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_audit::{LineLog, LineQueue, LineSink, Names, drain};
use cairn_base::Clock;
use cairn_doors::Records;
use cairn_fs::Fs;
use tokio::time::{sleep, timeout};

use crate::failure::{Failure, Result};
use bucket::BucketSink;
use errors::ErrorRates;
use file::{FileSink, Retention};
use webhook::WebhookSink;

/// Time for which lines are gathered for a file; and for sinks that cost more.
const FILE_PACE: Duration = Duration::from_millis(50);
const SLOW_PACE: Duration = Duration::from_secs(1);
/// Interval of the checks whether counts of requests without a user are to be written.
const REFUSALS_LOOK: Duration = Duration::from_secs(10);
/// Time for sinks to take the waiting lines when the process stops.
const CLOSING: Duration = Duration::from_secs(5);

/// Where the audit goes.
#[derive(clap::Args)]
pub struct AuditArgs {
    /// Record in this file, as lines of JSON, each request that asks for a change or is refused
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// POST the lines of the audit to this URL
    #[arg(long, value_name = "URL", env = "CAIRN_AUDIT_WEBHOOK", hide_env_values = true)]
    audit_webhook: Option<String>,
    /// Change nothing that cannot be recorded: room for the record is made sure of first, at each
    /// of the other options of the audit. Deletions by root go on
    #[arg(long)]
    audit_required: bool,
    /// Size beyond which files of the audit and of the access log are rotated, MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    log_file_mib: u64,
    /// Number of rotated files that are kept of each of these logs
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..10_000))]
    log_files: u32,
    /// Days for which further rotated files of these logs are kept, whatever their number; 0 for
    /// none. They take as much of the disk as requests make them
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..10_000))]
    log_days: u64,
}

/// Where records of a server or gateway go.
#[derive(clap::Args)]
pub struct RecordArgs {
    #[command(flatten)]
    audit: AuditArgs,
    /// Append the lines of the audit to this bucket of root, which is made if there is none
    #[arg(long, value_name = "BUCKET")]
    audit_bucket: Option<String>,
    /// Keep the last 8,192 records of the audit in memory, for the console. The other options of
    /// the audit do so, too
    #[arg(long)]
    audit_memory: bool,
    /// Record in this file, as lines of JSON, each request at S3, HTTP, websites and the console
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Append the log of this process to this bucket of root, which is made if there is none
    #[arg(long, value_name = "BUCKET")]
    log_bucket: Option<String>,
    /// POST to this URL when the process has logged many errors within a minute
    #[arg(long, value_name = "URL", env = "CAIRN_ERROR_WEBHOOK", hide_env_values = true)]
    error_webhook: Option<String>,
    /// Number of errors within a minute from which --error-webhook is told
    #[arg(long, value_name = "N", default_value_t = 10, requires = "error_webhook")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    error_rate: u64,
    /// Number of records of level error or above, of one log source within a minute, from which
    /// --error-webhook is told
    #[arg(long, value_name = "N", requires = "error_webhook")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    source_error_rate: Option<u64>,
}

/// Condition under which the last records of the audit are kept in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Never,
    /// Kept if they also go to a sink.
    WithSinks,
    Always,
}

/// Threads that give lines to sinks.
#[derive(Default)]
pub struct Sinks {
    queues: Vec<Arc<LineQueue>>,
    threads: Vec<JoinHandle<()>>,
    audit: Option<LineLog>,
}

impl Sinks {
    /// Starts a thread that gives the lines of a queue to `sink`.
    fn start(
        &mut self,
        queue: Arc<LineQueue>,
        clock: &Arc<dyn Clock>,
        pace: Duration,
        mut sink: impl LineSink + 'static,
    ) -> Result<Arc<LineQueue>> {
        let (taken, clock) = (Arc::clone(&queue), Arc::clone(clock));
        let thread = std::thread::Builder::new().name(format!("{}-{}", queue.log, queue.sink));
        let work = move || drain(&taken, &*clock, pace, &mut sink);
        self.threads.push(thread.spawn(work)?);
        self.queues.push(Arc::clone(&queue));
        Ok(queue)
    }

    pub fn queues(&self) -> &[Arc<LineQueue>] {
        &self.queues
    }

    /// Gives the waiting lines to the sinks, and ends.
    pub async fn close(self) {
        if let Some(audit) = &self.audit {
            audit.tell_refusals(true);
        }
        self.queues.iter().for_each(|queue| queue.close());
        let ended = tokio::task::spawn_blocking(move || {
            self.threads.into_iter().for_each(|thread| drop(thread.join()));
        });
        if timeout(CLOSING, ended).await.is_err() {
            tracing::warn!("a sink takes no lines: those that wait are lost");
        }
    }
}

/// Writes, as long as the process lives, how many requests without a user were only counted.
async fn tell_refusals(audit: LineLog) {
    loop {
        sleep(REFUSALS_LOOK).await;
        audit.tell_refusals(false);
    }
}

impl AuditArgs {
    fn queue(&self, sink: &'static str) -> Arc<LineQueue> {
        let queue = LineQueue::new("audit", sink);
        Arc::new(if self.audit_required { queue.required() } else { queue })
    }

    fn file(&self, path: &Path) -> Result<FileSink> {
        let time = Duration::from_secs(self.log_days * 24 * 3600);
        let kept = Retention { files: self.log_files, time };
        FileSink::open(path, self.log_file_mib << 20, kept)
    }

    /// Starts the sinks; `more` are started already. Must be called within a runtime.
    ///
    /// # Errors
    /// The file cannot be used, or the URL is malformed.
    pub fn start(
        &self,
        sinks: &mut Sinks,
        clock: &Arc<dyn Clock>,
        names: &Names,
        mut more: Vec<Arc<LineQueue>>,
        memory: Memory,
    ) -> Result<Option<LineLog>> {
        let queue = |sink| self.queue(sink);
        if let Some(path) = &self.audit_log {
            more.push(sinks.start(queue("file"), clock, FILE_PACE, self.file(path)?)?);
        }
        if let Some(url) = &self.audit_webhook {
            let sink = WebhookSink::new("--audit-webhook", url)?;
            more.push(sinks.start(queue("webhook"), clock, SLOW_PACE, sink)?);
        }
        if more.is_empty() && self.audit_required {
            return Err(Failure::usage(
                "--audit-required needs --audit-log, --audit-webhook or --audit-bucket",
            ));
        }
        if more.is_empty() && memory != Memory::Always {
            return Ok(None);
        }
        let mut log = LineLog::new(Arc::clone(clock), Arc::clone(names), &more).bounded();
        if memory != Memory::Never {
            log = log.remembered();
        }
        sinks.audit = Some(log.clone());
        tokio::spawn(tell_refusals(log.clone()));
        Ok(Some(log))
    }
}

impl RecordArgs {
    /// Returns the bucket of the audit.
    pub fn audit_bucket(&self) -> Option<&str> {
        self.audit_bucket.as_deref()
    }

    /// Returns the buckets of records and of the log of this process.
    pub fn buckets(&self) -> impl Iterator<Item = &str> {
        [&self.audit_bucket, &self.log_bucket].into_iter().flatten().map(String::as_str)
    }

    /// Keeps the log of this process for its bucket, from here on.
    pub fn keep_own_log(&self) {
        if self.log_bucket.is_some() {
            own::keep();
        }
    }

    /// Starts all sinks. `source` names this process in buckets.
    ///
    /// # Errors
    /// A file cannot be used, or a URL is malformed.
    pub fn start(&self, fs: &Fs, source: &str) -> Result<(Records, Sinks)> {
        let mut sinks = Sinks::default();
        let (clock, names) = (fs.clock(), names::of(fs));
        let bucket = |name: &str| BucketSink::new(fs.clone(), name, source);
        let mut audit = Vec::new();
        if let Some(name) = &self.audit_bucket {
            let queue = self.audit.queue("bucket");
            audit.push(sinks.start(queue, clock, SLOW_PACE, bucket(name))?);
        }
        let memory = if self.audit_memory { Memory::Always } else { Memory::WithSinks };
        let audit = self.audit.start(&mut sinks, clock, &names, audit, memory)?;
        if let Some(log) = audit.clone().filter(LineLog::is_required) {
            fs.require_records(move || log.check_room());
        }
        let access = match &self.access_log {
            None => None,
            Some(path) => {
                let queue = Arc::new(LineQueue::new("access", "file"));
                let queue = sinks.start(queue, clock, FILE_PACE, self.audit.file(path)?)?;
                Some(LineLog::new(Arc::clone(clock), names, &[queue]))
            }
        };
        if let (Some(name), Some(queue)) = (&self.log_bucket, own::queue()) {
            sinks.start(queue, clock, SLOW_PACE, bucket(name))?;
        }
        if let Some(url) = &self.error_webhook {
            let rates = ErrorRates { own: self.error_rate, source: self.source_error_rate };
            errors::watch(url, rates, source)?;
        }
        Ok((Records::new(audit, access), sinks))
    }
}
