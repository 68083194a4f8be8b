//! Every limit of the console.

use std::time::Duration;

/// Longest form, bytes; and longest form without a selection: the form to log in, and JSON.
pub const FORM_BYTES: usize = 1 << 20;
pub const SHORT_FORM_BYTES: usize = 64 << 10;
/// Fields of a form and of a query, at most: more than a selection has; and those of the form to
/// log in.
pub const FIELDS: usize = 2048;
pub const LOGIN_FIELDS: usize = 16;
/// Memory for all forms that are being read, bytes. No network gets the last quarter.
pub const FORMS_BYTES: u64 = 32 << 20;

/// Time without use after which a login ends; and the age at which it ends in any case.
pub const IDLE: Duration = Duration::from_secs(3600);
pub const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Interval at which the use of a login is noted.
pub const TOUCH: Duration = Duration::from_secs(60);

/// Wrong secrets of one network, or for one access key, after which replies to further wrong
/// secrets are held back: for a second at first, and then twice as long each time.
pub const FREE_FAILURES: u32 = 5;
pub const HELD_MAX: Duration = Duration::from_secs(8);
/// Time for which failures are remembered after the last one.
pub const FAILURES_WINDOW: Duration = Duration::from_secs(600);
/// Networks and access keys that are remembered, at most.
pub const FAILURE_SOURCES: usize = 8192;
/// Replies to wrong secrets that are held back at the same time; further ones wait for these. No
/// network gets the last quarter.
pub const ATTEMPTS: u64 = 128;

/// Rows of a page, at most.
pub const ROWS: usize = 200;
/// Objects of a folder that one request deletes, at most.
pub const DELETES: usize = 10_000;
/// Objects that one request copies or moves, at most.
pub const TRANSFERS: usize = 1000;

/// Validity of a link to the bytes of an object, seconds; and of a link to upload a part.
pub const DOWNLOAD_SECS: u32 = 300;
pub const UPLOAD_SECS: u32 = 15 * 60;
/// Presigned URLs that one request makes, at most.
pub const URLS: usize = 16;

/// Pages that receive changes, new numbers or lines at the same time, at most: of all users, and of
/// one.
pub const LISTENERS: usize = 1024;
pub const LISTENERS_OF_USER: usize = 64;
/// Interval at which an open page shows that its connection is alive to the server's own watch over
/// connections; and the silence after which it shows it to proxies.
pub const LISTENER_BEAT: Duration = Duration::from_secs(2);
pub const LISTENER_ALIVE: Duration = Duration::from_secs(20);
/// Interval at which the login of an open page is checked, even if nothing says that it has ended.
pub const LISTENER_LOGIN: Duration = Duration::from_secs(60);

/// Records of the audit on a page; and bytes of stored records that one request searches.
pub const RECORDS: usize = 100;
pub const RECORDS_BYTES: u64 = 8 << 20;
/// Days of the audit that are offered, for each process that stores them; and such processes.
pub const AUDIT_DAYS: usize = 31;
pub const AUDIT_SOURCES: usize = 32;

/// Requests in flight that a page shows, and sessions, locks, groups and damaged objects, at most.
pub const SHOWN: usize = 200;
/// Lines of a log that a page begins with; the bytes of those that it shows at first, at most; and
/// lines that a script keeps.
pub const TAIL_LINES: usize = 200;
pub const TAIL_BYTES: usize = 256 << 10;
pub const TAIL_KEPT: usize = 2000;
/// Interval at which the right of a user to read a followed log is decided again.
pub const TAIL_CHECK: Duration = Duration::from_secs(2);
