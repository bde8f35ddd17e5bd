"""The operator's rights, as the operator's own tests have them."""

from tests.operator.conftest import operator_kubeconfig

__all__ = ["operator_kubeconfig"]
