//! Verbs of any type: the code around an operation is compiled once, and not for each verb in each
//! crate that runs it.

use std::any::Any;

use crate::{Context, Stop, Verb, View};

/// The reply of a verb.
pub type AnyReply = Box<dyn Any + Send>;

/// A verb of any type.
pub trait AnyVerb: Send + Sync + 'static {
    /// [`Verb::NAME`].
    fn name(&self) -> &'static str;

    /// As [`Verb::apply`].
    fn apply_any(&self, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop>;
}

impl<V: Verb> AnyVerb for V {
    fn name(&self) -> &'static str {
        V::NAME
    }

    fn apply_any(&self, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop> {
        Ok(Box::new(self.apply(view, context)?))
    }
}

/// Runs a verb on a view; the maker of this keeps the reply.
pub type Apply<'a> = &'a mut dyn FnMut(&mut View<'_>, &Context) -> Result<(), Stop>;

/// Runs `verb`, and puts the reply into `reply`.
pub fn keeping<V: Verb>(
    verb: &V,
    reply: &mut Option<V::Reply>,
) -> impl FnMut(&mut View<'_>, &Context) -> Result<(), Stop> {
    |view, context| {
        *reply = Some(verb.apply(view, context)?);
        Ok(())
    }
}

/// What [`AnyVerb::apply_any`] of a `V` has returned.
pub fn reply_of<V: Verb>(reply: AnyReply) -> V::Reply {
    match reply.downcast() {
        Ok(reply) => *reply,
        Err(_) => unreachable!("not a reply of {}", V::NAME),
    }
}
