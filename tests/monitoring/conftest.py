"""The operator's rights, as in the operator's own tests."""

from tests.operator.conftest import operator_kubeconfig

__all__ = ["operator_kubeconfig"]
