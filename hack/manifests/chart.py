"""Copies files into the Helm chart, so that each has one source.

A copy becomes a template through its namespace, which is the release's. Deployment, values and notes are the chart's
own.
"""

import re
from pathlib import Path

from hack.monitoring.files import RUNBOOKS

_REPOSITORY = Path(__file__).parents[2]
_MANIFESTS = _REPOSITORY / "manifests"
CHART = _MANIFESTS / "chart"

_NAMESPACE = "tenantzone-system"
_HEADER = "{{{{- /* Made by `make chart` from {source}. Do not edit. */}}}}\n"

_TEMPLATES = {
    "base/rbac.yaml": "",
    "base/guard.yaml": "",
    "base/network-policy.yaml": "networkPolicy",
    "overlays/ha/disruption-budget.yaml": "podDisruptionBudget",
    "monitoring/prometheus-rule.yaml": "monitoring",
    "monitoring/operator.yaml": "monitoring",
    "monitoring/manager.yaml": "monitoring",
    "manager/rbac.yaml": "manager",
    "manager/guard.yaml": "manager",
    "manager/service-accounts.yaml": "manager",
    "manager/service.yaml": "manager",
    "manager/network-policy.yaml": "manager networkPolicy",
    "manager/disruption-budget.yaml": "manager podDisruptionBudget",
}
"""The files that become templates, and the values that switch them on."""

_COPIES = {
    **{f"crds/{file.name}": file for file in sorted((_REPOSITORY / "crds").glob("*.yaml"))},
    "dashboard.json": _MANIFESTS / "monitoring" / "dashboard.json",
}

_MONITORING_OBJECT = re.compile(
    r"^apiVersion: monitoring\.coreos\.com/v1\nkind: .*\nmetadata:\n  name: .*\n  namespace: .*\n", re.MULTILINE
)
_RULE_OF_POOLS = re.compile(
    r"(?:^  #.*\n)+^  - apiGroups: \[\"\"\]\n    resources: \[(?:pods|configmaps|secrets)\]\n.*\n", re.MULTILINE
)
"""Rules for all namespaces, unless the values list the pools."""
_LABELS = """\
  {{- with .Values.monitoring.labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_MANAGER_ENDPOINT = re.compile(r"^  - port: http\n    interval: .*\n", re.MULTILINE)
_OVER_TLS = """\
    {{- with .Values.manager.tls.secretName }}
    scheme: https
    tlsConfig:
      ca:
        secret:
          name: {{ . }}
          key: ca.crt
      serverName: tenantzone-manager.{{ $.Release.Namespace }}
    {{- end }}
"""
"""How the manager is scraped where it is served over TLS."""
_RUNBOOKS = f'{{{{ .Values.monitoring.runbooks | default "{RUNBOOKS}" | trimSuffix "/" }}}}'


def files() -> dict[str, str]:
    """Their contents, by their path in the chart."""
    copies = {path: source.read_text() for path, source in _COPIES.items()}
    return copies | {_path(source): _template(source, switch) for source, switch in _TEMPLATES.items()}


def _path(source: str) -> str:
    folder, _, name = source.rpartition("/")
    return f"templates/{folder}/{name}" if folder in ("monitoring", "manager") else f"templates/{name}"


def _template(source: str, switch: str) -> str:
    text = (_MANIFESTS / source).read_text()
    # Alerts have templates of their own.
    text = text.replace("{{", '{{ "{{" }}')
    text = text.replace(RUNBOOKS, _RUNBOOKS)
    text = _MONITORING_OBJECT.sub(lambda found: found[0] + _LABELS, text)
    text = _MANAGER_ENDPOINT.sub(lambda found: found[0] + _OVER_TLS, text)
    text = _RULE_OF_POOLS.sub(lambda found: f"  {{{{- if not .Values.pools }}}}\n{found[0]}  {{{{- end }}}}\n", text)
    text = text.replace(_NAMESPACE, "{{ .Release.Namespace }}")
    if switch:
        switches = [f".Values.{value}.enabled" for value in switch.split()]
        condition = switches[0] if len(switches) == 1 else f"and {' '.join(switches)}"
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return _HEADER.format(source=f"manifests/{source}") + text
