"""Names and constants that several modules of the plugin use."""

from tenantzone_contract.kube_names import OPERATOR

CONNECTION = ("kubeconfig", "context", "cluster", "user", "as", "as-group")
"""Names of the flags that the plugin passes on to kubectl."""

SORTS = ("name", "held", "in-use", "cached", "lent", "borrowed", "hit", "recomputed", "evictions", "rate")
"""The values of ``--sort-by`` of ``top``."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""

OPERATOR_SELECTOR = f"app.kubernetes.io/name={OPERATOR}"
"""Label selector of the operator's pods."""
