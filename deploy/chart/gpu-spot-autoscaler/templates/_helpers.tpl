{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
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
