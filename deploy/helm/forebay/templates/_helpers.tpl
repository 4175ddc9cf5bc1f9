{{- define "forebay.name" -}}
{{- printf "%s-forebay" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "forebay.selector" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "forebay.eppSelector" -}}
app.kubernetes.io/name: forebay-epp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
