//! Access control: callers, rights, credentials and the sealing of secrets.
//!
//! It is not: a place with sockets, a clock or storage. Every function here is a function from
//! values to values; what cannot be decided is denied, and what is denied can be logged.
//!
//! ```text
//!   credentials on the wire ──► door ──► auth ──► Caller ──► every operation of the store
//!                                                   │
//!                  authorize(caller, action, resource, context) ──► yes | Denied
//! ```

mod credential;
mod handle;
mod link;
mod network;
mod origin;
mod password;
mod seal;

mod share_token;

mod caller;

mod access;

mod action;

mod authorize;

pub use access::{BucketAccess, Label, Rights, Visibility};
pub use action::{Action, ActionSet, Holder};
pub use authorize::{Resource, authorize, is_allowed};
pub use caller::{Caller, Posix, Principal, RelayedCaller};
pub use credential::{
    AccessKeyId, NewCredential, SecretKey, TOKEN_PREFIX, TokenHash, check_access_key_id,
    check_secret_key, generate, generate_token, hash_token, token_id, verify_secret, verify_token,
};
pub use handle::{HANDLE_TAG_BYTES, HandleKey};
pub use link::LinkKey;
pub use network::Network;
pub use origin::{AccessContext, CredentialId, Origin};
pub use password::{hash_password, verify_password};
pub use seal::{SealKey, Sealed};
pub use share_token::{ShareLinkId, generate_share_token, share_link_of};
