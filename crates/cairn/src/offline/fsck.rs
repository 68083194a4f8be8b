//! `cairn fsck`: checks everything a store has on disk, and says which objects are damaged.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cairn_auth::SealKey;
use cairn_base::{Error, Owner, SessionId};
use cairn_blocks::Store;
use cairn_meta::check::damage::{self, BadBlock, ObjectDamage};
use cairn_meta::check::{self, Bound, Chunk, SiftedRows};
use cairn_meta::engine::{Snapshot, embedded};
use cairn_meta::keys;
use cairn_meta::rows::{AccessKey, Row};
use indicatif::ProgressBar;
use serde::Serialize;

use super::frozen_disk::FrozenDisk;
use super::store::{Frozen, refuse_node};
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{DAMAGED_METADATA, Failure, Result};
use crate::metadata::MetaArgs;
use crate::output;

/// Blocks of the inventory that are looked at together.
const PAGE: usize = 1000;

/// Check a store that no server uses. Changes nothing: not even a repair is made
///
/// Reads all metadata and all blocks, checks every checksum and that all rows fit together, and
/// names each damaged object. Exit code 1 if anything is damaged. A cluster is checked while it
/// serves, by `cairn cluster fsck` and `cairn cluster scrub`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn fsck /srv/cairn
  cairn fsck --quick --json /srv/cairn | jq .damaged")]
pub struct FsckArgs {
    /// The data directory
    dir: PathBuf,
    #[command(flatten)]
    meta: MetaArgs,
    /// Check only that each block is there, without reading its bytes
    #[arg(long)]
    quick: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Findings of a check.
#[derive(Debug, Default, Serialize)]
struct Report {
    sound: bool,
    /// Set if rows, or pages of their table, fail verification.
    damaged_metadata: bool,
    /// Set if the metadata table was not closed properly; the next start repairs that on its own.
    unclean: bool,
    rows: u64,
    buckets: u64,
    directories: u64,
    files: u64,
    uploads: u64,
    blocks: u64,
    bytes_read: u64,
    /// Garbage of former sessions, or of deletions not yet carried out: the server collects it.
    orphan_blocks: u64,
    freed_blocks: u64,
    /// Damaged blocks that no object holds any more.
    damaged_garbage: u64,
    /// Blocks of sessions that the metadata do not know: the metadata are older than the blocks.
    unknown_blocks: u64,
    /// Segments with parts that cannot be read.
    damaged_segments: u64,
    finding_count: u64,
    findings: Vec<Finding>,
    damaged: Vec<ObjectDamage>,
}

impl Report {
    fn found(&mut self, about: &str, what: String) {
        self.finding_count += 1;
        self.findings.push(Finding { about: about.to_owned(), what });
    }
}

/// An inconsistency in the metadata.
#[derive(Debug, Serialize)]
struct Finding {
    about: String,
    what: String,
}

pub fn run(args: &FsckArgs) -> Result<ExitCode> {
    refuse_node(&args.dir)?;
    let mut report = Report::default();
    if args.meta.place() == MetaPlace::Directory {
        verify_engine(&args.dir, &mut report)?;
    }
    let store = Frozen::open(&args.dir, &args.meta)?;
    let rows = store.snapshot()?;
    let sifted = SiftedRows::new(&*rows);
    check_rows(&sifted, store.is_counted(&sifted)?, &mut report)?;
    check_secrets(&sifted, &store.dir, &mut report)?;
    let bad = check_blocks(&sifted, &store.blocks, args.quick, &mut report)?;
    count_orphans(&sifted, &store.blocks, &mut report)?;
    report.damaged_segments = store.blocks.open_report().damaged_segments;
    let named = damage::name(&sifted, &bad, Bound::none())?;
    let place = store.dir.meta().join("rows.redb");
    for finding in sifted.findings() {
        report.damaged_metadata = true;
        let about = format!("{}: {}", place.display(), finding.about);
        report.found(&about, finding.what);
    }
    (report.damaged, report.damaged_garbage) = (named.damaged, named.garbage.len() as u64);
    report.sound = report.finding_count == 0
        && report.damaged.is_empty()
        && report.damaged_segments == 0
        && report.unknown_blocks == 0;
    if args.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if report.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verify_engine(path: &Path, report: &mut Report) -> Result<()> {
    let dir = DataDir::open(path, MetaPlace::Directory)?;
    let disk = FrozenDisk::open(&dir.meta());
    match embedded::verify(&disk, &embedded::Config::default()) {
        Ok(verified) => report.unclean = verified.repaired,
        // The readable rows are checked nevertheless.
        Err(error @ Error::Corrupt { .. }) => {
            report.damaged_metadata = true;
            report.found(&dir.meta().display().to_string(), error.to_string());
        }
        Err(error) => {
            return Err(Failure::from(error).of(dir.meta().display()).and(DAMAGED_METADATA));
        }
    }
    Ok(())
}

fn check_rows(snapshot: &dyn Snapshot, is_counted: bool, report: &mut Report) -> Result<()> {
    let bar = output::count_bar(0, "metadata rows");
    let mut progress = |rows| bar.set_position(rows);
    let found = if is_counted {
        check::check(snapshot, &mut progress)?
    } else {
        check::check_uncounted(snapshot, &mut progress)?
    };
    bar.finish_and_clear();
    report.rows = found.rows;
    report.buckets = found.buckets;
    report.directories = found.directories;
    report.files = found.files;
    report.uploads = found.uploads;
    report.finding_count += found.finding_count;
    let named = check::name_findings(snapshot, found.findings, &mut Bound::none())?;
    report.findings.extend(named.into_iter().map(|(about, what)| Finding { about, what }));
    Ok(())
}

/// Opens every sealed secret with the key that is kept beside the metadata.
fn check_secrets(snapshot: &dyn Snapshot, dir: &DataDir, report: &mut Report) -> Result<()> {
    let key = match dir.seal_bytes() {
        Ok(Some(bytes)) => Some(SealKey::new(&bytes)),
        Ok(None) => {
            report.found("secret.key", dir.no_seal().to_string());
            None
        }
        Err(failure) => {
            report.found("secret.key", failure.to_string());
            None
        }
    };
    let Some(key) = key else { return Ok(()) };
    let (mut start, end) = keys::credentials(b'a');
    let (mut sealed, mut closed) = (0, Vec::new());
    loop {
        let page = snapshot.scan(&start, &end, PAGE)?;
        let Some((last, _)) = page.last() else { break };
        start = [last, &b"\0"[..]].concat().into();
        for (row, value) in &page {
            let id = String::from_utf8_lossy(row.get(2..).unwrap_or_default()).into_owned();
            // An unreadable key is already among the findings of the rows.
            let Ok(access_key) = AccessKey::decode(value) else { continue };
            sealed += 1;
            if key.open(&id, &access_key.sealed).is_err() {
                closed.push(id);
            }
        }
    }
    if let Err(failure) = dir.require_opened(sealed, closed.len() < sealed) {
        report.found("secret.key", failure.to_string());
        return Ok(());
    }
    for id in closed {
        let what = "its sealed secret does not open: remove it and make another".to_owned();
        report.found(&format!("access key {id}"), what);
    }
    Ok(())
}

/// Checks every block that extents name, once.
fn check_blocks(
    snapshot: &dyn Snapshot,
    blocks: &Store,
    quick: bool,
    report: &mut Report,
) -> Result<Vec<BadBlock>> {
    let usage = blocks.usage_now()?;
    let bar = if quick {
        output::count_bar(usage.blocks, "blocks")
    } else {
        output::bytes_bar(usage.live_bytes, "blocks")
    };
    let mut bad = Vec::new();
    check::each_chunk(snapshot, &mut |chunk| {
        check_chunk(&chunk, blocks, quick, &bar, report, &mut bad);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(bad)
}

fn check_chunk(
    chunk: &Chunk,
    blocks: &Store,
    quick: bool,
    bar: &ProgressBar,
    report: &mut Report,
    bad: &mut Vec<BadBlock>,
) {
    let owner = Owner { body: chunk.body, chunk: chunk.chunk };
    for ((group, block), reach) in chunk.blocks() {
        let found = if quick { blocks.stat(group, block) } else { blocks.verify(group, block) };
        report.blocks += 1;
        let what = match found {
            Err(error) => Some(error.to_string()),
            Ok(info) => {
                report.bytes_read += if quick { 0 } else { u64::from(info.length) };
                bar.inc(if quick { 1 } else { u64::from(info.length) });
                let (length, other) = (info.length, info.owner);
                match () {
                    () if u64::from(length) < reach => {
                        Some(format!("block {block} has {length} bytes, {reach} are in use"))
                    }
                    () if other != owner => Some(format!("block {block} belongs to {other:?}")),
                    () => None,
                }
            }
        };
        bad.extend(what.map(|what| BadBlock { block, owner, what }));
    }
}

fn count_orphans(snapshot: &dyn Snapshot, blocks: &Store, report: &mut Report) -> Result<()> {
    let mut freed = HashSet::new();
    check::each_freed(snapshot, &mut |block| {
        freed.insert(block);
    })?;
    report.freed_blocks = freed.len() as u64;
    let mut sessions: HashMap<SessionId, bool> = HashMap::new();
    for group in blocks.groups() {
        let mut after = None;
        loop {
            let page = blocks.inventory_now(group, after, PAGE);
            let Some(last) = page.last() else { break };
            after = Some(last.block);
            for info in page.iter().filter(|info| !freed.contains(&info.block)) {
                if damage::is_named(snapshot, info.block, info.owner)? {
                    continue;
                }
                if knows(snapshot, &mut sessions, info.block.session)? {
                    report.orphan_blocks += 1;
                } else {
                    report.unknown_blocks += 1;
                }
            }
        }
    }
    Ok(())
}

fn knows(
    snapshot: &dyn Snapshot,
    sessions: &mut HashMap<SessionId, bool>,
    session: SessionId,
) -> Result<bool> {
    if let Some(known) = sessions.get(&session) {
        return Ok(*known);
    }
    let known = snapshot.get(&[keys::session(session)])?.pop().flatten().is_some();
    sessions.insert(session, known);
    Ok(known)
}

fn print(report: &Report) -> Result<()> {
    for damaged in &report.damaged {
        let ObjectDamage { object, start, end, what } = damaged;
        let object = output::name(object);
        output::line(format!("damaged: {object}: bytes {start} to {end}: {what}"))?;
    }
    for Finding { about, what } in &report.findings {
        let about = output::name(about);
        output::line(format!("metadata: {about}: {what}"))?;
    }
    let further = report.finding_count - report.findings.len() as u64;
    if further > 0 {
        output::line(format!("metadata: {further} further findings"))?;
    }
    if report.damaged_segments > 0 {
        let segments = report.damaged_segments;
        output::line(format!("blocks: parts of {segments} segments cannot be read"))?;
    }
    if report.unknown_blocks > 0 {
        let blocks = report.unknown_blocks;
        let text = "blocks of sessions that the metadata does not know: is it an older copy?";
        output::line(format!("blocks: {blocks} {text}"))?;
    }
    if report.damaged_garbage > 0 {
        let blocks = report.damaged_garbage;
        output::line(format!("blocks: {blocks} damaged blocks are garbage: no object holds them"))?;
    }
    let Report { rows, buckets, directories, files, blocks, .. } = report;
    let read = output::human_bytes(report.bytes_read);
    let garbage = report.orphan_blocks + report.freed_blocks;
    output::line(format!(
        "{rows} rows, {buckets} buckets, {directories} directories, {files} files, {blocks} \
         blocks ({read} read), {garbage} blocks of garbage"
    ))?;
    if report.damaged_metadata {
        output::line(format!("metadata: {DAMAGED_METADATA}"))?;
    }
    output::line(if report.sound { "sound" } else { "DAMAGED" })
}
