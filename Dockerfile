# One image for every service: driver and executors have the same Python and the same packages.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends make openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home medallion \
    && install --directory --owner=medallion /opt/medallion /lakehouse

WORKDIR /opt/medallion
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1

# All that set-up depends on.
COPY Makefile pyproject.toml constraints.txt LICENSE README.md ./
COPY tools tools
COPY src src
# With the jars for Kafka and S3, which nobody can fetch in a container: its environment is root's.
RUN make setup-kafka setup-s3

COPY . .

# Executors run the Python that the driver names: it lies in the same place in every container.
ENV PATH=/opt/medallion/.venv/bin:$PATH \
    PYSPARK_PYTHON=/opt/medallion/.venv/bin/python \
    MEDALLION_CONF=/opt/medallion/conf \
    MEDALLION_HOME=/lakehouse

USER medallion
CMD ["medallion", "--help"]
