"""Who is scraped: as a scrape config, and as objects of the Prometheus Operator.

Engines are pods of one pool, with the annotation that the operator writes onto each engine. Each pool has a token of
its own, so each is scraped by a job or a PodMonitor of its own, and no engine is shown another pool's token. The admin
port is called ``admin``, as in ``manifests/engine``. The operator's metrics port is called ``metrics``.
"""

from typing import Any

from hack.monitoring.time_scale import REAL_TIME, TimeScale
from tenantzone_contract.keys.admin_token import TOKEN_FILE, admin_secret_name
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION

SCRAPE_MINUTES = 0.25
ENGINES_JOB = "tenantzone-engines"
OPERATOR_JOB = "tenantzone-operator"
MANAGER_JOB = "tenantzone-manager"
_POOL, _POOL_NAMESPACE, _POOL_LABEL = "demo", "default", {"app": "vllm"}
"""As in ``manifests/engine`` and ``manifests/samples``, which are applied to no namespace in particular."""
TOKEN_PATH = f"/etc/prometheus/{admin_secret_name(_POOL)}/{TOKEN_FILE}"
"""The path at which Prometheus has the pool's Secret mounted."""
_OPERATOR_NAMESPACE = "tenantzone-system"
_OPERATOR_LABEL = {"app.kubernetes.io/name": "tenantzone-operator"}
_ENGINE_MARK = f"__meta_kubernetes_pod_annotationpresent_{CONFIG_HASH_ANNOTATION}".translate(
    str.maketrans("./-", "___")
)
_POD = "__meta_kubernetes_pod"

Document = dict[str, Any]


def scrape_config(
    rule_files: list[str],
    alertmanagers: list[Document],
    time_scale: TimeScale = REAL_TIME,
    token_path: str = TOKEN_PATH,
) -> Document:
    """A whole ``prometheus.yml``, for a Prometheus that runs in the cluster."""
    ((label, value),) = _POOL_LABEL.items()
    interval = time_scale(SCRAPE_MINUTES)
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": rule_files,
        "alerting": {"alertmanagers": alertmanagers},
        "scrape_configs": [
            {
                "job_name": ENGINES_JOB,
                "authorization": {"credentials_file": token_path},
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [_POOL_NAMESPACE]}}],
                "relabel_configs": [
                    _keep(_ENGINE_MARK, "true"),
                    _keep(f"{_POD}_label_{_as_label(label)}", value),
                    *_of_port("admin"),
                ],
            },
            {
                "job_name": OPERATOR_JOB,
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [_OPERATOR_NAMESPACE]}}],
                "relabel_configs": [
                    _keep(f"{_POD}_label_app_kubernetes_io_name", "tenantzone-operator"),
                    *_of_port("metrics"),
                ],
            },
            {
                "job_name": MANAGER_JOB,
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [_OPERATOR_NAMESPACE]}}],
                "relabel_configs": [
                    _keep(f"{_POD}_label_app_kubernetes_io_name", "tenantzone-manager"),
                    *_of_port("http"),
                ],
            },
        ],
    }


def without_cluster(config: Document, pods: list[Document]) -> Document:
    """The config for a Prometheus that can't ask a cluster which pods there are.

    Args:
        config: as :func:`scrape_config` makes it.
        pods: what the cluster would say, as static configs: ``targets``, and as ``labels`` what Kubernetes' discovery
            finds out (``pod_labels``). Relabelling chooses among them as it does in a cluster.
    """
    jobs = [
        {name: value for name, value in job.items() if name != "kubernetes_sd_configs"} | {"static_configs": pods}
        for job in config["scrape_configs"]
    ]
    return config | {"scrape_configs": jobs}


def pod_labels(namespace: str, name: str, port: str, labels: dict[str, str], annotations: list[str]) -> dict[str, str]:
    """Returns the labels that Kubernetes' discovery gives one port of a pod, as far as they matter here."""
    return {
        "__meta_kubernetes_namespace": namespace,
        f"{_POD}_name": name,
        f"{_POD}_phase": "Running",
        f"{_POD}_container_port_name": port,
        **{f"{_POD}_label_{_as_label(label)}": value for label, value in labels.items()},
        **{f"{_POD}_annotationpresent_{_as_label(name)}": "true" for name in annotations},
    }


def _as_label(name: str) -> str:
    return name.translate(str.maketrans("./-", "___"))


def _of_port(port: str) -> list[Document]:
    """Keep the target with this port among a pod's targets, and label it as the rules expect."""
    return [
        _keep(f"{_POD}_container_port_name", port),
        _keep(f"{_POD}_phase", "Running"),
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{_POD}_name"], "target_label": "pod"},
        {"source_labels": [f"{_POD}_node_name"], "target_label": "node"},
    ]


def _keep(label: str, value: str) -> Document:
    return {"source_labels": [label], "regex": value, "action": "keep"}


def pod_monitor() -> Document:
    """Scrapes the engines of one pool; it reads credentials only from its own namespace, which is that of the pool."""
    return _monitor(
        "PodMonitor",
        f"tenantzone-{_POOL}",
        {
            "selector": {"matchLabels": _POOL_LABEL},
            "podMetricsEndpoints": [
                {
                    "port": "admin",
                    "interval": REAL_TIME(SCRAPE_MINUTES),
                    "authorization": {"credentials": {"name": admin_secret_name(_POOL), "key": TOKEN_FILE}},
                    "relabelings": [{"sourceLabels": [_ENGINE_MARK], "regex": "true", "action": "keep"}],
                }
            ],
        },
        _POOL_NAMESPACE,
    )


def service_monitor() -> Document:
    """The operator's replicas."""
    return _monitor(
        "ServiceMonitor",
        "tenantzone-operator",
        {
            "namespaceSelector": {"matchNames": [_OPERATOR_NAMESPACE]},
            "selector": {"matchLabels": _OPERATOR_LABEL},
            "endpoints": [{"port": "metrics", "interval": REAL_TIME(SCRAPE_MINUTES)}],
        },
    )


def manager_monitor() -> Document:
    """The KV-cache manager's replicas, through the Service that engines ask."""
    return _monitor(
        "ServiceMonitor",
        "tenantzone-manager",
        {
            "namespaceSelector": {"matchNames": [_OPERATOR_NAMESPACE]},
            "selector": {"matchLabels": {"app.kubernetes.io/name": "tenantzone-manager"}},
            "endpoints": [{"port": "http", "interval": REAL_TIME(SCRAPE_MINUTES)}],
        },
    )


def metrics_service() -> Document:
    """Returns the Service by which a ServiceMonitor finds the operator's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "tenantzone-operator-metrics",
            "namespace": _OPERATOR_NAMESPACE,
            "labels": _OPERATOR_LABEL,
        },
        "spec": {
            "clusterIP": "None",
            "selector": _OPERATOR_LABEL,
            "ports": [{"name": "metrics", "port": 8081, "targetPort": "metrics"}],
        },
    }


def _monitor(kind: str, name: str, spec: Document, namespace: str = _OPERATOR_NAMESPACE) -> Document:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
