//! Real mounts that only this test's thread, and the processes it starts, can see. They need root:
//! where a mount cannot be made the test fails.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// A file system of its own that can be mounted in several places; unmounted everywhere at the end.
pub struct FileSystem {
    home: PathBuf,
    places: Vec<PathBuf>,
}

impl FileSystem {
    /// Gives this thread a mount namespace of its own, and in it an empty file system, mounted at `home`.
    pub fn new(home: &Path) -> Self {
        Self::mounted(home, None)
    }

    /// The same, with so many MiB of room.
    pub fn of_size(home: &Path, mib: u32) -> Self {
        let size = CString::new(format!("size={mib}m")).unwrap();
        Self::mounted(home, Some(&size))
    }

    fn mounted(home: &Path, options: Option<&CStr>) -> Self {
        enter_namespace();
        fs::create_dir(home).unwrap();
        mount("none", home, "tmpfs", MountFlags::empty(), options).expect("mounting takes root");
        Self { home: home.to_owned(), places: Vec::new() }
    }

    /// Mounts it at `place` as well, over whatever is there.
    pub fn mount_at(&mut self, place: &Path) {
        mount_bind(&self.home, place).unwrap();
        self.places.push(place.to_owned());
    }

    /// From now on nobody can write to it.
    pub fn make_read_only(&self) {
        mount_remount(&self.home, MountFlags::RDONLY, "").unwrap();
    }

    /// `umount -l`: what is mounted at `place` goes at once, though it is in use.
    pub fn unmount(&mut self, place: &Path) {
        unmount(place, UnmountFlags::DETACH).unwrap();
        self.places.retain(|mounted| mounted != place);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        for place in self.places.iter().chain([&self.home]) {
            let _ = unmount(place, UnmountFlags::DETACH);
        }
    }
}

#[allow(unsafe_code)]
fn enter_namespace() {
    // SAFETY: mounts are unshared, descriptors are not: no thread can come to see another's.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("a mount namespace takes root");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
}
