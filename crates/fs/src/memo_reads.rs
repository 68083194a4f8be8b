//! Reads of the metadata that are answered from decoded replies.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::Result;

use crate::Fs;
use crate::memos::{MemoVerb, NameRef, Reply};

impl Fs {
    /// Reads like [`Fs::read_now`]. The reply is kept, and serves for the same question of the same
    /// caller as long as none of the rows behind it has changed.
    pub fn read_kept_now<V: MemoVerb>(
        &self,
        caller: &Caller,
        verb: &V,
    ) -> Option<Result<Arc<V::Reply>>> {
        let (meta, memos) = (&self.inner.meta, &self.inner.memos);
        let name = NameRef::new(caller, verb);
        if let Some(memo) = memos.get(&name)
            && meta.is_current(&memo)
            && let Ok(reply) = Arc::clone(&memo.reply).downcast()
        {
            return Some(Ok(reply));
        }
        let memo = match meta.read_memo(caller, verb)? {
            Ok(memo) => memo.map(Arc::new),
            Err(error) => return Some(Err(error)),
        };
        let reply = Arc::clone(&memo.reply);
        memos.insert(name.to_name(), Arc::new(memo.map(|reply| reply as Reply)));
        Some(Ok(reply))
    }

    /// Reads like [`Fs::read`], by [`Fs::read_kept_now`] if that answers.
    pub async fn read_kept<V: MemoVerb>(&self, caller: &Caller, verb: V) -> Result<Arc<V::Reply>> {
        match self.read_kept_now(caller, &verb) {
            Some(reply) => reply,
            None => Ok(Arc::new(self.read(caller, verb).await?)),
        }
    }
}
