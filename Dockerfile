# ranksweep in an image, for a CPU:
#   docker build --tag ranksweep .
#   docker run --rm --volume "$PWD/data:/data" ranksweep sweeps
# and for NVIDIA GPUs (torch's wheel brings CUDA itself; the base brings what the driver's toolkit
# looks for):
#   docker build --tag ranksweep:cuda --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 \
#       --build-arg TORCH_INDEX=https://pypi.org/simple .
#   docker run --rm --gpus all --shm-size 2g --volume "$PWD/data:/data" ranksweep:cuda doctor
# Results, models, data sets and the cache are in /data. Checked so far: its syntax, not a build.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# A base with Python has what is needed; torch compiles kernels for GPUs with gcc. Their versions are
# the base's.
# hadolint ignore=DL3008
RUN command -v python3 > /dev/null || { apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv python3-dev gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*; }
RUN python3 -m venv /opt/ranksweep
ENV PATH=/opt/ranksweep/bin:$PATH \
    HF_HOME=/data/huggingface \
    IR_DATASETS_HOME=/data/ir_datasets \
    RANKSWEEP_CACHE=/data/cache

# The large part first: a change of the code does not install torch again.
COPY cluster/constraints.txt /src/cluster/constraints.txt
RUN pip install --no-cache-dir --constraint /src/cluster/constraints.txt \
    --index-url "${TORCH_INDEX}" --extra-index-url https://pypi.org/simple torch
COPY . /src
RUN pip install --no-cache-dir --constraint /src/cluster/constraints.txt "/src[sweep,s3]"

WORKDIR /data
VOLUME /data
ENTRYPOINT ["ranksweep"]
CMD ["--help"]
