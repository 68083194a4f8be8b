//! `cairn scrub`: reads and verifies every block, whether something names it or not.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use cairn_blocks::{ScrubReport, Store};
use cairn_meta::check::Bound;
use cairn_meta::check::damage::{self, BadBlock, ObjectDamage};
use cairn_meta::engine::Snapshot;
use serde::Serialize;

use super::store::Frozen;
use crate::failure::Result;
use crate::metadata::MetaArgs;
use crate::output;

/// Read and verify all blocks of a store that no server uses
///
/// A running server scrubs on its own, slowly, once a week. Exit code 1 if a block is damaged.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn scrub /srv/cairn
  cairn scrub --json /srv/cairn")]
pub struct ScrubArgs {
    /// The data directory
    dir: PathBuf,
    #[command(flatten)]
    meta: MetaArgs,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    sound: bool,
    blocks: u64,
    bytes: u64,
    sick_blocks: u64,
    damaged: Vec<ObjectDamage>,
}

pub fn run(args: &ScrubArgs) -> Result<ExitCode> {
    let store = Frozen::open(&args.dir, &args.meta)?;
    let bar = output::count_bar(store.blocks.usage_now()?.blocks, "blocks");
    let scrubbed = scrub(&store.blocks, &bar)?;
    bar.finish_and_clear();
    let bad = bad_blocks(&scrubbed);
    let damaged = damage::name(&*store.snapshot()?, &bad, Bound::none())?.damaged;
    let ScrubReport { blocks, bytes, .. } = scrubbed;
    let (sound, sick_blocks) = (bad.is_empty(), bad.len() as u64);
    if args.json {
        output::json(&Report { sound, blocks, bytes, sick_blocks, damaged })?;
    } else {
        for ObjectDamage { object, start, end, what } in damaged {
            output::line(format!("damaged: {object}: bytes {start} to {end}: {what}"))?;
        }
        let read = output::human_bytes(bytes);
        output::line(format!("{blocks} blocks, {read} read, {sick_blocks} damaged"))?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn scrub(blocks: &Store, bar: &indicatif::ProgressBar) -> Result<ScrubReport> {
    let report = blocks.scrub(|progress, _| {
        bar.set_position(progress.blocks);
        ControlFlow::Continue(())
    })?;
    Ok(report)
}

pub fn bad_blocks(report: &ScrubReport) -> Vec<BadBlock> {
    let bad = |sick: &cairn_blocks::SickBlock| BadBlock {
        block: sick.block,
        owner: sick.owner,
        what: sick.error.to_string(),
    };
    report.sick.iter().map(bad).collect()
}

/// Names the objects to which the findings of a scrub belong, for logs.
pub fn name(snapshot: &dyn Snapshot, report: &ScrubReport) -> Result<Vec<ObjectDamage>> {
    Ok(damage::name(snapshot, &bad_blocks(report), Bound::none())?.damaged)
}
