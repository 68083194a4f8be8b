//! Error numbers that programs receive.

use cairn_base::Error;
use fuser::Errno;

/// Returns the error number for a file that is named by its parent and a name.
pub fn of_name(error: &Error) -> Errno {
    match error {
        Error::TooLarge(_) => Errno::ENAMETOOLONG,
        error => of(error),
    }
}

/// Returns the error number for an inode that the kernel knows. If the inode is gone, it is stale,
/// and the kernel looks its path up again.
pub fn of_inode(error: &Error) -> Errno {
    match error {
        Error::NotFound(_) => Errno::ESTALE,
        error => of(error),
    }
}

/// Returns the error number after the kernel has checked mode bits: only rights of owners can be
/// denied then.
pub fn of_owner(error: &Error) -> Errno {
    match error {
        Error::Denied(_) => Errno::EPERM,
        error => of_inode(error),
    }
}

pub fn of_xattr(error: &Error) -> Errno {
    match error {
        Error::NotFound(_) => Errno::NO_XATTR,
        Error::TooLarge(_) => Errno::ERANGE,
        Error::Full(_) => Errno::ENOSPC,
        Error::Denied(_) => Errno::EPERM,
        error => of(error),
    }
}

pub fn of_lock(error: &Error) -> Errno {
    match error {
        Error::TooLarge(_) => Errno::ENOLCK,
        error => of_inode(error),
    }
}

pub fn of(error: &Error) -> Errno {
    let errno = match error {
        Error::NotFound(_) => Errno::ENOENT,
        Error::Exists(_) => Errno::EEXIST,
        Error::Denied(_) => Errno::EACCES,
        Error::Conflict(_) => Errno::EAGAIN,
        Error::Full(_) => Errno::ENOSPC,
        Error::ReadOnly(_) => Errno::EROFS,
        Error::Invalid(_) | Error::RangeNotSatisfiable { .. } => Errno::EINVAL,
        Error::TooLarge(_) => Errno::EFBIG,
        Error::NotEmpty(_) => Errno::ENOTEMPTY,
        Error::IsDirectory(_) => Errno::EISDIR,
        Error::NotDirectory(_) => Errno::ENOTDIR,
        Error::CrossBucket(_) => Errno::EXDEV,
        Error::NotImplemented(_) => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    };
    if errno == Errno::EIO {
        tracing::warn!(%error, "a request failed");
    } else {
        tracing::debug!(%error, ?errno, "a request failed");
    }
    errno
}
