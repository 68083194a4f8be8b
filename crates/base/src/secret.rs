//! A value that must not be seen: no `Debug`, no `Display`, zeroed when dropped.

use zeroize::{Zeroize, Zeroizing};

/// Holds a secret. The only way out is [`Secret::expose`], which is easy to find in a review.
#[derive(Clone)]
pub struct Secret<T: Zeroize>(Zeroizing<T>);

impl<T: Zeroize> Secret<T> {
    pub fn new(value: T) -> Secret<T> {
        Secret(Zeroizing::new(value))
    }

    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
