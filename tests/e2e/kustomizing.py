"""The shipped manifests with a test cluster's changes, made as a user would: kustomize on top."""

import os
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[2]


def write_kustomization(folder: Path, base: Path, **more: Any) -> Path:
    """Writes a kustomization on top of one of ours.

    Args:
        folder: the folder that it is written to.
        base: the folder of ours.
        more: its other fields.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # kustomize takes no absolute paths.
    base = Path(os.path.relpath(base, folder.resolve()))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(base)],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder
