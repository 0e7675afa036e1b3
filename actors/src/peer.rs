//! What the kernel knows of a worker's end of a socket: whether it has read what we wrote, whether it went away without
//! reading, and who it is. Used by the ConnectionActor.
//!
//! If a Unix socket is closed with unread data, the other end gets `ECONNRESET`, from a read or, after a half-close, in
//! `SO_ERROR` (spec 5). `SIOCOUTQ` gives the number of unread bytes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::ioctl::{Getter, Opcode, ioctl};
use tokio::net::UnixStream;

/// `SIOCOUTQ`, which Linux defines as `TIOCOUTQ`.
const SIOCOUTQ: Opcode = 0x5411;
/// Linux's value, from 4.13 on, except on SPARC.
const SO_PEERGROUPS: libc::c_int = 59;
/// As many as Linux has for a process (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;
/// First pause between two looks at a peer that has not read everything; doubled up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_LONGEST: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    Read,
    Unread,
    Lost,
}

pub fn receipt(stream: &UnixStream) -> io::Result<Receipt> {
    // In this order: a peer that closes first sets the error, then drops what was unread.
    let unread = unread_bytes(stream)?;
    let error = stream.take_error()?;
    Ok(match (unread, error) {
        (_, Some(_)) => Receipt::Lost,
        (0, None) => Receipt::Read,
        _ => Receipt::Unread,
    })
}

/// Waits until the peer has read everything or is gone.
pub async fn delivered(stream: &UnixStream) -> io::Result<bool> {
    let mut pause = PAUSE_FIRST;
    loop {
        match receipt(stream)? {
            Receipt::Read => return Ok(true),
            Receipt::Lost => return Ok(false),
            Receipt::Unread => tokio::time::sleep(pause).await,
        }
        pause = PAUSE_LONGEST.min(pause * 2);
    }
}

#[allow(unsafe_code)]
fn unread_bytes(stream: &UnixStream) -> io::Result<i32> {
    // SAFETY: SIOCOUTQ on a socket writes one C int to its argument and does nothing else, which
    // is what `Getter` with `c_int` provides room for.
    let unread = unsafe { ioctl(stream.as_fd(), Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(unread)
}

#[allow(unsafe_code)]
fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS_MAX];
    let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice()))
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most `bytes` bytes, which is what `groups` has, and says in `bytes` how
    // many it wrote. Any bits are a u32.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(usize::try_from(bytes).unwrap_or(0) / size_of::<u32>());
    Ok(groups)
}

/// Who is at the other end, as it was when it connected. For the log; a pid can be reused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peer {
    pid: Option<i32>,
    uid: Option<u32>,
    /// It is this process's own user, root, or a member of the operators' group.
    pub is_operator: bool,
}

impl Peer {
    /// Asks the kernel. Members of the group `operators` are operators.
    pub fn of(stream: &UnixStream, operators: Option<u32>) -> Self {
        let Ok(credentials) = stream.peer_cred() else {
            return Self::default();
        };
        let is_in = |group: u32| {
            let is_first = credentials.gid() == group;
            is_first || groups(stream).is_ok_and(|groups| groups.contains(&group))
        };
        let uid = credentials.uid();
        let is_ours = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let is_operator = is_ours || operators.is_some_and(is_in);
        Self { pid: credentials.pid(), uid: Some(uid), is_operator }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.uid) {
            (Some(pid), Some(uid)) => write!(f, "pid {pid}, uid {uid}"),
            (None, Some(uid)) => write!(f, "uid {uid}"),
            (_, None) => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Bytes count as read once the peer has read them.
    #[tokio::test]
    async fn the_kernel_tells_what_was_read() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"JOB a 1\n").await.unwrap();
        assert_eq!(receipt(&ours).unwrap(), Receipt::Unread);
        let mut answer = [0; 8];
        theirs.read_exact(&mut answer).await.unwrap();
        assert_eq!(receipt(&ours).unwrap(), Receipt::Read);
        drop(theirs);
        assert!(delivered(&ours).await.unwrap());
    }
}
