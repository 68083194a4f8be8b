//! Verbs with their types erased: the code around an operation is compiled once, and not for each
//! verb in each crate that runs it.

use std::any::Any;

use cairn_auth::Resource;

use crate::{Context, Needs, Stop, Verb, View};

/// The reply of any verb.
pub type AnyReply = Box<dyn Any + Send>;

/// Any verb.
pub trait AnyVerb: Send + Sync + 'static {
    /// [`Verb::NAME`].
    fn name(&self) -> &'static str;

    /// Runs the verb like [`apply`].
    fn apply_any(&self, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop>;
}

impl<V: Verb> AnyVerb for V {
    fn name(&self) -> &'static str {
        V::NAME
    }

    fn apply_any(&self, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop> {
        Ok(Box::new(apply(self, view, context)?))
    }
}

/// Runs a verb for its caller. This is the only way by which a verb from outside gets to rows.
pub fn apply<V: Verb>(verb: &V, view: &mut View<'_>, context: &Context) -> Result<V::Reply, Stop> {
    before(&V::NEEDS, view, context)?;
    let reply = verb.apply(view, context)?;
    V::NEEDS.check(V::NAME, view.allowed())?;
    Ok(reply)
}

fn before(needs: &Needs, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
    match needs {
        Needs::Store(action) => context.authorize(view, *action, Resource::Store),
        Needs::All(_) | Needs::Some(_) | Needs::Once(_) | Needs::Others(_) | Needs::Nothing(_) => {
            Ok(())
        }
    }
}

/// A function that runs a verb on a view and keeps the reply.
pub type Apply<'a> = &'a mut dyn FnMut(&mut View<'_>, &Context) -> Result<(), Stop>;

/// Returns a function that runs `verb` and puts the reply into `reply`.
pub fn keeping<V: Verb>(
    verb: &V,
    reply: &mut Option<V::Reply>,
) -> impl FnMut(&mut View<'_>, &Context) -> Result<(), Stop> {
    |view, context| {
        *reply = Some(apply(verb, view, context)?);
        Ok(())
    }
}

/// Converts the reply that [`AnyVerb::apply_any`] of a `V` has returned.
pub fn reply_of<V: Verb>(reply: AnyReply) -> V::Reply {
    match reply.downcast() {
        Ok(reply) => *reply,
        Err(_) => unreachable!("not a reply of {}", V::NAME),
    }
}
