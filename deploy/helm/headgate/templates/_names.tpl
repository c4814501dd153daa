{{- define "headgate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "headgate.severalPods" -}}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}true{{ end -}}
{{- end -}}

{{- define "headgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "headgate.grpc" -}}
{{- if or (eq .Values.mode "ratelimit") (and (eq .Values.mode "serve") .Values.grpc.enabled) }}true{{ end -}}
{{- end -}}

{{- define "headgate.resp" -}}
{{- if and (eq .Values.mode "serve") .Values.resp.enabled }}true{{ end -}}
{{- end -}}

{{- define "headgate.scheme" -}}
{{- if and .Values.tls.existingSecret (ne .Values.mode "ratelimit") }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{- define "headgate.files" -}}
{{- if eq .Values.mode "ratelimit" -}}
{{- range $name, $text := .Values.ratelimit.config }}
{{ $name }}: |
  {{- $text | nindent 2 }}
{{- end }}
{{- else -}}
headgate.yaml: |
  {{- .Values.policy | nindent 2 }}
{{- if and (eq .Values.mode "gateway") .Values.gateway.file }}
gateway.yaml: |
  {{- .Values.gateway.file | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "headgate.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "headgate.store" -}}
{{- if .Values.store.existingSecret -}}
valueFrom: { secretKeyRef: { name: {{ .Values.store.existingSecret }}, key: url } }
{{- else -}}
value: {{ .Values.store.url | quote }}
{{- end -}}
{{- end -}}
