//! Lists the multipart uploads in progress.

use cairn_auth::Action;
use cairn_base::{Error, UploadId, limits};
use serde::{Deserialize, Serialize};

use super::namespace::open_bucket;
use crate::rows::{Row, Upload};
use crate::{Context, Stop, Verb, View, keys};

/// Lists one page of the uploads of a bucket, by key, then by upload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListUploads {
    pub bucket: String,
    pub prefix: String,
    /// Delimiter: keys are rolled up to its first occurrence; empty for none.
    pub delimiter: String,
    /// Key to start after; with `after_upload`, the uploads of this key after that upload come
    /// first.
    pub after_key: String,
    pub after_upload: Option<UploadId>,
    pub limit: usize,
}

/// A page of uploads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadPage {
    pub uploads: Vec<(String, UploadId, Upload)>,
    pub prefixes: Vec<String>,
    /// Start of the next page: the last key or common prefix, and the upload if the last item was
    /// one.
    pub next: Option<(String, Option<UploadId>)>,
}

impl Verb for ListUploads {
    type Reply = UploadPage;
    const NAME: &'static str = "list_uploads";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UploadPage, Stop> {
        let opened = open_bucket(view, context, &self.bucket, Action::ListBucketMultipartUploads)?;
        let limit = self.limit.min(limits::LIST_KEYS);
        let mut page = UploadPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let (mut start, end) = keys::uploads_from(opened.id, &self.start());
        let mut last: Option<(String, Option<UploadId>)> = None;
        loop {
            let rows = view.scan(&start, &end, limit + 1)?;
            let more = rows.len() > limit;
            for (row_key, row) in rows {
                start = [&row_key[..], b"\0"].concat().into();
                let (key, upload) = keys::upload_parts(&row_key)
                    .ok_or_else(|| Error::corrupt("key of an upload", row_key.len(), "18"))?;
                let key = String::from_utf8_lossy(&key).into_owned();
                if !key.starts_with(&self.prefix) {
                    return Ok(page);
                }
                let rolled = self.roll_up(&key);
                if rolled.is_some() && rolled.as_ref() == page.prefixes.last() {
                    continue;
                }
                if page.uploads.len() + page.prefixes.len() == limit {
                    page.next = last;
                    return Ok(page);
                }
                match rolled {
                    Some(prefix) => {
                        last = Some((prefix.clone(), None));
                        page.prefixes.push(prefix);
                    }
                    None => {
                        last = Some((key.clone(), Some(upload)));
                        page.uploads.push((key, upload, Upload::decode(&row)?));
                    }
                }
            }
            if !more {
                return Ok(page);
            }
        }
    }
}

impl ListUploads {
    /// Returns the start of the page: an object key, with the bytes that follow it in the row's
    /// key.
    fn start(&self) -> Vec<u8> {
        if self.after_key.is_empty() || self.after_key < self.prefix {
            return self.prefix.clone().into_bytes();
        }
        let after = self.after_key.as_bytes();
        match (self.after_upload, self.roll_up(&self.after_key)) {
            // Everything below a common prefix has been shown: 0xFF is in no UTF-8 key.
            (None, Some(prefix)) => [prefix.as_bytes(), b"\xff"].concat(),
            (Some(upload), _) => [after, b"\0", &upload.0.to_be_bytes()[..], b"\0"].concat(),
            (None, None) => [after, b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff"].concat(),
        }
    }

    fn roll_up(&self, key: &str) -> Option<String> {
        if self.delimiter.is_empty() {
            return None;
        }
        let at = key.get(self.prefix.len()..)?.find(&self.delimiter)?;
        Some(key[..self.prefix.len() + at + self.delimiter.len()].to_owned())
    }
}
