//! The block `pod` of a custom resource: settings of its pods beside what the kind itself sets.

use serde::Deserialize;
use serde_json::{Value, json};

use super::pod_template::PodTemplate;
use crate::object::{InternedStr, Labels};

/// `spec.pod`. Lists stay as the user wrote them: they are sent, not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSettings {
    /// Labels beside the operator's own.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Labels that a node must have, beside those that the kind asks for.
    pub node_selector: Labels,
    /// Taints of nodes that do not keep the pods away.
    pub tolerations: Box<[Value]>,
    /// Spreading of the pods: `maxSkew`, `topologyKey` and `whenUnsatisfiable`.
    pub topology_spread_constraints: Box<[Value]>,
    /// The PriorityClass.
    pub priority_class_name: InternedStr,
    /// The Secrets for registries.
    pub image_pull_secrets: Box<[Value]>,
    /// Seconds between the signal to end and the kill.
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds between the removal from Services and the signal to end.
    pub pre_stop_sleep_seconds: Option<i64>,
}

// === impl PodSettings ===

impl PodSettings {
    /// Adds the settings to the pods of `template`, which `selector` selects. What the kind has set stays.
    pub(crate) fn apply(&self, template: &mut PodTemplate, selector: &Labels) {
        let (metadata, pod) = (&mut template.metadata, &mut template.spec);
        metadata.labels = union(&self.labels, &metadata.labels);
        metadata.annotations = union(&self.annotations, &metadata.annotations);
        pod.node_selector = union(&self.node_selector, &pod.node_selector);
        pod.tolerations.clone_from(&self.tolerations);
        let spread = |constraint: &Value| {
            let mut constraint = constraint.clone();
            constraint["labelSelector"] = json!({ "matchLabels": selector });
            constraint
        };
        pod.topology_spread_constraints =
            self.topology_spread_constraints.iter().map(spread).collect();
        pod.priority_class_name.clone_from(&self.priority_class_name);
        pod.image_pull_secrets.clone_from(&self.image_pull_secrets);
        pod.termination_grace_period_seconds = self.termination_grace_period_seconds;
        if let Some(seconds) = self.pre_stop_sleep_seconds {
            let lifecycle = json!({ "preStop": { "sleep": { "seconds": seconds } } });
            for container in &mut pod.containers {
                container.lifecycle = Some(Box::new(lifecycle.clone()));
            }
        }
    }
}

/// Both; where they differ, that of `own`.
fn union(settings: &Labels, own: &Labels) -> Labels {
    let both = settings.iter().filter(|(key, _)| own.get(key).is_none()).chain(own.iter());
    both.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Container;

    #[test]
    fn settings_are_added_and_never_replace_what_the_kind_sets() {
        let mut template = PodTemplate::default();
        template.metadata.labels = [("app", "memcached")].into_iter().collect();
        template.spec.node_selector = [("logs", "true")].into_iter().collect();
        template.spec.containers = [Container::default()].into();
        let settings: PodSettings = serde_json::from_value(json!({
            "labels": {"app": "mine", "team": "a"},
            "nodeSelector": {"logs": "false", "disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "topologySpreadConstraints":
                [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "imagePullSecrets": [{"name": "registry"}],
            "preStopSleepSeconds": 5,
        }))
        .unwrap();
        settings.apply(&mut template, &[("a", "b")].into_iter().collect());
        let made = serde_json::to_value(&template).unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"app": "memcached", "team": "a"}));
        assert_eq!(made["spec"]["nodeSelector"], json!({"logs": "true", "disk": "ssd"}));
        let spread = &made["spec"]["topologySpreadConstraints"][0];
        assert_eq!(spread["labelSelector"], json!({"matchLabels": {"a": "b"}}));
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["lifecycle"], json!({"preStop": {"sleep": {"seconds": 5}}}));
        assert_eq!(made["spec"]["terminationGracePeriodSeconds"], Value::Null);
    }
}
