# Two images from one file:
#   docker build --target operator -t tenantzone-operator:0.1.0 .
#   docker build --target engine -t tenantzone-engine:0.1.0 .
# Dependencies come from the lock files, by hash.

ARG PYTHON=python:3.11.14-slim-bookworm

FROM ${PYTHON} AS wheel
WORKDIR /source
COPY requirements/build.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY runtime runtime
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON} AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/tenantzone/bin:$PATH
RUN python -m venv /opt/tenantzone \
    && groupadd --gid 65532 tenantzone \
    && useradd --uid 65532 --gid tenantzone --create-home --shell /usr/sbin/nologin tenantzone

FROM base AS operator
COPY requirements/operator.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
USER 65532:65532
ENTRYPOINT ["tenantzone-operator"]

FROM base AS engine
# vLLM compiles kernels at start and needs a C compiler for it.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/gpu.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
USER 65532:65532
EXPOSE 8000 9464
ENTRYPOINT ["tenantzone-runtime"]
