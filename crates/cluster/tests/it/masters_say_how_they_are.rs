//! Each master is asked for its own member, and those that say nothing hold up little.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{Error, NodeId, Result, Role};
use cairn_cluster::control::messages::ControlMethod;
use cairn_cluster::limits::{MEMBER_REPORT, MEMBER_REPORT_AWAY};
use cairn_cluster::members::{MasterAnswer, MemberReport, ask_all, patience};
use cairn_cluster::wire::{Dial, Link, Peer, accept};
use cairn_meta::wire;
use tokio::time::Instant;

use crate::support::pair::link;
use crate::support::{GATEWAY, ends, terms};

/// The master at the address "1" is member 1. At "down" nobody answers, and at "gone" nobody
/// listens.
struct Masters;

#[async_trait]
impl Dial for Masters {
    async fn dial(&self, address: &str) -> Result<Link> {
        let member = match address {
            "down" => std::future::pending().await,
            "gone" => return Err(Error::Unavailable("refused".into())),
            number => number.parse().unwrap(),
        };
        let ends = ends();
        tokio::spawn(async move {
            let service = move |_: &Peer, method: u16, _: Bytes| {
                let report = MemberReport { member, ..MemberReport::default() };
                let is = |asked| method == asked as u16;
                let reply = match () {
                    () if is(ControlMethod::MemberStalls) => wire::encode(&report.stalls),
                    () if is(ControlMethod::MemberDamage) => wire::encode(&report.damage),
                    () => wire::encode(&report),
                };
                std::future::ready(reply)
            };
            let from = link(ends.far, GATEWAY, Role::Gateway);
            let peer = accept(from, &terms(NodeId(member), Role::Master), service).await.unwrap();
            peer.closed().await;
        });
        Ok(link(ends.near, NodeId(member), Role::Master))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

/// Asks these; the answers, with 0 for none, and how long that took.
async fn ask(addresses: &[(&str, Duration)]) -> (Vec<u64>, Duration) {
    let addresses: Vec<_> =
        addresses.iter().map(|(address, patience)| ((*address).to_owned(), *patience)).collect();
    let begun = Instant::now();
    let terms = terms(GATEWAY, Role::Gateway);
    let asked = ask_all(Arc::new(Masters), terms, &addresses).await;
    let member = |one: MasterAnswer| one.answer.map_or(0, |report| report.member);
    (asked.into_iter().map(member).collect(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_master_that_is_down_is_waited_for_only_as_long_as_it_may_be_up() {
    let (up, away) = (patience(true), patience(false));
    assert_eq!((up, away), (MEMBER_REPORT, MEMBER_REPORT_AWAY));
    let (said, took) = ask(&[("down", up), ("2", up), ("gone", up)]).await;
    assert_eq!(said, [0, 2, 0]);
    assert!((up..up + away).contains(&took), "{took:?}");
    let (said, took) = ask(&[("down", away), ("3", away), ("2", up)]).await;
    assert_eq!(said, [0, 3, 2]);
    assert!((away..up).contains(&took), "{took:?}");
}
