//! Links to the S3 door, which has the bytes.

use cairn_base::{Error, Result};
use cairn_doors::s3::PresignedRequest;
use http::Method;

use super::At;

/// A request that the browser is to send.
pub struct Link<'a> {
    pub method: Method,
    pub key: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'a str, &'a str)],
    pub secs: u32,
}

impl At<'_> {
    /// Makes a URL at the S3 door, which can be used once or a few times for a while. It is signed
    /// with the access key that was shown when the user logged in, so that its rights decide.
    pub async fn link(&self, link: &Link<'_>) -> Result<String> {
        let credential = &self.login.credential;
        let found = self.inner.admit.secret_of(credential).await?;
        let gone = || Error::Denied("the access key was removed".into());
        let (secret, _) = found.filter(|(_, user)| *user == self.login.user).ok_or_else(gone)?;
        let origin = self.inner.site.data(&self.asked.host);
        let Link { method, key, query, headers, secs } = link;
        let presigned = PresignedRequest {
            method: method.clone(),
            origin: &origin,
            bucket: self.bucket,
            key,
            query,
            headers,
            secs: *secs,
        };
        presigned.url(credential, &secret, self.inner.fs().clock().now(), "")
    }
}
