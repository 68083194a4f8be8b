//! Proofs to an authority that a name leads to this process.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Path at which authorities look (RFC 8555, 8.3).
const PATH: &str = "/.well-known/acme-challenge/";

/// Answers by their tokens, while an order waits for its proofs.
#[derive(Default)]
pub struct Challenges(Mutex<HashMap<String, String>>);

/// Answers of one order, which end with it.
pub struct ShownProofs(Arc<Challenges>);

impl Challenges {
    /// Returns the answer to a request for this path, if an authority made it.
    pub fn answer(&self, path: &str) -> Option<String> {
        self.0.lock().get(path.strip_prefix(PATH)?).cloned()
    }

    /// Shows the answers of an order. There is one order at a time.
    pub fn show(self: &Arc<Self>, answers: HashMap<String, String>) -> ShownProofs {
        *self.0.lock() = answers;
        ShownProofs(Arc::clone(self))
    }
}

impl Drop for ShownProofs {
    fn drop(&mut self) {
        self.0.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_shown_while_its_order_waits() {
        let challenges = Arc::new(Challenges::default());
        let path = format!("{PATH}token");
        assert_eq!(challenges.answer(&path), None);
        let shown = challenges.show([("token".to_owned(), "answer".to_owned())].into());
        assert_eq!(challenges.answer(&path).as_deref(), Some("answer"));
        for other in ["/token", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/x"] {
            assert_eq!(challenges.answer(other), None);
        }
        drop(shown);
        assert_eq!(challenges.answer(&path), None);
    }
}
