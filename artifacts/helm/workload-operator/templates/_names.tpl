{{- define "workload-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of all objects. 40 characters leave room for what is added to it. */}}
{{- define "workload-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "workload-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "workload-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "workload-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Not empty if metrics are served over TLS to authorized clients; namespaced, only with a certificate. */}}
{{- define "workload-operator.metricsSecure" -}}
{{- if and .Values.metrics.enabled .Values.metrics.secure (or .Values.metrics.tls.enabled (not .Values.namespaced)) }}yes{{ end }}
{{- end }}

{{/* Not empty if the certificate of the metrics is in a Secret. */}}
{{- define "workload-operator.metricsCertificate" -}}
{{- if and (include "workload-operator.metricsSecure" .) .Values.metrics.tls.enabled }}yes{{ end }}
{{- end }}

{{- define "workload-operator.metricsSecret" -}}
{{- default (printf "%s-metrics-tls" (include "workload-operator.fullname" .)) .Values.metrics.tls.secret }}
{{- end }}

{{/* Never changes during a release's life: selectors are immutable. */}}
{{- define "workload-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "workload-operator.labels" -}}
{{ include "workload-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "workload-operator.image" -}}
{{- $repository := required "image.repository: set it to the operator's image, as your nodes can pull it (docs/INSTALL.md)" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}
