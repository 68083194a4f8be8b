//! `cairn bench diff`: compares two results of the same loads.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::progress;
use crate::report::Table;
use crate::report::markdown::{number, render, time};
use crate::report::{Cell, Report, Round};
use crate::stats::Spread;

/// Share below which a difference counts as none.
const NOTHING: f64 = 0.02;
/// Assumed difference between rounds if there was only one, as a share.
const UNKNOWN: f64 = 0.10;

/// Say what has changed between two saved results, and what is within noise
///
/// A number is within noise if the ranges of its rounds in both results overlap, or it differs by
/// less than 2 %. Of a single round, 10 % are taken for noise.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench http http://127.0.0.1:8080/x --json before.json
  cairn bench diff before.json after.json --strict")]
pub struct DiffArgs {
    /// The earlier result, as --json saved it
    old: PathBuf,
    /// The later result
    new: PathBuf,
    /// End with exit code 1 if anything is worse
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    Noise,
    Better,
    Worse,
}

pub fn run(args: &DiffArgs) -> Result<()> {
    let (old, new) = (Report::load(&args.old)?, Report::load(&args.new)?);
    if old.kind != new.kind {
        let text = format!("a result of bench {} and one of bench {}", old.kind, new.kind);
        return Err(Error::usage(format!(
            "{text} cannot be compared: give two results of the same command"
        )));
    }
    let mut rows = Vec::new();
    let mut worse = 0;
    for cell in &new.cells {
        let Some(before) = old.cell(&cell.key) else { continue };
        for (name, numbers, is_time) in NUMBERS {
            let (Some(old), Some(new)) = (range(before, numbers), range(cell, numbers)) else {
                continue;
            };
            let verdict = judge(&old, &new, is_time);
            worse += usize::from(verdict == Verdict::Worse);
            rows.push(row(cell, name, &old, &new, verdict, is_time));
        }
    }
    if rows.is_empty() {
        return Err(Error::failed("the results have no load in common: repeat the same command"));
    }
    let table = Table::new(&["load", "number", "old", "new", "change", "verdict"], rows);
    progress::line(render(&table).trim_end());
    let left = [("old", &old, &new), ("new", &new, &old)].map(|(name, one, other)| {
        let alone = one.cells.iter().filter(|cell| other.cell(&cell.key).is_none()).count();
        (alone > 0).then(|| format!("{alone} only in the {name} one"))
    });
    let left: Vec<String> = left.into_iter().flatten().collect();
    if !left.is_empty() {
        progress::line(&format!("\nLoads: {}", left.join(", ")));
    }
    if old.machine.cpu != new.machine.cpu || old.machine.cores != new.machine.cores {
        progress::line("\nThe machines are different ones.");
    }
    match worse {
        1.. if args.strict => Err(Error::failed(format!("{worse} numbers are worse"))),
        _ => Ok(()),
    }
}

type Number = fn(&Round) -> f64;
const NUMBERS: [(&str, Number, bool); 3] = [
    ("a second", |round| round.rate, false),
    ("p50", |round| round.p50_us, true),
    ("p99", |round| round.p99_us, true),
];

/// Returns the median and range of a number; none if it was not measured.
fn range(cell: &Cell, number: Number) -> Option<Spread> {
    let mut range = Spread::of(cell.rounds.iter().map(number))?;
    if range.max <= 0.0 {
        return None;
    }
    if cell.rounds.len() == 1 {
        range.min *= 1.0 - UNKNOWN;
        range.max *= 1.0 + UNKNOWN;
    }
    Some(range)
}

fn judge(old: &Spread, new: &Spread, is_time: bool) -> Verdict {
    let overlaps = old.min <= new.max && new.min <= old.max;
    if overlaps || (new.median / old.median - 1.0).abs() < NOTHING {
        return Verdict::Noise;
    }
    if (new.median > old.median) == is_time { Verdict::Worse } else { Verdict::Better }
}

fn row(
    cell: &Cell,
    name: &str,
    old: &Spread,
    new: &Spread,
    verdict: Verdict,
    is_time: bool,
) -> Vec<String> {
    let (key, axis) = (&cell.key, &cell.key.axis);
    let show = |value| if is_time { time(value) } else { number(value) };
    let verdict = match verdict {
        Verdict::Noise => "within noise",
        Verdict::Better => "better",
        Verdict::Worse => "**worse**",
    };
    vec![
        format!("{}: {}, {} {}", key.target, key.what, axis.name, number(axis.value)),
        name.to_owned(),
        show(old.median),
        show(new.median),
        format!("{:+.1} %", (new.median / old.median - 1.0) * 100.0),
        verdict.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min: f64, median: f64, max: f64) -> Spread {
        Spread { median, min, max }
    }

    #[test]
    fn only_what_lies_apart_is_a_change() {
        let old = spread(90.0, 100.0, 110.0);
        for (new, of_rate, of_time) in [
            (spread(105.0, 120.0, 130.0), Verdict::Noise, Verdict::Noise),
            (spread(111.0, 120.0, 130.0), Verdict::Better, Verdict::Worse),
            (spread(70.0, 80.0, 89.0), Verdict::Worse, Verdict::Better),
        ] {
            assert_eq!((judge(&old, &new, false), judge(&old, &new, true)), (of_rate, of_time));
        }
        let exact = spread(100.0, 100.0, 100.0);
        assert_eq!(judge(&exact, &spread(101.0, 101.0, 101.0), false), Verdict::Noise);
        assert_eq!(judge(&exact, &spread(97.0, 97.0, 97.0), false), Verdict::Worse);
    }
}
