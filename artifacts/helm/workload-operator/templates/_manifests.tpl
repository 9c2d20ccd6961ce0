{{/*
The documents of one file of manifests/ as a JSON object: "Kind name" to the object. The files are links
to the files that kustomize uses; some tools leave links out when they copy a chart from Git.
*/}}
{{- define "workload-operator.manifests" -}}
{{- $all := dict }}
{{- range regexSplit "(?m)^---$" (.root.Files.Get .file) -1 }}
{{- $object := fromYaml . }}
{{- if $object.kind }}
{{- $_ := set $all (printf "%s %s" $object.kind $object.metadata.name) $object }}
{{- end }}
{{- end }}
{{- if not $all }}
{{- fail (printf "%s is missing: install the packaged chart, or copy its folder with the files behind its links" .file) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* One of them, with the chart's labels beside its own, under the chart's name. */}}
{{- define "workload-operator.manifest" -}}
{{- $object := .object }}
{{- $labels := include "workload-operator.labels" .root | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge $labels (default dict $object.metadata.labels)) }}
{{- $_ := set $object.metadata "name" (replace "workload-operator" (include "workload-operator.fullname" .root) $object.metadata.name) }}
{{- toYaml $object }}
{{- end }}
