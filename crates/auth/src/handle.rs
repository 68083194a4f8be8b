//! Handles of files: a server gives them to clients, which send them back, and only the store can
//! make them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use cairn_base::Secret;

const KEY_BYTES: usize = 32;
/// The purpose of the derived key: another purpose gets another key.
const PURPOSE: &[u8] = b"cairn file handles 1";

/// Bytes of a tag.
pub const HANDLE_TAG_BYTES: usize = 16;

/// Key of handles, derived from that of sealed secrets: the same after a restart and at each
/// gateway, and nothing more has to be kept.
pub struct HandleKey(Key);

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl HandleKey {
    pub fn derive(seal: &Secret<[u8; KEY_BYTES]>) -> HandleKey {
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(seal.expose());
        let mut bytes = [0; KEY_BYTES];
        let expanded = extracted.expand(&[PURPOSE], Length);
        expanded.and_then(|okm| okm.fill(&mut bytes)).expect("HKDF-SHA256 gives 32 bytes");
        let key = HandleKey(Key::new(HMAC_SHA256, &bytes));
        drop(Secret::new(bytes));
        key
    }

    /// Returns the tag of a handle's content: the first half of its HMAC-SHA256.
    pub fn tag(&self, content: &[u8]) -> [u8; HANDLE_TAG_BYTES] {
        let full = sign(&self.0, content);
        let mut tag = [0; HANDLE_TAG_BYTES];
        tag.iter_mut().zip(full.as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }

    pub fn verify(&self, content: &[u8], tag: &[u8]) -> bool {
        verify_slices_are_equal(&self.tag(content), tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_content_and_one_key_and_stays() {
        let key = HandleKey::derive(&Secret::new([7; 32]));
        let tag = key.tag(b"content");
        assert!(key.verify(b"content", &tag));
        assert!(!key.verify(b"contenu", &tag) && !key.verify(b"content", &tag[..15]));
        assert!(!HandleKey::derive(&Secret::new([8; 32])).verify(b"content", &tag));
        // Clients still have handles from before an update.
        assert_eq!(tag, HandleKey::derive(&Secret::new([7; 32])).tag(b"content"));
        for at in 0..tag.len() {
            let mut altered = tag;
            altered[at] ^= 1;
            assert!(!key.verify(b"content", &altered));
        }
    }
}
