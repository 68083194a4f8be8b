//! The cluster map: nodes, groups, repairs, and drains.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::map::{Group, Node};
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use cairn_fs::ops::cluster::{DrainNode, GetMap};
use http::StatusCode;
use maud::{Markup, html};
use tokio::time::timeout;

use super::screen::{self, PART, Parts, Screen};
use super::{admit, say};
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::inner::{For, Inner};
use crate::insight::nodes::NodeReport;
use crate::limits;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::words;

/// How long a page waits for the master.
const PATIENCE: Duration = Duration::from_secs(2);

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

async fn map(inner: &Inner) -> Result<Option<ClusterMap>> {
    let row = inner.fs().read(&Caller::system(), GetMap).await?;
    row.as_ref().map(ClusterMap::decode).transpose()
}

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    let map = map(&inner).await?;
    let below = map.as_ref().map_or_else(|| html! {}, drains);
    Ok(screen::page(of, Screen::Cluster, &parts, &below))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let Some(map) = map(inner).await? else {
        let single = html! {
            p { "This store is one server on one machine, so there is no cluster map." }
            p class="hint" { "docs/cluster.md says how several machines make a store." }
        };
        return Ok(vec![("sum", single)]);
    };
    let reports = match &inner.insight.nodes {
        Some(nodes) => {
            let late = |_| Error::Unavailable(format!("no master answers within {PATIENCE:?}"));
            timeout(PATIENCE, nodes.reports()).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
        }
        None => Err(Error::Unavailable("this process cannot ask the master".into())),
    };
    Ok(vec![("sum", sum(&map)), ("nodes", nodes(&map, &reports)), ("groups", groups(&map))])
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

fn sum(map: &ClusterMap) -> Markup {
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
            div { dt { "Epoch of the map" } dd { (words::count(map.epoch)) } }
        }
    }
}

fn state_of_node(node: &Node) -> (&'static str, &'static str) {
    match (node.is_up, node.is_draining) {
        (false, _) => ("tag bad", "down"),
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
            @let (class, state) = state_of_node(node);
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
    // Those in trouble first.
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

fn drains(map: &ClusterMap) -> Markup {
    let all = map.nodes.iter().filter(|(_, node)| node.pin.roles.contains(Role::Chunkserver));
    html! {
        section class="group" aria-labelledby="drains" {
            h2 id="drains" { "Drain a chunkserver" }
            p class="hint" {
                "Its blocks are moved to other nodes, and it goes on serving meanwhile. When it is in no group "
                "any more, " code { "cairn cluster remove" } " removes it, with the directory of a master. "
                code { "cairn cluster rebalance" } " gives new nodes their share."
            }
            div class="tools" {
                @for (id, node) in all {
                    form method="post" action="/store/drain" {
                        (fields::hidden(&[
                            ("node", &id.to_string()),
                            ("drain", if node.is_draining { "no" } else { "yes" }),
                        ]))
                        @if node.is_draining { button type="submit" { "Cancel the drain of node " (id) } }
                        @else { button type="submit" { "Drain node " (id) "…" } }
                    }
                }
            }
        }
    }
}

/// `POST /store/drain`
pub async fn drain(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let form = of.asked.form()?;
    let node = u64::from_str_radix(form.get("node"), 16).map(NodeId);
    let node = node.map_err(|_| Error::Invalid("node: use a number, as the page has it".into()))?;
    let is_draining = form.get("drain") == "yes";
    let what = if is_draining { "drain" } else { "undrain" };
    of.asked.witness.note(|facts| facts.resource = Some(format!("{what} node {node}")));
    if is_draining && !form.is_confirmed() {
        let map = map(of.inner).await?.unwrap_or_default();
        let groups = map.groups.values().filter(|group| group.has(node)).count() as u64;
        let others = map.places().filter(|(other, _)| *other != node).count() as u64;
        let body = html! {
            h1 { "Drain node " (node) "?" }
            p {
                "Its blocks, of " (words::counted(groups, "group")) ", are copied to "
                (words::counted(others, "other node")) ". This can be cancelled."
            }
            (fields::confirm(&Confirm {
                action: "/store/drain",
                fields: &[("node", &node.to_string()), ("drain", "yes")],
                text: "Drain it",
                class: "",
                back: Screen::Cluster.place(),
            }))
        };
        let page = Page { title: "Drain", login: Some(of.login), part: PART, ..Page::default() };
        return Ok(reply::html(StatusCode::OK, page::page(&page, &body)));
    }
    of.inner.fs().run(&of.login.caller, DrainNode { node, is_draining }).await?;
    Ok(reply::see_other(Screen::Cluster.place()))
}
