//! Drains and removals of nodes, with a forecast before they begin.

use cairn_base::map::Node;
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use cairn_fs::ops::cluster::{DrainNode, RemoveNode};
use http::StatusCode;
use maud::{Markup, html};

use super::screen::{PART, Screen};
use super::{admit, masters, say};
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::inner::For;
use crate::insight::nodes::Emptying;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column, tools};
use crate::words;

const NODES: [Column; 3] =
    [column("Node", "name"), column("Groups", "number"), tools("Changes", "")];

/// Makes the forms of all nodes except masters; `own` is the gateway of this console.
pub fn forms(map: &ClusterMap, own: Option<NodeId>) -> Markup {
    let rows = html! {
        @for (id, node) in map.nodes.iter().filter(|(_, node)| !node.is_master()) {
            tr {
                td class="name" {
                    (id) " " span class="of" { (node.pin.roles) " " (node.address) @if node.is_draining { ", drains" } }
                }
                td class="number" { (words::count(map.groups_of(*id) as u64)) }
                td { div class="tools" { (form(map, *id, node, own)) } }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="changes" {
            h2 id="changes" { "Drain or remove a node" }
            p class="hint" {
                "A drain moves the blocks of a chunkserver to other nodes, and it goes on serving meanwhile. A node that "
                "is in no group can be removed: it is refused from then on. What moves is shown before. "
                code { "cairn cluster" } ", with the directory of a master, removes masters, replaces a node by another "
                "one, and gives new nodes their share."
            }
            (sheet::scrolling("Drain or remove a node", &NODES, &rows))
        }
    }
}

fn form(map: &ClusterMap, id: NodeId, node: &Node, own: Option<NodeId>) -> Markup {
    let number = id.to_string();
    html! {
        @if node.pin.roles.contains(Role::Chunkserver) {
            form method="post" action="/store/drain" {
                (fields::hidden(&[("node", &number), ("drain", if node.is_draining { "no" } else { "yes" })]))
                @if node.is_draining { button type="submit" { "Cancel the drain of node " (id) } }
                @else { button type="submit" { "Drain node " (id) "…" } }
            }
        }
        // A node that drains is removed when it is empty.
        @if own == Some(id) {
            span class="of" { "the gateway of this console" }
        } @else if !node.is_draining || map.groups_of(id) == 0 {
            form method="post" action="/store/remove" {
                (fields::hidden(&[("node", &number)]))
                button type="submit" class="danger" { "Remove node " (id) "…" }
            }
        }
    }
}

fn node_of(text: &str) -> Result<NodeId> {
    text.parse()
        .map(NodeId)
        .map_err(|_| Error::Invalid("node: use a number, as the page has it".into()))
}

/// Forecasts a drain, if this process can ask the masters.
///
/// # Errors
/// If the node would never be empty, or no master answers.
async fn emptying(of: &For<'_>, node: NodeId) -> Result<Option<Emptying>> {
    match &of.inner.insight.nodes {
        Some(nodes) => nodes.emptying(node).await.map(Some),
        None => Ok(None),
    }
}

/// Shows the bytes that move, their targets, and the duration.
fn forecast(map: &ClusterMap, node: NodeId, emptying: Option<&Emptying>) -> Markup {
    let groups = words::counted(map.groups_of(node) as u64, "group");
    let Some(Emptying { bytes, targets, takes, rate, .. }) = emptying else {
        return html! { p { "Its blocks, of " (groups) ", are copied to other nodes." } };
    };
    html! {
        @if map.groups_of(node) == 0 {
            p { "It is in no group: nothing moves. From then on it gets no blocks." }
        } @else {
            p {
                "Its blocks, of " (groups) " and " (words::size(*bytes)) ", are copied to other nodes:"
            }
            ul class="names" {
                @for (target, bytes) in targets { li { "to node " (target) ": " (words::size(*bytes)) } }
            }
            p {
                @if takes.as_secs() < 60 { "It takes less than a minute" } @else { "It takes about " (say::span(*takes)) }
                ", if each of these nodes takes " (words::size(*rate)) " a second."
            }
        }
    }
}

fn asked(of: &For<'_>, title: &'static str, body: &Markup) -> Reply {
    let crumbs = [("Store".to_owned(), PART.to_owned()), cluster_crumb()];
    let page = Page { title, login: Some(of.login), part: PART, crumbs: &crumbs };
    reply::html(StatusCode::OK, page::page(&page, body))
}

fn cluster_crumb() -> (String, String) {
    ("Cluster".to_owned(), Screen::Cluster.place().to_owned())
}

fn drain_form(node: NodeId) -> Markup {
    fields::confirm(&Confirm {
        action: "/store/drain",
        fields: &[("node", &node.to_string()), ("drain", "yes")],
        text: "Drain it",
        class: "",
        back: Screen::Cluster.place(),
    })
}

/// Answers `POST /store/drain`.
pub async fn drain(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let form = of.asked.form()?;
    let node = node_of(form.get("node"))?;
    let is_draining = form.get("drain") == "yes";
    let what = if is_draining { "drain" } else { "undrain" };
    of.asked.witness.note(|facts| facts.resource = Some(format!("{what} node {node}")));
    if is_draining {
        // Checked again after the confirmation: another node may have died meanwhile.
        let emptying = emptying(of, node).await?;
        if !form.is_confirmed() {
            let map = masters::map(of.inner).await?.unwrap_or_default();
            let body = html! {
                h1 { "Drain node " (node) "?" }
                (forecast(&map, node, emptying.as_ref()))
                p { "It goes on serving meanwhile, and this can be cancelled." }
                (drain_form(node))
            };
            return Ok(asked(of, "Drain", &body));
        }
    }
    of.inner.fs().run(&of.login.caller, DrainNode { node, is_draining }).await?;
    Ok(reply::see_other(Screen::Cluster.place()))
}

/// Answers `POST /store/remove`.
pub async fn remove(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let form = of.asked.form()?;
    let node = node_of(form.get("node"))?;
    of.asked.witness.note(|facts| facts.resource = Some(format!("remove node {node}")));
    if of.inner.insight.nodes.as_ref().is_some_and(|nodes| nodes.own() == node) {
        let text = "is the gateway of this console: remove it by the console of another one";
        return Err(Error::Invalid(format!("node {node} {text}")).into());
    }
    if !form.is_confirmed() {
        let map = masters::map(of.inner).await?.unwrap_or_default();
        let missing = || Error::NotFound(format!("node {node}"));
        let known = map.nodes.get(&node).ok_or_else(missing)?;
        let body = html! {
            h1 { "Remove node " (node) "?" }
            (before_removal(of, &map, node, known).await?)
        };
        return Ok(asked(of, "Remove", &body));
    }
    of.inner.fs().run(&of.login.caller, RemoveNode { node }).await?;
    Ok(reply::see_other(Screen::Cluster.place()))
}

async fn before_removal(
    of: &For<'_>,
    map: &ClusterMap,
    node: NodeId,
    known: &Node,
) -> Result<Markup> {
    let groups = words::counted(map.groups_of(node) as u64, "group");
    if map.groups_of(node) > 0 && known.is_draining {
        return Ok(html! {
            p { "It drains, and " (groups) " are left. It can be removed when it is in none." }
            p { a class="button" href=(Screen::Cluster.place()) { "Back to the cluster" } }
        });
    }
    if map.groups_of(node) > 0 {
        let emptying = emptying(of, node).await?;
        return Ok(html! {
            p { "It is in " (groups) ". So it is drained first; when it is in no group any more, it can be removed." }
            (forecast(map, node, emptying.as_ref()))
            (drain_form(node))
        });
    }
    Ok(html! {
        p {
            "Node " (node) " (" (known.pin.roles) @if !known.address.is_empty() { ", " (known.address) }
            ") is in no group. It is refused from then on, and can only join again from a new directory."
        }
        @if known.is_up {
            p {
                "It runs still: stop it afterwards. If it is a disk of a machine of "
                code { "cairn node" }
                ", run " code { "cairn cluster remove" } " on that machine instead, which also "
                "takes the disk out of its file."
            }
        }
        (fields::confirm(&Confirm {
            action: "/store/remove",
            fields: &[("node", &node.to_string())],
            text: "Remove it",
            class: "danger",
            back: Screen::Cluster.place(),
        }))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cairn_base::map::{Group, Member};
    use cairn_base::{GroupId, KeyHash, Pin, Redundancy};

    use super::*;

    #[test]
    fn what_moves_is_said_with_where_to_and_how_long() {
        let mut map = ClusterMap::default();
        for id in [1, 2] {
            let pin = Pin { key: KeyHash([id; 32]), roles: Role::Chunkserver.into() };
            map.nodes.insert(NodeId(id.into()), Node::new(pin));
        }
        let members = vec![Member::new(NodeId(1), true)];
        let group = Group { redundancy: Redundancy::Copies(1), members, ..Group::default() };
        map.groups.insert(GroupId(1), group);
        let (bytes, takes) = (3 << 30, Duration::from_secs(600));
        let targets = [(NodeId(2), bytes)].into();
        let emptying = Emptying { groups: 1, bytes, targets, takes, rate: 5 << 20 };
        let text = forecast(&map, NodeId(1), Some(&emptying)).into_string();
        for said in ["of 1 group and 3.0 GiB", "to node 2: 3.0 GiB", "about 10 min", "5.0 MiB"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let text = forecast(&map, NodeId(2), Some(&Emptying::default())).into_string();
        assert!(text.contains("nothing moves"), "{text}");
    }
}
