//! Names of users, for records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_audit::Names;
use cairn_auth::Caller;
use cairn_base::UserId;
use cairn_fs::Fs;
use cairn_fs::ops::credentials::UserName;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Names that are remembered, at most. A user keeps its name.
const REMEMBERED: usize = 10_000;
/// Users whose names are to be looked up, one after another, at most.
const WANTED: usize = 1000;

#[derive(Default)]
struct NameCache {
    names: HashMap<UserId, Arc<str>>,
    wanted: HashSet<UserId>,
    /// Set while a task looks them up.
    is_looking: bool,
}

impl NameCache {
    fn add(&mut self, user: UserId, name: Arc<str>) {
        if self.names.len() >= REMEMBERED {
            self.names.clear();
        }
        self.names.insert(user, name);
    }

    /// Requests a name. Returns true if the caller is to start looking names up.
    fn want(&mut self, user: UserId) -> bool {
        if self.wanted.len() < WANTED {
            self.wanted.insert(user);
        }
        !std::mem::replace(&mut self.is_looking, true)
    }

    /// Returns the user whose name is looked up next. The user stays wanted until
    /// [`NameCache::found`].
    fn next(&mut self) -> Option<UserId> {
        let user = self.wanted.iter().next().copied();
        self.is_looking = user.is_some();
        user
    }

    fn found(&mut self, user: UserId, name: Option<Arc<str>>) {
        self.wanted.remove(&user);
        if let Some(name) = name {
            self.add(user, name);
        }
    }
}

/// Looks up names until no more are wanted.
async fn look(fs: Fs, remembered: Arc<Mutex<NameCache>>) {
    loop {
        let Some(user) = remembered.lock().next() else { return };
        let name = fs.read(&Caller::system(), UserName { user }).await;
        remembered.lock().found(user, name.ok().flatten().map(Arc::from));
    }
}

/// Returns names without waiting. An unknown name is looked up, once for all records that want it,
/// and is returned the next time. Must be called within a runtime.
pub fn of(fs: &Fs) -> Names {
    let (fs, runtime) = (fs.clone(), Handle::current());
    let remembered = Arc::new(Mutex::new(NameCache::default()));
    Arc::new(move |user| {
        if let Some(name) = remembered.lock().names.get(&user) {
            return Some(Arc::clone(name));
        }
        if let Some(Ok(Some(name))) = fs.read_now(&Caller::system(), &UserName { user }) {
            let name: Arc<str> = name.into();
            remembered.lock().add(user, Arc::clone(&name));
            return Some(name);
        }
        if remembered.lock().want(user) {
            runtime.spawn(look(fs.clone(), Arc::clone(&remembered)));
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_up_serves_any_number_of_records() {
        let (mut remembered, [one, two]) = (NameCache::default(), [1, 2].map(UserId));
        assert!(remembered.want(one), "somebody begins to look");
        assert!((0..1000).all(|_| !remembered.want(one)), "once");
        assert_eq!(remembered.next(), Some(one));
        assert!(!remembered.want(one) && !remembered.want(two), "while it is looked up");
        remembered.found(one, Some("alice".into()));
        assert_eq!(remembered.next(), Some(two));
        remembered.found(two, None);
        assert_eq!(remembered.next(), None);
        assert_eq!(remembered.names.len(), 1);
        assert!(remembered.want(two), "another one looks from here on");
        for number in 0..2 * WANTED as u64 {
            remembered.want(UserId(number));
        }
        assert!(remembered.wanted.len() <= WANTED);
    }
}
