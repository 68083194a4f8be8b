{{- define "cairn.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "cairn.labels" -}}
app.kubernetes.io/name: cairn
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "cairn.selector" -}}
app.kubernetes.io/name: cairn
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/* Where nodes reach the first master. */}}
{{- define "cairn.master" -}}
{{ .Release.Name }}-master-0.{{ .Release.Name }}-master.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "cairn.pod" -}}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cairn.container" -}}
image: {{ include "cairn.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "cairn.root" -}}
- name: CAIRN_ROOT_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.rootSecret | quote }}, key: key}}
- name: CAIRN_ROOT_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.rootSecret | quote }}, key: secret}}
{{- end }}

{{- define "cairn.names" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}

{{/* Options of the doors of servers and gateways. */}}
{{- define "cairn.doors" -}}
- --s3=0.0.0.0:9000
- --http=0.0.0.0:8080
- --log-format=json
{{- if .Values.tlsSecret }}
- --tls-cert=/tls/tls.crt
- --tls-key=/tls/tls.key
{{- end }}
{{- end }}

{{/* Ports and probes of the doors of servers and gateways. */}}
{{- define "cairn.doorProbes" -}}
ports:
  - {name: s3, containerPort: 9000}
  - {name: http, containerPort: 8080}
startupProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ ternary "HTTPS" "HTTP" (not (empty .Values.tlsSecret)) }}}
  periodSeconds: 2
  # A store that was killed may have much to read.
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ ternary "HTTPS" "HTTP" (not (empty .Values.tlsSecret)) }}}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ ternary "HTTPS" "HTTP" (not (empty .Values.tlsSecret)) }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Ports and probes of masters and chunkservers. A master begins to listen before it serves. */}}
{{- define "cairn.statusProbes" -}}
ports:
  - {name: nodes, containerPort: 7400}
  - {name: status, containerPort: 7401}
livenessProbe:
  httpGet: {path: /healthz, port: status}
  initialDelaySeconds: 30
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: status}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "cairn.claim" -}}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .storageClass }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ .storage | quote }}
{{- end }}
