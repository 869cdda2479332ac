{{- define "lightgate.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "lightgate.selector" -}}
app.kubernetes.io/name: lightgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lightgate.labels" -}}
{{ include "lightgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* A value as TOML. Strings, numbers and truth values are written as in JSON. */ -}}
{{- define "lightgate.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true -}}
{{- range $key, $value := . -}}
{{- if not $first }},{{ end }} {{ $key | toJson }} = {{ include "lightgate.toml.value" $value }}
{{- $first = false -}}
{{- end }} }
{{- else if kindIs "slice" . -}}
[{{- range $at, $value := . -}}{{- if $at }}, {{ end -}}{{ include "lightgate.toml.value" $value }}{{- end -}}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* lightgate.toml: a table for each member of `config`; what is null is left out. */ -}}
{{- define "lightgate.toml" -}}
{{- range $table, $members := .Values.config }}
{{- if $members }}
[{{ $table }}]
{{- range $key, $value := $members }}
{{- if not (kindIs "invalid" $value) }}
{{ $key | toJson }} = {{ include "lightgate.toml.value" $value }}
{{- end }}
{{- end }}
{{ end }}
{{- end }}
{{- end -}}

{{- define "lightgate.shared" -}}
{{- $ledger := dig "ledger" "url" "sqlite" .Values.config -}}
{{- $shared := dig "shared" "url" "" .Values.config -}}
{{- if and (ne $ledger "sqlite") (ne $shared "") -}}yes{{- end -}}
{{- end -}}

{{- /* Seconds that a node has to end: 5 before SIGTERM, `drain` for streams, 40 to ship its journals. */ -}}
{{- define "lightgate.grace" -}}
{{- $drain := dig "gateway" "drain" "30s" .Values.config | toString -}}
{{- $number := add (regexFind "^[0-9]+" $drain | int) (contains "." $drain | ternary 1 0) -}}
{{- $unit := regexFind "[a-z]+$" $drain -}}
{{- $each := dict "us" 0 "ms" 0 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- $seconds := mul $number (get $each $unit | int) -}}
{{- if eq $unit "ms" -}}{{- $seconds = div (add $number 999) 1000 -}}{{- end -}}
{{- add 45 (max 30 $seconds) -}}
{{- end -}}

{{- define "lightgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "lightgate.container" -}}
image: {{ include "lightgate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: { drop: [ALL] }
envFrom:
  - secretRef: { name: {{ .Values.secrets.existingSecret | quote }} }
volumeMounts:
  - { name: data, mountPath: /var/lib/lightgate }
  - { name: config, mountPath: /etc/lightgate, readOnly: true }
  - { name: tmp, mountPath: /tmp }
{{- end -}}
