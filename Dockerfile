# The server's image: `docker build .`. With `--target full` it also has Spark and Java, for the pipeline and for a
# server that shows the pipeline's lake. Versions are those of the lock files.

FROM node:22-bookworm-slim AS web
WORKDIR /build/web
COPY web/package.json web/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY web/ ./
COPY src/tidewire/console /build/src/tidewire/console
RUN npm run build

FROM python:3.11-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY proto proto
COPY src src
COPY --from=web /build/src/tidewire/console/static src/tidewire/console/static
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.11-slim-bookworm AS runtime
RUN python -m venv /opt/tidewire \
    && useradd --system --uid 10001 --create-home --home-dir /data tidewire \
    && install --directory --owner=tidewire /lake
ENV PATH=/opt/tidewire/bin:$PATH \
    TIDEWIRE_DATA=/data/server \
    TIDEWIRE_HTTP=0.0.0.0:8080 \
    TIDEWIRE_HTTPS=0.0.0.0:8443 \
    TIDEWIRE_GRPC=0.0.0.0:7011 \
    TIDEWIRE_GRPC_TLS=0.0.0.0:7443
WORKDIR /data
EXPOSE 8080 8443 7011 7443
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidewire"]
CMD ["serve"]

FROM runtime AS full
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/postgres.txt requirements/spark.txt /tmp/requirements/
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements/postgres.txt -r /tmp/requirements/spark.txt
COPY --from=wheel /dist /tmp/dist
RUN pip install --no-cache-dir --no-deps /tmp/dist/*.whl
USER tidewire
VOLUME ["/data", "/lake"]

FROM runtime AS server
COPY requirements/postgres.txt /tmp/requirements/
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements/postgres.txt
COPY --from=wheel /dist /tmp/dist
RUN pip install --no-cache-dir --no-deps /tmp/dist/*.whl
USER tidewire
VOLUME /data
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=5 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
