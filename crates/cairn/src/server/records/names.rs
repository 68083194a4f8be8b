//! The names of users, for records.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_audit::Names;
use cairn_auth::Caller;
use cairn_base::UserId;
use cairn_fs::Fs;
use cairn_fs::ops::credentials::UserName;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Names that are remembered. A user keeps its name.
const REMEMBERED: usize = 10_000;

#[derive(Default)]
struct Remembered(Mutex<HashMap<UserId, Arc<str>>>);

impl Remembered {
    fn add(&self, user: UserId, name: &Arc<str>) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(user, Arc::clone(name));
    }
}

/// Says names without waiting. A name that is not at hand is asked for, and said the next time.
/// Must be called within a runtime.
pub fn of(fs: &Fs) -> Names {
    let (fs, runtime) = (fs.clone(), Handle::current());
    let remembered = Arc::new(Remembered::default());
    Arc::new(move |user| {
        if let Some(name) = remembered.0.lock().get(&user) {
            return Some(Arc::clone(name));
        }
        if let Some(Ok(Some(name))) = fs.read_now(&Caller::system(), &UserName { user }) {
            let name = name.into();
            remembered.add(user, &name);
            return Some(name);
        }
        let (fs, remembered) = (fs.clone(), Arc::clone(&remembered));
        runtime.spawn(async move {
            if let Ok(Some(name)) = fs.read(&Caller::system(), UserName { user }).await {
                remembered.add(user, &name.into());
            }
        });
        None
    })
}
