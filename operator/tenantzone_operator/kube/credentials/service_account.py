"""Reads the credentials of a pod's service account."""

import os
from pathlib import Path

import kopf

_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """No cluster is configured, or the credentials for the cluster can't be used."""


def from_service_account(folder: Path = _FOLDER) -> kopf.ConnectionInfo:
    """Read the cluster and the service account of the pod in which this process runs.

    The kubelet rotates the token, so call this function again when the API server refuses the token.

    Raises:
        CredentialsError: this process does not run in a pod, or the token's file can't be used at the moment.
    """
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        token = checked_token(str(folder / "token"), (folder / "token").read_text())
    except (KeyError, OSError) as error:
        raise CredentialsError(f"not in a pod ({error}); name a cluster with --kubeconfig or KUBECONFIG") from None
    except UnicodeDecodeError:
        raise CredentialsError(f"{folder / 'token'} contains no token") from None
    except ValueError as error:
        raise CredentialsError(str(error)) from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return kopf.ConnectionInfo(server=server, ca_path=str(folder / "ca.crt"), token=token)


def checked_token(where: str, token: str) -> str:
    """Returns a token without the white space around it.

    Raises:
        ValueError: the token is empty, so that requests would be anonymous, or an HTTP header can't contain the token.
    """
    token = token.strip()
    if not token:
        raise ValueError(f"{where} contains no token")
    if not (token.isascii() and token.isprintable()):
        raise ValueError(f"{where} is not a token: it has several lines, or characters that HTTP headers can't contain")
    return token
