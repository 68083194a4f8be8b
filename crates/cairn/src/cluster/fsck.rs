//! `cairn cluster fsck`: has the master that serves compare its rows with each other, and the
//! blocks that they name with those that chunkservers have.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_base::fsck::{FsckFound, FsckPhase, FsckState};
use cairn_base::rng::RealRng;
use cairn_base::scrub::RunOrder;
use cairn_base::{Timestamp, rfc3339};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{objects, reach};
use crate::failure::{Failure, Result};
use crate::output;

/// Pause between two questions about its state.
const POLL: Duration = Duration::from_millis(500);

/// Check the metadata of a cluster that serves, and whether its nodes have all blocks
///
/// Begins an fsck on the master that serves; while one runs, no other begins. It compares the rows
/// of the metadata with each other, and the blocks that they name with what chunkservers have.
/// Then it names objects of which no replica can be read (lost), and those that have fewer than
/// they should (degraded). It reads no blocks: `cairn cluster scrub` does that. The fsck goes on if
/// this command is ended, and ends when another master serves. Exit code 1 if anything does not
/// fit, an object is lost or degraded, or the fsck did not come to its end.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster fsck /srv/cairn-master --wait
  cairn cluster fsck /srv/cairn-master --wait --json | jq .objects
  cairn cluster fsck /srv/cairn-master
  cairn cluster fsck /srv/cairn-master --look
  cairn cluster fsck /srv/cairn-master --stop")]
pub struct ClusterFsckArgs {
    /// The directory of a master or a gateway
    dir: PathBuf,
    /// Wait until it has ended, with its progress, and show what it found
    #[arg(long, conflicts_with_all = ["look", "stop"])]
    wait: bool,
    /// Begin none: show how the one stands that runs, or what the last one found
    #[arg(long, conflicts_with = "stop")]
    look: bool,
    /// Stop the one that runs
    #[arg(long)]
    stop: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Seconds after which --wait ends where no master answers
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

pub fn run(args: &ClusterFsckArgs) -> Result<ExitCode> {
    let order = match (args.look, args.stop) {
        (true, _) => RunOrder::Look,
        (_, true) => RunOrder::Stop,
        _ => RunOrder::Begin,
    };
    let state = reach::fsck(&args.dir, order.number(&RealRng), order)?;
    let state = if args.wait { wait(args, state)? } else { state };
    let found = match state.phase {
        FsckPhase::Ended => reach::fsck_found(&args.dir, state.run)?,
        _ => None,
    };
    show(args, &state, found.as_ref())
}

/// Waits until the fsck no longer runs.
fn wait(args: &ClusterFsckArgs, mut state: FsckState) -> Result<FsckState> {
    let patience = Duration::from_secs(args.patience);
    let (bar, mut heard) = (output::count_bar(1, "rows"), Instant::now());
    while state.phase.is_under_way() {
        show_progress(&bar, &state);
        sleep(POLL);
        match reach::fsck(&args.dir, state.run, RunOrder::Look) {
            Ok(now) => (state, heard) = (now, Instant::now()),
            Err(failure) if failure.is_passing() && heard.elapsed() < patience => {}
            Err(failure) => return Err(lost(args, failure)),
        }
    }
    bar.finish_and_clear();
    Ok(state)
}

/// Makes the failure for a master that no longer answers.
fn lost(args: &ClusterFsckArgs, failure: Failure) -> Failure {
    let dir = args.dir.display();
    failure.and(&format!(
        "the fsck goes on if its master does, and cairn cluster fsck {dir} --look shows it"
    ))
}

fn show_progress(bar: &ProgressBar, state: &FsckState) {
    bar.set_length(state.total_rows.max(state.rows).max(1));
    bar.set_position(state.rows);
    bar.set_message(match state.phase {
        FsckPhase::Blocks => format!("rows; {}", compared(state)),
        FsckPhase::Names => "naming objects".to_owned(),
        _ => "rows".to_owned(),
    });
}

fn compared(state: &FsckState) -> String {
    let FsckState { blocks, groups, total_groups, .. } = state;
    format!("{blocks} blocks compared, {groups} of {total_groups} groups")
}

/// Returns the state of an fsck as a sentence.
pub fn standing(state: &FsckState) -> String {
    let FsckState { rows, total_rows, failure, .. } = state;
    let stands = match state.phase {
        FsckPhase::Unknown | FsckPhase::Replaced if state.begun == Timestamp::default() => {
            return format!("fsck: {failure}");
        }
        FsckPhase::Rows => format!("{rows} of about {total_rows} rows"),
        FsckPhase::Blocks => format!("{rows} of about {total_rows} rows, {}", compared(state)),
        FsckPhase::Names => "objects are being named".to_owned(),
        FsckPhase::Failed => format!("failed: {failure}"),
        FsckPhase::Replaced => "ended because another master serves now".to_owned(),
        phase @ (FsckPhase::Unknown | FsckPhase::Ended | FsckPhase::Stopped) => {
            phase.word().to_owned()
        }
    };
    let user = match state.by.user.as_str() {
        "" => String::new(),
        user => format!(" for {}", output::name(user)),
    };
    let ended = if state.ended == Timestamp::default() {
        String::new()
    } else {
        format!(", over at {}", rfc3339(state.ended))
    };
    let (node, begun) = (state.by.node, rfc3339(state.begun));
    format!("fsck ordered by node {node}{user} at {begun}{ended}: {stands}")
}

fn show(args: &ClusterFsckArgs, state: &FsckState, found: Option<&FsckFound>) -> Result<ExitCode> {
    if args.json {
        output::json(&to_json(state, found))?
    } else {
        print(args, state, found)?
    }
    Ok(if is_success(state, found) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns true if no damage is known, also while the fsck goes on.
fn is_success(state: &FsckState, found: Option<&FsckFound>) -> bool {
    state.phase.is_under_way() || state.is_clean() && found.is_some()
}

/// Returns the state of an fsck for programs.
pub fn state_json(state: &FsckState) -> Value {
    let FsckState { phase, by, .. } = state;
    let time = |time: Timestamp| (time != Timestamp::default()).then(|| rfc3339(time));
    json!({
        "state": phase.word(),
        "runs": phase.is_under_way(),
        "node": by.node.to_string(),
        "user": by.user,
        "begun": time(state.begun),
        "ended": time(state.ended),
        "rows": state.rows,
        "total_rows": state.total_rows,
        "blocks": state.blocks,
        "groups": state.groups,
        "total_groups": state.total_groups,
        "failure": state.failure,
    })
}

fn to_json(state: &FsckState, found: Option<&FsckFound>) -> Value {
    let mut shown = state_json(state);
    let Some(FsckFound { findings, degraded }) = found else { return shown };
    let findings = findings.iter().map(|(about, what)| json!({"about": about, "what": what}));
    shown["clean"] = is_success(state, found).into();
    shown["buckets"] = state.buckets.into();
    shown["directories"] = state.directories.into();
    shown["files"] = state.files.into();
    shown["findings"] = findings.collect();
    shown["finding_count"] = state.findings.into();
    objects::add_json(&mut shown, degraded);
    shown["unknown_blocks"] = state.unknown_blocks.into();
    shown
}

fn print(args: &ClusterFsckArgs, state: &FsckState, found: Option<&FsckFound>) -> Result<()> {
    output::line(standing(state))?;
    let Some(FsckFound { findings, degraded }) = found else {
        if state.phase.is_under_way() && !args.look {
            let (dir, what) =
                (args.dir.display(), if args.stop { "is stopped" } else { "goes on" });
            output::line(format!(
                "it {what}: cairn cluster fsck {dir} --look shows how it stands"
            ))?;
        }
        return Ok(());
    };
    for (about, what) in findings {
        let (about, what) = (output::name(about), output::name(what));
        output::line(format!("metadata: {about}: {what}"))?;
    }
    let further = state.findings.saturating_sub(findings.len() as u64);
    if further > 0 {
        output::line(format!("metadata: and {further} more findings"))?;
    }
    objects::print(degraded)?;
    for (node, why) in &degraded.silent {
        output::line(format!("node {node} did not say which blocks it has: {why}"))?;
    }
    let FsckState { buckets, directories, files, blocks, unknown_blocks, .. } = state;
    output::line(format!(
        "{buckets} buckets, {directories} directories, {files} files, {blocks} blocks"
    ))?;
    let (count, [lost, worse, _]) = (state.findings, degraded.blocks);
    output::line(format!(
        "metadata: {count} findings; blocks: {lost} lost, {worse} degraded, {unknown_blocks} not \
         compared"
    ))?;
    objects::print_remedy(degraded)?;
    output::line(if is_success(state, found) { "sound" } else { "NOT SOUND" })
}

#[cfg(test)]
mod tests {
    use cairn_base::NodeId;
    use cairn_base::fsck::Orderer;

    use super::*;

    fn state(phase: FsckPhase) -> FsckState {
        let by = Orderer { node: NodeId(10), user: String::new() };
        let begun = Timestamp(1_000_000_000);
        FsckState { run: 1, phase, by, begun, rows: 5, total_rows: 9, ..FsckState::default() }
    }

    #[test]
    fn it_is_a_success_while_it_runs_and_if_it_found_nothing() {
        let found = FsckFound::default();
        for phase in FsckPhase::ALL {
            let success = is_success(&state(phase), Some(&found));
            let runs = matches!(phase, FsckPhase::Rows | FsckPhase::Blocks | FsckPhase::Names);
            assert_eq!(success, runs || phase == FsckPhase::Ended, "{phase:?}");
        }
        let lost = FsckState { lost_blocks: 1, ..state(FsckPhase::Ended) };
        assert!(!is_success(&lost, Some(&found)) && !is_success(&state(FsckPhase::Ended), None));
    }

    #[test]
    fn it_is_said_who_ordered_it_and_how_it_stands() {
        let running = standing(&state(FsckPhase::Rows));
        assert_eq!(
            running,
            "fsck ordered by node 10 at 1970-01-01T00:00:01.000Z: 5 of about 9 rows"
        );
        let by = Orderer { node: NodeId(3), user: "alice".into() };
        let text = standing(&FsckState { by, ..state(FsckPhase::Blocks) });
        assert!(text.contains("by node 3 for alice") && text.contains("0 of 0 groups"), "{text}");
        let replaced = standing(&state(FsckPhase::Replaced));
        assert!(replaced.ends_with("ended because another master serves now"), "{replaced}");
        let failure = "it ended because another master serves now".to_owned();
        let unknown = FsckState { phase: FsckPhase::Replaced, failure, ..FsckState::default() };
        assert_eq!(standing(&unknown), "fsck: it ended because another master serves now");
    }
}
