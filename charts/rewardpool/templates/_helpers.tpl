{{- define "rewardpool.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "rewardpool" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-rewardpool" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rewardpool.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "rewardpool.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "rewardpool.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "rewardpool.selectorLabels" -}}
app.kubernetes.io/name: rewardpool-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rewardpool.labels" -}}
{{ include "rewardpool.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* What the operator uses, no verb more: a test compares it with the list beside the operator's client. */ -}}
{{- define "rewardpool.operatorRules" -}}
- apiGroups: [rewardpool.dev]
  resources: [rewardpools]
  verbs: [get, list, watch, patch]
- apiGroups: [rewardpool.dev]
  resources: [rewardpools/status]
  verbs: [get, patch]
- apiGroups: [rewardpool.dev]
  # Where OwnerReferencesPermissionEnforcement is on, owning objects that block a pool's deletion takes this.
  resources: [rewardpools/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
