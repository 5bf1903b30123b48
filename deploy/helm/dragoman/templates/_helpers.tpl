{{- define "dragoman.name" -}}
{{- $name := ternary .Release.Name (printf "%s-dragoman" .Release.Name) (contains "dragoman" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The domain in which each pod has its name. */}}
{{- define "dragoman.domain" -}}
{{ include "dragoman.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The nodes, numbered as their pods are: 0@dragoman-0.dragoman-nodes…:9190,1@… */}}
{{- define "dragoman.cluster" -}}
{{- $nodes := list -}}
{{- range $number := until (int .Values.replicas) -}}
{{- $nodes = append $nodes (printf "%d@%s-%d.%s:9190" $number (include "dragoman.name" $) $number (include "dragoman.domain" $)) -}}
{{- end -}}
{{- join "," $nodes -}}
{{- end -}}

{{- define "dragoman.listen" -}}
{{- $listeners := list -}}
{{- range $name, $port := .Values.listeners -}}
{{- $listeners = append $listeners (printf "%s=%s:%d" $name $.Values.bindAddress (int $port)) -}}
{{- end -}}
{{- if .Values.console.enabled -}}
{{- $listeners = append $listeners (printf "console=%s:%d" .Values.bindAddress (int .Values.console.port)) -}}
{{- end -}}
{{- $listeners = append $listeners (printf "peer=%s:9190" .Values.bindAddress) -}}
{{- join "," $listeners -}}
{{- end -}}

{{/* Clients find each pod by its name. Kubernetes puts the variable in. */}}
{{- define "dragoman.advertise" -}}
{{- $listeners := list -}}
{{- range $name, $port := .Values.listeners -}}
{{- $listeners = append $listeners (printf "%s=$(POD_NAME).%s:%d" $name (include "dragoman.domain" $) (int $port)) -}}
{{- end -}}
{{- join "," $listeners -}}
{{- end -}}

{{/* Names of the node that clients within Kubernetes use. */}}
{{- define "dragoman.hosts" -}}
{{- $hosts := list -}}
{{- $services := list (include "dragoman.name" .) -}}
{{- if .Values.console.enabled -}}
{{- $services = append $services (printf "%s-console" (include "dragoman.name" .)) -}}
{{- end -}}
{{- range $service := $services -}}
{{- $inside := printf "%s.%s" $service $.Release.Namespace -}}
{{- $hosts = concat $hosts (list $service $inside (printf "%s.svc" $inside) (printf "%s.svc.%s" $inside $.Values.clusterDomain)) -}}
{{- end -}}
{{- join "," (append $hosts (printf "*.%s" (include "dragoman.domain" .))) -}}
{{- end -}}

{{/* A key of a setting as a variable: num.partitions is DRAGOMAN_NUM_PARTITIONS. */}}
{{- define "dragoman.variable" -}}
DRAGOMAN_{{ . | upper | replace "." "_" | replace "-" "_" }}
{{- end -}}

{{- define "dragoman.validate" -}}
{{- if not .Values.insecure -}}
{{- if not .Values.secrets.tls -}}
{{- fail "secrets.tls names the Secret with the nodes' certificate; `insecure: true` does without TLS and logins" -}}
{{- end -}}
{{- if not .Values.secrets.peer -}}
{{- fail "secrets.peer names the Secret by which nodes recognise each other; `insecure: true` does without it" -}}
{{- end -}}
{{- else if or .Values.secrets.tls .Values.secrets.peer -}}
{{- fail "secrets.tls and secrets.peer have no effect with `insecure: true`" -}}
{{- end -}}
{{- end -}}
