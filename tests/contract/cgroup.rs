//! Limits enforced by the kernel, as a kubelet sets them: cgroups of version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the hierarchies, or of the single one.
const ROOT: &str = "/sys/fs/cgroup";

/// Limits the memory and processor time of the processes in it.
pub struct Cgroup {
    version: Version,
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// Creates a cgroup. A process in it that needs more than `memory` bytes is killed. One that needs more
    /// than `percent` of a processor is throttled.
    ///
    /// # Errors
    /// If no cgroup can be created: this requires root and a writable hierarchy.
    pub fn new(memory: u64, percent: u64) -> io::Result<Cgroup> {
        let unified = Path::new(ROOT).join("cgroup.controllers").exists();
        let version = if unified { Version::Two } else { Version::One };
        let name = format!("workload-operator-test-{}", std::process::id());
        let cgroup = Cgroup { version, name };
        if version == Version::Two {
            fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+memory +cpu")?;
        }
        cgroup.folders().into_iter().try_for_each(fs::create_dir)?;
        match version {
            Version::One => {
                cgroup.set("memory", "memory.limit_in_bytes", &memory.to_string())?;
                cgroup.set("cpu", "cpu.cfs_period_us", "100000")?;
                cgroup.set("cpu", "cpu.cfs_quota_us", &(percent * 1_000).to_string())?;
            }
            Version::Two => {
                cgroup.set("", "memory.max", &memory.to_string())?;
                cgroup.set("", "cpu.max", &format!("{} 100000", percent * 1_000))?;
            }
        }
        Ok(cgroup)
    }

    fn folders(&self) -> Vec<PathBuf> {
        let hierarchies: &[&str] = match self.version {
            Version::One => &["memory", "cpu"],
            Version::Two => &[""],
        };
        hierarchies.iter().map(|hierarchy| self.folder(hierarchy)).collect()
    }

    fn folder(&self, hierarchy: &str) -> PathBuf {
        Path::new(ROOT).join(hierarchy).join(&self.name)
    }

    fn set(&self, hierarchy: &str, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder(hierarchy).join(file), value)
    }

    /// Returns the files by which a process joins the cgroup: it writes its ID into them.
    pub fn doors(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Returns the number of processes killed because they wanted more memory.
    pub fn killed(&self) -> u64 {
        let file = match self.version {
            Version::One => self.folder("memory").join("memory.oom_control"),
            Version::Two => self.folder("").join("memory.events"),
        };
        let text = fs::read_to_string(file).expect("it is there");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("Linux counts them").parse().expect("a number")
    }
}

impl Drop for Cgroup {
    /// All of its processes must have ended.
    fn drop(&mut self) {
        for folder in self.folders() {
            drop(fs::remove_dir(&folder));
        }
    }
}
