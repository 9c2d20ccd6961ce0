//! Input that the scripts in hack/ refuse, and the messages for it.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Any user but root.
const SOMEBODY: u32 = 65534;

/// Runs it. Returns its exit status and its output on stderr.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns a folder of another user: one whose owner was changed, or root's if the test does not run as root.
fn foreign(folder: &Path) -> PathBuf {
    if std::fs::metadata(folder).unwrap().uid() != 0 {
        return "/".into();
    }
    chown(folder, Some(SOMEBODY), None).unwrap();
    folder.into()
}

/// Its kubeconfig could name a program, which would run as the current user.
#[test]
fn the_control_plane_of_another_user_is_not_read_or_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let dir = foreign(folder.path());
    for command in ["status", "stop"] {
        let mut script = Command::new("hack/controlplane.sh");
        let (status, said) = run(script.arg(command).arg("--dir").arg(&dir));
        assert_eq!(status, Some(1), "{command}: {said}");
        assert!(said.contains("belongs to another user"), "{command}: {said}");
    }
}
