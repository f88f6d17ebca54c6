# wattslice for GPU machines. The torch wheels bring their own CUDA libraries, so that the image needs
# no CUDA base: the driver comes from the host (NVIDIA Container Toolkit, --gpus).
#
#   docker build -t wattslice:0.1.0 .
#   docker run --rm --gpus all --cap-add SYS_ADMIN -v "$PWD/results:/work/results" wattslice:0.1.0
#
# SYS_ADMIN is for `mig: managed` alone. envs/wattslice.def is the same image for Apptainer.
FROM python:3.11-slim-bookworm

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="wattslice" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="MIT"

# make and a C compiler are for the simulated board and torch.compile, git for the commit in records.
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*

COPY envs/requirements.txt /opt/wattslice/envs/requirements.txt
RUN pip install --no-cache-dir -r /opt/wattslice/envs/requirements.txt

COPY . /opt/wattslice
RUN pip install --no-cache-dir --no-deps -e /opt/wattslice \
    && git config --system --add safe.directory /opt/wattslice

# Goes into every record, so that a run says in which image it was made.
ENV WATTSLICE_IMAGE="wattslice:${VERSION}" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility"

# Results are made in the folder that is mounted; the Snakefile stays in the image.
WORKDIR /work
ENTRYPOINT ["snakemake", "--snakefile", "/opt/wattslice/Snakefile", "--cores", "all"]
