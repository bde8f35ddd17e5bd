# Four images from one file; their bases are arguments, so that they can come from a mirror and be pinned by digest:
#   docker build --target operator   --tag tenantzone-operator:0.2.0 .
#   docker build --target manager    --tag tenantzone-manager:0.2.0 .
#   docker build --target engine     --tag tenantzone-engine:0.2.0 .        for GPUs, on vLLM's own image
#   docker build --target engine-cpu --tag tenantzone-engine-cpu:0.2.0 .
# Dependencies come from the lock files, by hash. With the same bases and the same SOURCE_DATE_EPOCH, the same files come out.

ARG PYTHON=python:3.11.14-slim-bookworm
ARG VLLM=vllm/vllm-openai:v0.32.0

FROM ${PYTHON} AS build
ARG SOURCE_DATE_EPOCH=315532800
# pip's own settings, for builds without a package index: PIP_NO_INDEX=1, and a mounted folder of wheels.
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_REQUIRE_VIRTUALENV=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /source
COPY requirements/build.txt requirements/build.txt
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY runtime runtime
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# The operator, with nothing but Python and the libraries that it loads: no shell, no package manager.
FROM build AS operator-root
ARG SOURCE_DATE_EPOCH=315532800
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements/operator.txt requirements/operator.txt
RUN python3 -m venv --without-pip /opt/tenantzone \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --no-compile \
        --require-hashes --requirement requirements/operator.txt \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --no-compile --no-deps /wheels/*.whl
COPY hack/images/root.py root.py
RUN python3 root.py --environment /opt/tenantzone --root /image \
    && mkdir -p /image/usr/share/sbom \
    && /opt/build/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
        --output-file /image/usr/share/sbom/tenantzone-operator.cdx.json /opt/tenantzone/bin/python

FROM scratch AS operator
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="TenantZone operator" \
      org.opencontainers.image.description="Guaranteed KV-cache blocks per tenant for vLLM on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=operator-root /image /
ENV PATH=/opt/tenantzone/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["tenantzone-operator"]

# The KV-cache manager, in the same way. An image of its own: the operator needs no clients of S3 and Redis, and may do more.
FROM build AS manager-root
ARG SOURCE_DATE_EPOCH=315532800
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements/manager.txt requirements/manager.txt
RUN python3 -m venv --without-pip /opt/tenantzone \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --no-compile \
        --require-hashes --requirement requirements/manager.txt \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --no-compile --no-deps /wheels/*.whl
COPY hack/images/root.py root.py
RUN python3 root.py --environment /opt/tenantzone --root /image \
    && mkdir -p /image/usr/share/sbom \
    && /opt/build/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
        --output-file /image/usr/share/sbom/tenantzone-manager.cdx.json /opt/tenantzone/bin/python

FROM scratch AS manager
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="TenantZone KV-cache manager" \
      org.opencontainers.image.description="Which KV-cache blocks lie in which storage, for many engines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=manager-root /image /
ENV PATH=/opt/tenantzone/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9470 9471
ENTRYPOINT ["tenantzone-manager"]

# vLLM with zones, for GPUs: upstream's image and our wheel, whose dependencies it has but for one.
FROM ${VLLM} AS engine-root
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements/engine.txt /wheels/engine.txt
COPY --from=build /wheels /wheels
RUN python3 -m pip install --no-cache-dir --no-deps --break-system-packages \
        --require-hashes --requirement /wheels/engine.txt \
    && python3 -m pip install --no-cache-dir --no-index --no-deps --break-system-packages /wheels/*.whl \
    && python3 -m pip list --format=freeze > /packages.txt \
    && mkdir --mode=0777 /cache

FROM build AS engine-contents
COPY --from=engine-root /packages.txt packages.txt
RUN /opt/build/bin/cyclonedx-py requirements --output-reproducible --output-format JSON \
        --output-file /tenantzone-engine.cdx.json packages.txt

FROM engine-root AS engine
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="TenantZone engine" \
      org.opencontainers.image.description="vLLM with guaranteed KV-cache blocks per tenant" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=engine-contents /tenantzone-engine.cdx.json /usr/share/sbom/
# Models, compiled kernels and whatever else libraries keep for themselves; mount a volume there to keep it, too.
ENV HOME=/cache \
    HF_HOME=/cache/huggingface \
    VLLM_CACHE_ROOT=/cache/vllm
USER 65532:65532
EXPOSE 8000 9464
ENTRYPOINT ["tenantzone-runtime"]

# The same on a CPU, for trying it out. It weighs gigabytes, nearly all of it PyTorch.
FROM build AS engine-cpu-environment
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements/cpu.txt requirements/cpu.txt
RUN python3 -m venv --without-pip /opt/tenantzone \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --require-hashes --no-deps \
        --requirement requirements/cpu.txt \
    && /opt/build/bin/pip --python /opt/tenantzone/bin/python install --no-deps /wheels/*.whl \
    && /opt/build/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
        --output-file /tenantzone-engine-cpu.cdx.json /opt/tenantzone/bin/python

FROM ${PYTHON} AS engine-cpu
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="TenantZone engine for CPUs" \
      org.opencontainers.image.description="vLLM with guaranteed KV-cache blocks per tenant" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# vLLM compiles kernels when it starts. hadolint would have the compiler's version pinned: the base's release decides it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libgomp1 libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir --mode=0777 /cache
COPY --from=engine-cpu-environment /opt/tenantzone /opt/tenantzone
COPY --from=engine-cpu-environment /tenantzone-engine-cpu.cdx.json /usr/share/sbom/
ENV PATH=/opt/tenantzone/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/cache \
    HF_HOME=/cache/huggingface \
    VLLM_CACHE_ROOT=/cache/vllm
USER 65532:65532
EXPOSE 8000 9464
ENTRYPOINT ["tenantzone-runtime"]
