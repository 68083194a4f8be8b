//! The bytes of a file in pages that are shared between images until one of them changes.

use std::sync::Arc;

const PAGE: usize = 4096;

/// Pages of a file. Absent pages are zeros.
#[derive(Clone, Default, Debug)]
pub(crate) struct Image {
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
}

impl Image {
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset as usize + done;
            let within = at % PAGE;
            let len = (PAGE - within).min(buf.len() - done);
            let target = &mut buf[done..done + len];
            match self.pages.get(at / PAGE) {
                Some(Some(page)) => target.copy_from_slice(&page[within..within + len]),
                _ => target.fill(0),
            }
            done += len;
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset as usize + done;
            let within = at % PAGE;
            let len = (PAGE - within).min(bytes.len() - done);
            if self.pages.len() <= at / PAGE {
                self.pages.resize(at / PAGE + 1, None);
            }
            let page = self.pages[at / PAGE].get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    /// Zeroes all bytes from `len` on.
    pub(crate) fn cut(&mut self, len: u64) {
        let len = len as usize;
        self.pages.truncate(len.div_ceil(PAGE));
        if !len.is_multiple_of(PAGE)
            && let Some(Some(page)) = self.pages.get_mut(len / PAGE)
        {
            Arc::make_mut(page)[len % PAGE..].fill(0);
        }
    }

    /// Returns the bytes of pages that exist at or after byte `from`.
    pub(crate) fn used_bytes_from(&self, from: u64) -> u64 {
        let first = (from as usize).div_ceil(PAGE);
        self.pages.iter().skip(first).filter(|page| page.is_some()).count() as u64 * PAGE as u64
    }
}
