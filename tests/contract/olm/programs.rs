//! OLM's programs, next to a control plane: `hack/olm.sh`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::catalog;
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::unchecked::built_by;

/// The directory of OLM's programs.
pub struct Programs(PathBuf);

/// The running programs. They stop when this is dropped.
pub struct Running {
    /// `host:port` of the registry.
    pub catalog: String,
    processes: [OperatorProcess; 3],
    _folder: tempfile::TempDir,
}

impl Programs {
    /// Returns `None`, with a message, if they neither exist nor can be built.
    pub fn find(unchecked: &str) -> Option<Programs> {
        let olm = built_by("hack/olm.sh", unchecked)?;
        Some(Programs(olm.parent().unwrap().to_owned()))
    }

    pub fn crds(&self) -> String {
        self.0.join("crds.yaml").to_str().unwrap().to_owned()
    }

    /// Starts both operators, as administrators, and the registry. The CRDs must already exist.
    pub async fn start(&self, plane: &ControlPlane, namespace: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let (served, cache) = (folder.path().join("catalog"), folder.path().join("cache"));
        std::fs::create_dir(&served).unwrap();
        catalog::write(&served);
        let registry = self.start_one("registry", plane, &[&served, &cache]);
        let said = registry.logged("serving on ").await;
        let olm = self.start_one("olm", plane, &[]);
        let arguments = [Path::new("--namespace"), Path::new(namespace)];
        let resolver = self.start_one("catalog", plane, &arguments);
        Running {
            catalog: said.rsplit(' ').next().unwrap().to_owned(),
            processes: [registry, olm, resolver],
            _folder: folder,
        }
    }

    fn start_one(&self, name: &str, plane: &ControlPlane, arguments: &[&Path]) -> OperatorProcess {
        let mut command = tokio::process::Command::new(self.0.join(name));
        command.args(arguments).env("KUBECONFIG", plane.kubeconfig());
        OperatorProcess::of(command)
    }
}

impl Drop for Running {
    /// Prints their last output if the test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in &self.processes {
                let lines = process.lines();
                let newest = &lines[lines.len().saturating_sub(20)..];
                let text = format!("---- OLM:\n{}\n", newest.join("\n"));
                drop(std::io::stderr().write_all(text.as_bytes()));
            }
        }
    }
}
