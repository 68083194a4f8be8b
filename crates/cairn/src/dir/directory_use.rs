//! Purposes for which commands use a directory: the one place that says which kinds of directories
//! each command goes on with. A command makes something new only in an empty directory, and refuses
//! all others before anything changes there.

use std::path::Path;

use cairn_base::Role;

use super::adoption::AdoptionStep;
use super::format::MetaPlace;
use super::kind::DirectoryKind as Kind;
use super::names::{ADOPTION_FILE, CLUSTER_FILE, MACHINE, directory_of_role};
use crate::failure::{Failure, Result};

/// Purpose of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryUse {
    /// `cairn server`: makes or serves a store.
    Server,
    /// `cairn node`: makes or starts a machine.
    Machine,
    /// `cairn cluster init`: makes the first master of a cluster with its metadata there.
    FirstMaster(MetaPlace),
    /// `cairn cluster join`: makes a node.
    Join,
    /// `cairn cluster adopt`: makes a server the first machine of a cluster.
    Adopt,
    /// `cairn master`, `chunkserver` or `gateway`: starts a node that has joined.
    Role(Role),
    /// `cairn meta load`: fills a store, or a master, that has lost its metadata.
    Load,
    /// `cairn restore`: makes a store from a backup, or fills a store that has lost its metadata.
    Restore,
    /// `cairn backup create`: makes a backup or adds to it.
    Backup,
}

impl DirectoryUse {
    /// Checks that `path` is missing, empty, or of a kind that this command goes on with. Changes
    /// nothing.
    ///
    /// # Errors
    /// It holds something else.
    pub fn require(self, path: &Path) -> Result<()> {
        let kinds = Kind::of(path)?;
        match kinds.first() {
            Some(kind) if !kinds.iter().any(|kind| self.goes_on_with(kind)) => {
                Err(self.refusal(path, kind))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a directory of this kind is what the command made before, or is for.
    fn goes_on_with(self, kind: &Kind) -> bool {
        let of_one_server = [MetaPlace::Directory, MetaPlace::Postgres];
        match (self, kind) {
            (DirectoryUse::Server | DirectoryUse::Load | DirectoryUse::Restore, Kind::Server)
            | (DirectoryUse::Machine, Kind::Machine | Kind::MachineParts)
            | (DirectoryUse::Join, Kind::Joining)
            | (DirectoryUse::Adopt, Kind::Server)
            | (DirectoryUse::Backup, Kind::Backup) => true,
            (
                DirectoryUse::Server | DirectoryUse::Load | DirectoryUse::Restore,
                Kind::Begun(place),
            ) => of_one_server.contains(place),
            (DirectoryUse::FirstMaster(wanted), Kind::Begun(place)) => wanted == *place,
            (DirectoryUse::Adopt, Kind::Adoption(step)) => {
                matches!(step, Some(AdoptionStep::Preparing | AdoptionStep::Moving))
            }
            (DirectoryUse::Load, Kind::Node(roles)) => roles.contains(Role::Master),
            // The text about what it lacks says how to join.
            (DirectoryUse::Role(_), Kind::Joining) => true,
            (DirectoryUse::Role(role), Kind::Node(roles)) => {
                roles.is_empty() || roles.contains(role)
            }
            _ => false,
        }
    }

    fn command(self) -> String {
        match self {
            DirectoryUse::Server => "cairn server".into(),
            DirectoryUse::Machine => "cairn node".into(),
            DirectoryUse::FirstMaster(_) => "cairn cluster init".into(),
            DirectoryUse::Join => "cairn cluster join".into(),
            DirectoryUse::Adopt => "cairn cluster adopt".into(),
            DirectoryUse::Role(role) => format!("cairn {role}"),
            DirectoryUse::Load => "cairn meta load".into(),
            DirectoryUse::Restore => "cairn restore".into(),
            DirectoryUse::Backup => "cairn backup create".into(),
        }
    }

    fn refusal(self, path: &Path, kind: &Kind) -> Failure {
        let (shown, command) = (path.display(), self.command());
        if let Kind::Foreign(name) = kind {
            let text = "and is not a Cairn data directory: choose an empty one";
            return Failure::new(format!("{shown}: holds {name} {text}"));
        }
        let (what, remedy) = (what(kind), remedy(path, kind));
        let text =
            format!("{shown}: holds {what}, which `{command}` does not use or change: {remedy}");
        Failure::new(match self.more(kind) {
            "" => text,
            more => format!("{text}. {more}"),
        })
    }

    /// Returns a hint for users that wanted something else with the directory.
    fn more(self, kind: &Kind) -> &'static str {
        match (self, kind) {
            (
                DirectoryUse::Machine
                | DirectoryUse::FirstMaster(_)
                | DirectoryUse::Join
                | DirectoryUse::Role(_),
                Kind::Server,
            ) => {
                "`cairn cluster adopt` makes a stopped server the first machine of a cluster, with \
                 all that it has (docs/from-one-to-three.md). For something new choose an empty \
                 directory"
            }
            (DirectoryUse::Restore | DirectoryUse::Load, Kind::Node(_) | Kind::Machine) => {
                "The metadata of a master are restored by `cairn restore TARGET --dump FILE` and \
                 `cairn meta load FILE DIR` (docs/cluster.md)"
            }
            (_, Kind::OverwrittenServer | Kind::Adoption(_))
            | (DirectoryUse::Role(_) | DirectoryUse::Load, _) => "",
            _ => "For something new choose an empty directory",
        }
    }
}

/// Names what is in a directory of this kind.
fn what(kind: &Kind) -> String {
    match kind {
        Kind::Server => "the store of a single server".into(),
        Kind::OverwrittenServer => {
            "the store of a single server whose metadata `cairn cluster init` of a former version \
             has replaced"
                .into()
        }
        Kind::Adoption(Some(AdoptionStep::Undoing)) => {
            "a machine that becomes a server again, which was interrupted".into()
        }
        Kind::Adoption(_) => {
            "a server that becomes the first machine of a cluster, which was interrupted".into()
        }
        Kind::Machine | Kind::MachineParts => "a machine of a cluster".into(),
        Kind::Node(roles) => match roles.iter().next() {
            Some(role) => format!("a {role} of a cluster"),
            None => "a node of a cluster".into(),
        },
        Kind::NodeWithoutFormat => {
            "a node of a cluster with metadata or blocks, but without its file `format`".into()
        }
        Kind::NodeWithoutIdentity => "a node of a cluster without its file `cluster.toml`".into(),
        Kind::Joining => "a node that has not joined its cluster yet".into(),
        Kind::Begun(MetaPlace::Members) => {
            "the first master of a cluster, of which `cairn cluster init` was interrupted".into()
        }
        Kind::Begun(_) => "the beginning of a store, whose first start was interrupted".into(),
        Kind::UnfinishedInit => "a master of which `cairn cluster init` was interrupted".into(),
        Kind::StoreWithoutFormat => {
            "metadata or blocks of a store, but not its file `format`".into()
        }
        Kind::Backup => "a backup".into(),
        Kind::Foreign(name) => name.clone(),
    }
}

/// Returns the command that goes on with a directory of this kind.
fn remedy(path: &Path, kind: &Kind) -> String {
    let shown = path.display();
    match kind {
        Kind::Server => format!("start it with `cairn server {shown}`"),
        Kind::OverwrittenServer => overwritten(path),
        Kind::Adoption(None) => {
            let file = path.join(ADOPTION_FILE);
            format!("its file {} cannot be read: use the cairn that wrote it", file.display())
        }
        Kind::Adoption(Some(AdoptionStep::Undoing)) => {
            format!("go on with `cairn cluster adopt {shown} --undo`")
        }
        Kind::Adoption(Some(_)) => format!(
            "go on with `cairn cluster adopt {shown}`, or back with `cairn cluster adopt {shown} \
             --undo`"
        ),
        Kind::Machine | Kind::MachineParts => format!("start it with `cairn node {shown}`"),
        Kind::Node(roles) => match (machine_of(path), roles.iter().next()) {
            (Some(machine), _) => {
                format!("it is part of a machine: start that with `cairn node {machine}`")
            }
            (None, Some(role)) => format!("start it with `cairn {role} {shown}`"),
            (None, None) => {
                let file = path.join(CLUSTER_FILE);
                format!("its file {} cannot be read: put it back", file.display())
            }
        },
        Kind::NodeWithoutFormat => {
            "put that file back, or let a new directory join in place of this node \
             (`cairn cluster token`)"
                .into()
        }
        Kind::NodeWithoutIdentity => {
            "put that file back. If `cairn cluster init` was interrupted here, remove the \
             directory: nothing has used it"
                .into()
        }
        Kind::Joining => format!("run `cairn cluster join {shown} TOKEN` again"),
        Kind::Begun(MetaPlace::Members) => {
            format!("run `cairn cluster init {shown} --address HOST:PORT` again")
        }
        Kind::Begun(_) => format!("go on with `cairn server {shown}`, or remove the directory"),
        Kind::UnfinishedInit => {
            "nothing has used it: remove the directory and run that again".into()
        }
        Kind::StoreWithoutFormat => {
            "put that file back from a copy, or restore a backup into another directory \
             (`cairn restore`)"
                .into()
        }
        Kind::Backup => format!("`cairn restore {shown} NEW_DIR` makes a store of it"),
        Kind::Foreign(_) => "choose an empty one".into(),
    }
}

/// Returns the remedy for the store of a server whose metadata were replaced.
pub fn overwritten(path: &Path) -> String {
    let shown = path.display();
    format!(
        "its blocks are still there, its names are not: move meta, member and all of cluster.toml, \
         node.* and ca.* away from {shown}, and bring the metadata back with `cairn meta load \
         DUMP {shown}` or `cairn restore BACKUP {shown}`"
    )
}

/// Returns the machine to which a node's directory belongs.
fn machine_of(path: &Path) -> Option<std::path::Display<'_>> {
    let machine = path.parent().filter(|parent| parent.join(MACHINE).exists())?;
    let name = path.file_name()?;
    Role::ALL.iter().any(|role| name == directory_of_role(*role)).then(|| machine.display())
}

#[cfg(test)]
mod tests {
    use cairn_base::Roles;

    use super::*;

    const USES: [DirectoryUse; 12] = [
        DirectoryUse::Server,
        DirectoryUse::Machine,
        DirectoryUse::FirstMaster(MetaPlace::Members),
        DirectoryUse::FirstMaster(MetaPlace::Directory),
        DirectoryUse::Join,
        DirectoryUse::Adopt,
        DirectoryUse::Role(Role::Master),
        DirectoryUse::Role(Role::Chunkserver),
        DirectoryUse::Role(Role::Gateway),
        DirectoryUse::Load,
        DirectoryUse::Restore,
        DirectoryUse::Backup,
    ];

    fn going_on_with(kind: &Kind) -> Vec<DirectoryUse> {
        USES.into_iter().filter(|purpose| purpose.goes_on_with(kind)).collect()
    }

    #[test]
    fn each_kind_has_its_commands_and_no_others() {
        let master = Kind::Node(Role::Master.into());
        for (kind, expected) in [
            (
                Kind::Server,
                &[
                    DirectoryUse::Server,
                    DirectoryUse::Adopt,
                    DirectoryUse::Load,
                    DirectoryUse::Restore,
                ][..],
            ),
            (Kind::OverwrittenServer, &[]),
            (Kind::Adoption(Some(AdoptionStep::Moving)), &[DirectoryUse::Adopt]),
            (Kind::Adoption(Some(AdoptionStep::Undoing)), &[]),
            (Kind::Machine, &[DirectoryUse::Machine]),
            (Kind::MachineParts, &[DirectoryUse::Machine]),
            (master, &[DirectoryUse::Role(Role::Master), DirectoryUse::Load]),
            (Kind::Node(Role::Gateway.into()), &[DirectoryUse::Role(Role::Gateway)]),
            (Kind::NodeWithoutFormat, &[]),
            (Kind::NodeWithoutIdentity, &[]),
            (Kind::Begun(MetaPlace::Members), &[DirectoryUse::FirstMaster(MetaPlace::Members)]),
            (
                Kind::Begun(MetaPlace::Directory),
                &[
                    DirectoryUse::Server,
                    DirectoryUse::FirstMaster(MetaPlace::Directory),
                    DirectoryUse::Load,
                    DirectoryUse::Restore,
                ],
            ),
            (Kind::UnfinishedInit, &[]),
            (Kind::StoreWithoutFormat, &[]),
            (Kind::Backup, &[DirectoryUse::Backup]),
            (Kind::Foreign("thesis.txt".into()), &[]),
        ] {
            assert_eq!(going_on_with(&kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_there_and_what_to_run() {
        let path = Path::new("/srv/one");
        let said = |purpose: DirectoryUse, kind: &Kind| purpose.refusal(path, kind).to_string();
        let text = said(DirectoryUse::Machine, &Kind::Server);
        for part in ["single server", "`cairn node`", "`cairn server /srv/one`", "cluster adopt"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for purpose in [DirectoryUse::Server, DirectoryUse::Machine] {
            let text = said(purpose, &Kind::Adoption(Some(AdoptionStep::Preparing)));
            assert!(text.contains("`cairn cluster adopt /srv/one --undo`"), "{text}");
            let text = said(purpose, &Kind::Adoption(Some(AdoptionStep::Undoing)));
            assert!(text.contains("go on with `cairn cluster adopt /srv/one --undo`"), "{text}");
        }
        let text = said(DirectoryUse::Server, &Kind::Node(Role::Chunkserver.into()));
        assert!(text.contains("`cairn chunkserver /srv/one`"), "{text}");
        let text = said(DirectoryUse::Restore, &Kind::Node(Role::Master.into()));
        assert!(text.contains("`cairn meta load FILE DIR`"), "{text}");
        let text = said(DirectoryUse::Server, &Kind::OverwrittenServer);
        assert!(text.contains("`cairn restore BACKUP /srv/one`"), "{text}");
        let text = said(DirectoryUse::Server, &Kind::Node(Roles::NONE));
        assert!(text.contains("/srv/one/cluster.toml cannot be read"), "{text}");
        let one_line = |kind: &Kind| USES.iter().all(|one| !said(*one, kind).contains('\n'));
        assert!(one_line(&Kind::Server) && one_line(&Kind::OverwrittenServer));
    }

    #[test]
    fn a_part_of_a_machine_is_started_with_it() {
        let place = tempfile::tempdir().unwrap();
        let part = place.path().join("disk");
        let text = || remedy(&part, &Kind::Node(Role::Chunkserver.into()));
        assert!(text().contains("`cairn chunkserver "), "{}", text());
        std::fs::write(place.path().join(MACHINE), "").unwrap();
        let expected = format!("`cairn node {}`", place.path().display());
        assert!(text().contains(&expected), "{}", text());
    }
}
