{{- define "rewardpool.fullname" -}}
{{- $name := .Values.nameOverride | default "rewardpool" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rewardpool.name" -}}
{{- .Values.nameOverride | default "rewardpool-operator" -}}
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
{{- $_ := required "image.repository is not set: build the image from workers/Containerfile, push it to a registry that the cluster's nodes reach, and name it by --set image.repository=REGISTRY/rewardpool" .Values.image.repository -}}
{{- if regexMatch "(@.*|:[^/]*)$" .Values.image.repository -}}
{{- fail (printf "image.repository is %s, which has a tag or digest: write these as image.tag and image.digest" .Values.image.repository) -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The pool defaults that are set, in two levels; without those that are left empty. */ -}}
{{- define "rewardpool.poolDefaults" -}}
{{- $set := dict -}}
{{- range $name, $value := .Values.poolDefaults -}}
{{- if kindIs "map" $value -}}
{{- $inner := dict -}}
{{- range $field, $given := $value }}{{ if $given }}{{ $_ := set $inner $field $given }}{{ end }}{{ end -}}
{{- $value = $inner -}}
{{- end -}}
{{- if $value }}{{ $_ := set $set $name $value }}{{ end -}}
{{- end -}}
{{- toYaml $set -}}
{{- end -}}

{{- define "rewardpool.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rewardpool.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rewardpool.labels" -}}
{{ include "rewardpool.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: rewardpool
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* All of an object's labels, of which its own (`own`) win over those of all objects. */ -}}
{{- define "rewardpool.labelsWith" -}}
{{- merge (deepCopy (.own | default dict)) (include "rewardpool.labels" .context | fromYaml) | toYaml -}}
{{- end -}}

{{- /* The rules of rewardpool_operator.kubernetes.permissions; a test compares the two. */ -}}
{{- define "rewardpool.operatorRules" -}}
- apiGroups: [rewardpool.dev]
  resources: [rewardpools]
  verbs: [get, list, watch]
- apiGroups: [rewardpool.dev]
  resources: [rewardpools/status]
  verbs: [patch]
- apiGroups: [rewardpool.dev]
  resources: [rewardpools/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create, patch]
{{- if .Values.agentSandbox.enabled }}
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxclaims]
  verbs: [list, watch, create, delete]
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxtemplates, sandboxwarmpools]
  verbs: [get, create]
{{- end }}
{{- end -}}

{{- define "rewardpool.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "rewardpool.fullname" . }}]
  verbs: [get, patch]
{{- end -}}
