"""Client libraries for Kubernetes and the operator's own requests: which credentials they take, and what they cost.

Each runs in a process of its own, through the same cases, against small API servers that this process is. A library
that is not installed is said so, and passed over. None of them belongs into the environment of the project: they take
one of their own, which the processes are started with:

    python3 -m venv scratch
    scratch/bin/pip install kubernetes kubernetes_asyncio lightkube kr8s kopf aiohttp prometheus-client pyyaml pydantic
    .venv/bin/python -m bench.kubernetes_clients --python scratch/bin/python
"""
