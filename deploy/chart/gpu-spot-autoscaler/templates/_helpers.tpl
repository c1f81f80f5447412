{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: autoscaler
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentLabels" -}}
{{ include "agentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: node-agent
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- end }}

{{/* Not the selector of the Deployment, which would take the agents for its own. */}}
{{- define "agentSelector" -}}
app.kubernetes.io/name: gpu-spot-node-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "args" -}}
- --region={{ required "region is required, such as cn-hangzhou" .Values.region }}
{{- with .Values.clusterName }}
- --cluster-name={{ . }}
{{- else }}
{{- if not .Values.extraArgs.nodes }}
{{- fail "one of clusterName and extraArgs.nodes is required: without either there is no pool to manage" }}
{{- end }}
{{- end }}
- --deployment-name={{ .Release.Name }}
- --leader-elect-resource-name={{ .Release.Name }}
- --v={{ .Values.logLevel }}
{{- if .Values.provisioningRequests.enabled }}
- --enable-provisioning-requests
{{- end }}
{{- if .Values.dynamicResourceAllocation.enabled }}
- --enable-dynamic-resource-allocation
{{- end }}
{{- if .Values.push.enabled }}
- --notice-address=:{{ .Values.push.port }}
- --notice-token-file=/etc/gpu-spot/notice-token/token
- --notice-tls-cert-file=/etc/gpu-spot/notice-tls/tls.crt
- --notice-tls-private-key-file=/etc/gpu-spot/notice-tls/tls.key
{{- end }}
{{- range $flag, $value := .Values.extraArgs }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
- {{ printf "--%s=%v" $flag . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rrsa" -}}
{{- with .Values.credentials.rrsa }}
{{- if ne (empty .roleARN) (empty .oidcProviderARN) }}
{{- fail "credentials.rrsa needs both roleARN and oidcProviderARN" }}
{{- end }}
{{- if .roleARN }}true{{ end }}
{{- end }}
{{- end }}
