{{- define "heddle.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* The base of all names. 35 characters and "-parameter-server" are 52, the most that a StatefulSet's name may have. */ -}}
{{- define "heddle.fullname" -}}
{{- $name := include "heddle.name" . -}}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $own | replace "." "-" | trunc 35 | trimSuffix "-" -}}
{{- end -}}

{{- /* Of dict root, part: labels that never change. */ -}}
{{- define "heddle.selector" -}}
app.kubernetes.io/name: {{ include "heddle.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "heddle.labels" -}}
{{ include "heddle.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: heddle
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- /* Of dict root, image. */ -}}
{{- define "heddle.image" -}}
{{- $repository := .image.repository -}}
{{- with (.root.Values.global | default dict).imageRegistry | default .image.registry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "heddle.secretName" -}}
{{- .Values.secrets.existingSecret | default (printf "%s-cluster" (include "heddle.fullname" .)) -}}
{{- end -}}

{{- /* Of the names of masters' pods. */ -}}
{{- define "heddle.podDomain" -}}
{{- printf "%s-masters.%s.svc.%s" (include "heddle.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- /* Of dict root, pod: where the pod of a master is reached. */ -}}
{{- define "heddle.podHost" -}}
{{- printf "%s.%s" .pod (include "heddle.podDomain" .root) -}}
{{- end -}}

{{- define "heddle.masterHost" -}}
{{- $pod := printf "%s-master-%d" (include "heddle.fullname" .root) (int .index) -}}
{{- include "heddle.podHost" (dict "root" .root "pod" $pod) -}}
{{- end -}}

{{- /* name=host:port of all masters, and of the pod itself: kubectl may have scaled beyond the values. */ -}}
{{- define "heddle.peers" -}}
{{- $root := . -}}
{{- $peers := list -}}
{{- range $index := until (int .Values.master.replicas) -}}
{{- $host := include "heddle.masterHost" (dict "root" $root "index" $index) -}}
{{- $peers = append $peers (printf "%s-master-%d=%s:8081" (include "heddle.fullname" $root) $index $host) -}}
{{- end -}}
{{- $own := include "heddle.podHost" (dict "root" . "pod" "$(POD_NAME)") -}}
{{- join "," (append $peers (printf "$(POD_NAME)=%s:8081" $own)) -}}
{{- end -}}

{{- /* Of dict root, port, scheme: addresses of all masters. */ -}}
{{- define "heddle.masters" -}}
{{- $given := . -}}
{{- $addresses := list -}}
{{- range $index := until (int .root.Values.master.replicas) -}}
{{- $host := include "heddle.masterHost" (dict "root" $given.root "index" $index) -}}
{{- $addresses = append $addresses (printf "%s%s:%d" $given.scheme $host (int $given.port)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{- define "heddle.scheme" -}}
{{ ternary "https" "http" (ne .Values.master.httpTlsSecret "") }}
{{- end -}}

{{- /* The authority of the masters' certificate, for pods that call them. */ -}}
{{- define "heddle.httpCaVolume" -}}
{{- with .Values.master.httpTlsSecret }}
- name: http-ca
  secret:
    secretName: {{ . }}
    optional: true
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- end -}}

{{- define "heddle.httpCaMount" -}}
{{- if .Values.master.httpTlsSecret }}
- { name: http-ca, mountPath: /run/heddle/http-ca, readOnly: true }
{{- end }}
{{- end -}}

{{- define "heddle.httpCaEnvironment" -}}
{{- if .Values.master.httpTlsSecret }}
- { name: NODE_EXTRA_CA_CERTS, value: /run/heddle/http-ca/ca.crt }
{{- end }}
{{- end -}}

{{- define "heddle.endpoint" -}}
{{ include "heddle.scheme" . }}://{{ include "heddle.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:{{ .Values.service.port }}
{{- end -}}

{{- define "heddle.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "heddle.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- /* Of dict root, part, values, annotations (optional): what every pod's metadata has. */ -}}
{{- define "heddle.podMetadata" -}}
labels:
  {{- include "heddle.selector" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .values.podAnnotations .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Of dict root, values, part (of what is spread): where a pod runs. */ -}}
{{- define "heddle.placement" -}}
{{- /* With --reuse-values of an earlier chart there is no global. */}}
{{- with concat .root.Values.imagePullSecrets ((.root.Values.global | default dict).imagePullSecrets | default list) }}
imagePullSecrets:
  {{- range . }}
  - {{ ternary (dict "name" .) . (kindIs "string" .) | toJson }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .part }}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "heddle.selector" . | fromYaml)) }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ merge (dict) . $own | toJson }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Variables of every container; the code cache of Node needs a folder that can be written. */ -}}
{{- define "heddle.environment" -}}
- { name: NODE_COMPILE_CACHE, value: /tmp/node-compile-cache }
- { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
- { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
- { name: NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
{{- end -}}

{{- /* Of dict root, role, name, endpoints, extra: gets a join token where the node needs one. */ -}}
{{- define "heddle.enroll" -}}
name: enroll
image: {{ include "heddle.image" (dict "root" .root "image" .root.Values.image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args:
  - heddle-operator
  - enroll
  - --role={{ .role }}
  - --name={{ .name }}
  - --data=/data
  - --endpoints={{ .endpoints }}
  - --key-file=/run/heddle/key/bootstrap-key
  - --token-file=/run/heddle/join/token
  {{- range .extra }}
  - {{ . }}
  {{- end }}
env:
  {{- include "heddle.environment" .root | nindent 2 }}
  {{- include "heddle.httpCaEnvironment" .root | nindent 2 }}
resources:
  requests: { cpu: 50m, memory: 96Mi }
  limits: { memory: 256Mi }
securityContext:
  {{- include "heddle.containerSecurity" . | nindent 2 }}
volumeMounts:
  - { name: data, mountPath: /data }
  - { name: tmp, mountPath: /tmp }
  - { name: join, mountPath: /run/heddle/join }
  - { name: admin-key, mountPath: /run/heddle/key, readOnly: true }
  {{- include "heddle.httpCaMount" .root | nindent 2 }}
{{- end -}}

{{- /* The administrator's key is mounted by the init container alone. */ -}}
{{- define "heddle.enrollVolumes" -}}
- name: tmp
  emptyDir: { sizeLimit: 1Gi }
- name: join
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: admin-key
  secret:
    secretName: {{ include "heddle.secretName" . }}
    defaultMode: 0440
    items: [{ key: bootstrap-key, path: bootstrap-key }]
{{ include "heddle.httpCaVolume" . }}
{{- end -}}

{{/* How a monitor's endpoint of masters sends the key for their metrics. */}}
{{- define "heddle.metricsKey" -}}
authorization:
  credentials:
    name: {{ .Values.metricsKey.secret }}
    key: {{ .Values.metricsKey.key }}
{{- end }}

{{/* How a monitor's endpoint of masters checks their certificate. */}}
{{- define "heddle.monitorTls" -}}
{{- with .Values.master.httpTlsSecret }}
scheme: https
tlsConfig:
  serverName: {{ include "heddle.fullname" $ }}.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}
  ca:
    secret: { name: {{ . }}, key: ca.crt }
{{- end }}
{{- end }}
