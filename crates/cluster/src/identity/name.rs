//! The names in certificates: `<node>.<cluster>.cairn`, in hexadecimal digits, and for masters also
//! `master.<cluster>.cairn`, so that a joining node can tell a master from any other node.

use cairn_base::{ClusterId, NodeId};

pub fn of_node(cluster: ClusterId, node: NodeId) -> String {
    format!("{:016x}.{:032x}.cairn", node.0, cluster.0)
}

pub fn of_masters(cluster: ClusterId) -> String {
    format!("master.{:032x}.cairn", cluster.0)
}

/// Parses the node and cluster of a node's name. Accepts only the exact form that [`of_node`]
/// gives.
pub fn parse(name: &str) -> Option<(ClusterId, NodeId)> {
    let (node, cluster) = name.strip_suffix(".cairn")?.split_once('.')?;
    let node = NodeId(u64::from_str_radix(node, 16).ok()?);
    let cluster = ClusterId(u128::from_str_radix(cluster, 16).ok()?);
    (of_node(cluster, node) == name).then_some((cluster, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_name_is_one() {
        let (cluster, node) = (ClusterId(0xabc), NodeId(0x1f));
        let name = of_node(cluster, node);
        assert_eq!(parse(&name), Some((cluster, node)));
        for bad in [
            of_masters(cluster),
            name.to_uppercase(),
            name.replacen('0', "", 1),
            format!("+{}", name.split_at(1).1),
            format!("x.{name}"),
            format!("{name}."),
            name.replace("cairn", "cairns"),
            String::new(),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }
}
