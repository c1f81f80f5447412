{{/* The name of the Deployment, with which the names of everything else begin. */}}
{{- define "fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- define "serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "fullname" .) }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: autoscaler
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentLabels" -}}
{{ include "agentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: node-agent
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* This differs from the selector of the Deployment, which must not match the agents. */}}
{{- define "agentSelector" -}}
app.kubernetes.io/name: gpu-spot-node-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* A dry run leaves nothing on the cluster, and must not take off what another release has put there. */}}
{{- define "releaseAllEnabled" -}}
{{- if and .Values.releaseAll.enabled (not .Values.dryRun.enabled) }}true{{ end }}
{{- end }}

{{- define "releaseAllName" -}}
{{ include "fullname" . }}-release-all
{{- end }}

{{- define "releaseAllLabels" -}}
app.kubernetes.io/name: gpu-spot-release-all
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: release-all
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of what helm uninstall creates first, and removes if it succeeds. The argument is the weight: the lowest comes first. */}}
{{- define "releaseAllHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: "{{ . }}"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The image that .repository and .tag name, or .digest if that is set, in the registry .imageRegistry if that is set. The arguments are the root and the image. */}}
{{- define "image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- with $root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The security contexts of a pod and of a container. The argument is the value, which an upgrade with --reuse-values from a chart without it does not have. */}}
{{- define "podSecurity" -}}
{{- toYaml (ternary (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault")) . (kindIs "invalid" .)) }}
{{- end }}

{{- define "containerSecurity" -}}
{{- toYaml (ternary (dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL"))) . (kindIs "invalid" .)) }}
{{- end }}

{{/* How the pods of the autoscaler, and of its hook, are on the network. */}}
{{- define "podNetwork" -}}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" (default false .Values.hostNetwork)) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "agentServiceAccount" -}}
{{ (.Values.nodeAgent.serviceAccount).name | default (printf "%s-node-agent" (include "fullname" .)) }}
{{- end }}

{{- define "args" -}}
{{- if (.Values.serve).enabled }}
{{- if or .Values.dryRun.enabled .Values.provisioningRequests.enabled }}
{{- fail "serve.enabled: dryRun and provisioningRequests are of the autoscaler's own loop" }}
{{- end }}
- serve
- --serve-address=:{{ .Values.serve.port }}
- --serve-expander-address=:{{ .Values.serve.expanderPort }}
- --serve-tls-cert-file=/etc/gpu-spot/serve-tls/tls.crt
- --serve-tls-private-key-file=/etc/gpu-spot/serve-tls/tls.key
- --serve-client-ca-file=/etc/gpu-spot/serve-client-ca/ca.crt
{{ end -}}
- --region={{ required "region is required, such as cn-hangzhou" .Values.region }}
{{- with .Values.clusterName }}
- --cluster-name={{ . }}
{{- else }}
{{- if not .Values.extraArgs.nodes }}
{{- fail "one of clusterName and extraArgs.nodes is required: without either there is no pool to manage" }}
{{- end }}
{{- end }}
- --deployment-name={{ include "fullname" . }}
{{- if .Values.dryRun.enabled }}
{{- if .Values.nodeAgent.enabled }}
{{- fail "dryRun.enabled: the node-agent writes to Nodes, so it is not part of a dry run" }}
{{- end }}
- --dry-run
{{- end }}
- --leader-elect-resource-name={{ include "fullname" . }}
- --v={{ .Values.logLevel }}
{{- if and .Values.credentials.secretName (not (include "rrsa" .)) }}
- --credentials-dir=/etc/gpu-spot/credentials
{{- end }}
{{- if .Values.provisioningRequests.enabled }}
- --enable-provisioning-requests
{{- end }}
{{- if .Values.dynamicResourceAllocation.enabled }}
- --enable-dynamic-resource-allocation
{{- end }}
{{- if not .Values.nodeFaults.enabled }}
- --node-fault-conditions=
{{- else if .Values.nodeFaults.conditions }}
- --node-fault-conditions={{ join "," .Values.nodeFaults.conditions }}
{{- end }}
{{- if ne (toString .Values.nodeFaults.maxNodes) "10%" }}
- --node-fault-max-nodes={{ .Values.nodeFaults.maxNodes }}
{{- end }}
{{- if .Values.push.enabled }}
- --notice-address=:{{ .Values.push.port }}
- --notice-token-file=/etc/gpu-spot/notice-token/token
- --notice-tls-cert-file=/etc/gpu-spot/notice-tls/tls.crt
- --notice-tls-private-key-file=/etc/gpu-spot/notice-tls/tls.key
- --notice-signature={{ .Values.push.signature }}
{{- if .Values.push.tokenInURL }}
- --notice-token-in-url
{{- end }}
{{- end }}
{{- if .Values.secureServing.enabled }}
- --secure-address=:{{ .Values.secureServing.port }}
{{- if .Values.secureServing.tlsSecretName }}
- --secure-tls-cert-file=/etc/gpu-spot/secure-tls/tls.crt
- --secure-tls-private-key-file=/etc/gpu-spot/secure-tls/tls.key
{{- end }}
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

{{/* The annotations of the Service for notices. A public LoadBalancer without a limit of its callers is refused. Source:
   loadBalancerSourceRanges are read for Network Load Balancers alone, access control lists for Classic ones
   (pkg/controller/service/{nlbv2,clbv1}/loadbalancer.go and docs/usage.md of kubernetes/cloud-provider-alibaba-cloud). */}}
{{- define "pushServiceAnnotations" -}}
{{- $prefix := "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-" }}
{{- with .Values.push.service }}
{{- $annotations := deepCopy .annotations }}
{{- range $key, $_ := $annotations }}
{{- if hasSuffix "loadbalancer-address-type" $key }}
{{- fail "the address type of push.service is that of push.service.public: intranet unless that is true" }}
{{- end }}
{{- end }}
{{- if not (has .type (list "ClusterIP" "LoadBalancer")) }}
{{- fail (printf "push.service.type %s is neither ClusterIP nor LoadBalancer" .type) }}
{{- end }}
{{- if and .public (ne .type "LoadBalancer") }}
{{- fail "push.service.public is for the type LoadBalancer" }}
{{- end }}
{{- if eq .type "LoadBalancer" }}
{{- $_ := set $annotations (print $prefix "address-type") (ternary "internet" "intranet" .public) }}
{{- end }}
{{- range .loadBalancerSourceRanges }}
{{- if hasSuffix "/0" (toString .) }}
{{- fail (printf "push.service.loadBalancerSourceRanges: %s is the whole world" .) }}
{{- end }}
{{- end }}
{{- if .public }}
{{- $listed := and .loadBalancerSourceRanges (eq .loadBalancerClass "alibabacloud.com/nlb") }}
{{- $acl := and (eq (toString (get $annotations (print $prefix "acl-status"))) "on") (eq (toString (get $annotations (print $prefix "acl-type"))) "white") (get $annotations (print $prefix "acl-id")) }}
{{- if not (or $listed $acl) }}
{{- fail "push.service.public needs source ranges: loadBalancerSourceRanges with loadBalancerClass alibabacloud.com/nlb, or the annotations of an access control list that lets only its members through; see values.yaml" }}
{{- end }}
{{- end }}
{{- with $annotations }}
{{- toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The match condition of admission policies for requests of the autoscaler. */}}
{{- define "byAutoscaler" -}}
- name: autoscaler
  expression: {{ include "isAutoscaler" . }}
{{- end }}

{{/* CEL: whether the request is the autoscaler's, or that of release-all, which undoes what the autoscaler has done. */}}
{{- define "isAutoscaler" -}}
{{- $account := printf "system:serviceaccount:%s:" .Release.Namespace -}}
{{- if include "releaseAllEnabled" . -}}
request.userInfo.username in ["{{ $account }}{{ include "serviceAccount" . }}", "{{ $account }}{{ include "releaseAllName" . }}"]
{{- else -}}
request.userInfo.username == "{{ $account }}{{ include "serviceAccount" . }}"
{{- end }}
{{- end }}

{{/* CEL: whether the request is that of release-all. */}}
{{- define "isReleaseAll" -}}
request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "releaseAllName" . }}"
{{- end }}

{{/* The binding of the admission policy with this name, for all namespaces. */}}
{{- define "policyBinding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}

{{/*
Variables of an admission policy: labels and annotations before and after the request, and the keys of webhooks, which may change in
a request of the autoscaler.
*/}}
{{- define "keyVariables" -}}
- name: others
  expression: '{{ .Values.admission.autoscaler.otherKeys | toJson }}'
- name: labelsBefore
  expression: oldObject.metadata.?labels.orValue({})
- name: labelsAfter
  expression: object.metadata.?labels.orValue({})
- name: annotationsBefore
  expression: oldObject.metadata.?annotations.orValue({})
- name: annotationsAfter
  expression: object.metadata.?annotations.orValue({})
{{- end }}

{{/*
Whether only these labels or annotations (.of) change: the project's own, those in .also, and those of webhooks. Keys for which the
expression .or is true may be added, too.
*/}}
{{- define "ownKeysOnly" -}}
{{- $own := printf "key.startsWith(\"gpu-spot.autoscaling/\") || key in variables.others" }}
{{- with .also }}{{ $own = printf "%s || key in %s" $own (toJson .) }}{{ end }}
{{- $before := printf "variables.%sBefore" .of }}{{ $after := printf "variables.%sAfter" .of -}}
{{ $after }}.all(key, {{ $own }} || {{ with .or }}{{ . }} || {{ end }}key in {{ $before }} && {{ $before }}[key] == {{ $after }}[key]) &&
{{ $before }}.all(key, {{ $own }} || key in {{ $after }})
{{- end }}

{{/* Whether the maps .before and .after are equal except for the fields in the list .fields. */}}
{{- define "sameBut" -}}
{{ .after }}.all(field, field in {{ .fields }} || field in {{ .before }} && {{ .before }}[field] == {{ .after }}[field]) &&
{{ .before }}.all(field, field in {{ .fields }} || field in {{ .after }})
{{- end }}

{{/* Whether finalizers and owners of the object stay the same. */}}
{{- define "sameOwners" -}}
object.metadata.?finalizers == oldObject.metadata.?finalizers &&
object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
{{- end }}

{{- define "secureTLS" -}}
{{- if and .Values.secureServing.enabled .Values.secureServing.tlsSecretName }}true{{ end }}
{{- end }}

{{/* CEL: whether KubeRay created an object for a RayJob. The argument is the name of the variable. */}}
{{- define "ownedByRayJob" -}}
{{ . }}.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && owner.kind == "RayJob" && owner.apiVersion.startsWith("ray.io/"))
{{- end }}
