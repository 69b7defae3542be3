{{/* Names with a digest of the content, as kustomize has them: pods start again when it changes. */}}

{{- define "ism-dask.publicData" -}}
PUBLIC_HOST: {{ .Values.public.host | quote }}
PUBLIC_URL: {{ .Values.public.url | quote }}
{{- end }}

{{- define "ism-dask.public" -}}
public-{{ include "ism-dask.publicData" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "ism-dask.secretData" -}}
{{- with .Values.secrets -}}
{{- $advice := "is empty: set it, or name a secret that exists in secrets.existing" -}}
POSTGRES_PASSWORD: {{ required (print "secrets.postgresPassword " $advice) .postgresPassword | b64enc }}
PREFECT_AUTH: {{ required (print "secrets.prefectAuth " $advice) .prefectAuth | b64enc }}
{{- end }}
{{- end }}

{{- define "ism-dask.secret" -}}
{{- with .Values.secrets.existing -}}
{{ . }}
{{- else -}}
prefect-{{ include "ism-dask.secretData" . | sha256sum | trunc 10 }}
{{- end }}
{{- end }}
