//! The cluster map: nodes, groups, repairs, who keeps the metadata, and the scrub that runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::map::{Group, Node};
use cairn_base::{ClusterMap, NodeId, Result, Role};
use maud::{Markup, html};

use super::screen::{self, Parts, Screen};
use super::{admit, cluster_scrub, health, masters, node_changes, say};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::insight::nodes::{MetadataKeepers, NodeReport};
use crate::limits;
use crate::page::document;
use crate::reply::Reply;
use crate::sheet::{self, Column, column};
use crate::words;

const NODES: [Column; 9] = [
    column("Node", "name"),
    column("State", ""),
    column("Roles", ""),
    column("Groups", "number"),
    column("Blocks", "number"),
    column("Taken", "number"),
    column("Free", "number"),
    column("Damaged, replaced", "number"),
    column("Copies", ""),
];
const GROUPS: [Column; 4] = [
    column("Group", "name"),
    column("Wanted", "number"),
    column("Members", "words"),
    column("State", ""),
];

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    Ok(screen::page(of, Screen::Cluster, &parts, &html! {}))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let Some(map) = masters::map(inner).await? else {
        let single = html! {
            p { "This store is one server on one machine, so there is no cluster map." }
            p class="hint" { (document("cluster.md")) " says how several machines make a store." }
        };
        return Ok(vec![("sum", single)]);
    };
    let (reports, keepers, scrubbed) = tokio::join!(
        masters::soon(inner, |nodes| nodes.reports()),
        masters::soon(inner, |nodes| nodes.keepers()),
        cluster_scrub::look(inner),
    );
    let own = inner.insight.nodes.as_ref().map(|nodes| nodes.own());
    Ok(vec![
        ("sum", sum(&map, &keepers)),
        ("scrub", scrub(&scrubbed)),
        ("nodes", nodes(&map, &reports)),
        ("changes", node_changes::forms(&map, own)),
        ("groups", groups(&map)),
    ])
}

/// Shows the scrub that runs or ended last, and a link to its findings.
fn scrub(scrubbed: &cluster_scrub::ScrubAnswers) -> Markup {
    html! {
        section class="group" aria-labelledby="scrub" {
            h2 id="scrub" { "Scrub" }
            (cluster_scrub::sum(scrubbed))
            div class="tools" {
                (cluster_scrub::order_form(cluster_scrub::runs(scrubbed)))
                a class="button" href=(Screen::Scrub.place()) { "Damaged and degraded objects" }
            }
        }
    }
}

fn present(map: &ClusterMap, group: &Group) -> usize {
    group.in_sync().filter(|node| map.is_up(*node)).count()
}

fn state_of(map: &ClusterMap, group: &Group) -> (&'static str, &'static str) {
    match present(map, group) {
        0 => ("tag bad", "cannot be read"),
        present if present < group.redundancy.members() => ("tag warn", "lacks replicas"),
        _ if group.members.iter().any(|member| member.is_leaving) => ("tag", "moves"),
        _ => ("tag good", "whole"),
    }
}

fn sum(map: &ClusterMap, keepers: &Result<MetadataKeepers>) -> Markup {
    let mut counts = BTreeMap::new();
    for group in map.groups.values() {
        *counts.entry(state_of(map, group).1).or_insert(0_u64) += 1;
    }
    let count = |state| counts.get(state).copied().unwrap_or_default();
    html! {
        dl class="facts" {
            div { dt { "Replicas" } dd { (map.replicas) ", at least " (map.minimum) " to take a write" } }
            div {
                dt { "Groups" }
                dd {
                    (words::count(count("whole"))) " whole, " (words::count(count("moves"))) " that move, "
                    (words::count(count("lacks replicas"))) " that lack replicas, "
                    (words::count(count("cannot be read"))) " that cannot be read"
                }
            }
            div { dt { "Metadata" } dd { (kept(map, keepers)) } }
            div { dt { "Epoch of the map" } dd { (words::count(map.epoch)) } }
        }
    }
}

/// Shows the keepers of the metadata, and whether they are fewer than the replicas of a block.
fn kept(map: &ClusterMap, keepers: &Result<MetadataKeepers>) -> Markup {
    html! {
        @match keepers {
            Ok(MetadataKeepers::Voters(copies)) => {
                (words::counted(*copies as u64, "master")) " with all names and small objects"
                @if health::are_few(map, *copies) {
                    " " span class="tag warn" { "few copies" } ": blocks have " (map.most_replicas())
                }
            }
            Ok(MetadataKeepers::Database) => "in a database",
            Ok(MetadataKeepers::OneMaster) => {
                "one master: unless it uses a database, all names and small objects are on its disk alone"
            }
            Err(error) => { "not known: " (error) }
        }
    }
}

fn state_of_node(node: &Node, report: Option<&NodeReport>) -> (&'static str, &'static str) {
    match (node.is_up, node.is_draining) {
        (false, _) => ("tag bad", "down"),
        _ if report.is_some_and(|report| report.disk_fails) => ("tag bad", "disk fails"),
        (true, true) => ("tag warn", "drains"),
        (true, false) => ("tag good", "up"),
    }
}

fn nodes(map: &ClusterMap, reports: &Result<BTreeMap<NodeId, NodeReport>>) -> Markup {
    let report = |id: &NodeId| reports.as_ref().ok().and_then(|reports| reports.get(id));
    let in_groups = |id: NodeId| map.groups.values().filter(|group| group.has(id)).count() as u64;
    let rows = html! {
        @for (id, node) in &map.nodes {
            @let report = report(id).filter(|_| node.pin.roles.contains(Role::Chunkserver));
            @let (class, state) = state_of_node(node, report);
            tr {
                td class="name" { (id) " " span class="of" { (node.address) " " (node.zone) } }
                td { span class=(class) { (state) } }
                td { (node.pin.roles) }
                td class="number" { (words::count(in_groups(*id))) }
                td class="number" { @if let Some(report) = report { (words::count(report.blocks)) } }
                td class="number" { @if let Some(report) = report { (words::size(report.live_bytes)) } }
                td class="number" { @if let Some(report) = report { (words::size(report.free_bytes)) } }
                td class="number" {
                    @if let Some(report) = report {
                        (words::count(report.corrupt)) ", " (words::count(report.healed))
                    }
                }
                td { @if let Some(report) = report { (copies(report)) } }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="nodes" {
            h2 id="nodes" { "Nodes" }
            (sheet::scrolling("Nodes", &NODES, &rows))
            @if let Err(error) = reports {
                p class="hint" { "What nodes report of their disks is not known: " (error) "." }
            } @else {
                p class="hint" { "A node has one disk for blocks: its columns are those of the disk." }
            }
        }
    }
}

fn copies(report: &NodeReport) -> Markup {
    let blocks = report.copying.iter().map(|(_, blocks, _)| blocks).sum();
    let bytes = report.copying.iter().map(|(.., bytes)| bytes).sum();
    let groups = report.copying.len() as u64;
    html! {
        @if groups > 0 {
            (words::counted(groups, "group")) ", " (words::counted(blocks, "block")) ", " (words::size(bytes))
            " so far"
        } @else if report.silent > Duration::from_secs(3) {
            "silent for " (say::span(report.silent))
        }
    }
}

fn groups(map: &ClusterMap) -> Markup {
    // Groups in trouble come first.
    let mut all: Vec<_> = map.groups.iter().collect();
    let is_whole = |group| state_of(map, group).1 == "whole";
    all.sort_by_key(|(id, group)| (present(map, group) > 0, is_whole(*group), **id));
    let rows = html! {
        @for (id, group) in all.iter().take(limits::SHOWN) {
            @let (class, state) = state_of(map, group);
            tr {
                td class="name" { (id) }
                td class="number" { (group.redundancy.number()) }
                td class="words" {
                    @for (at, member) in group.members.iter().enumerate() {
                        @if at > 0 { ", " }
                        (member.node)
                        @if !map.is_up(member.node) { " (down)" }
                        @else if !member.in_sync { " (catches up)" }
                        @else if member.is_leaving { " (leaves)" }
                    }
                }
                td { span class=(class) { (state) } }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="groups" {
            h2 id="groups" { "Groups" }
            (sheet::scrolling("Groups of blocks", &GROUPS, &rows))
            @if all.len() > limits::SHOWN {
                p class="hint" { (words::count(limits::SHOWN as u64)) " of " (words::count(all.len() as u64)) ", those that are not whole first." }
            }
        }
    }
}
