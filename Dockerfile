# docker build -t reglet .                                                    CPU
# docker build -t reglet --build-arg TORCH=cu126 .                             CUDA 12.6: run with --gpus all
# docker run --rm -v "$PWD/photos:/data/photos:ro" -v "$PWD/runs:/home/reglet/runs" reglet pretrain data=/data/photos out=runs/a
#
# There is no Docker where reglet is developed: this file was read, not built.
FROM python:3.11-slim
ARG TORCH=cpu
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /opt/reglet
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# torch comes first, from PyTorch's own index, so that the next line finds it and brings no other build.
RUN pip install -c constraints.txt torch --index-url https://download.pytorch.org/whl/${TORCH} \
 && pip install -c constraints.txt ".[train,timm]"
RUN useradd --create-home --uid 1000 reglet
USER reglet
WORKDIR /home/reglet
ENTRYPOINT ["reglet"]
CMD ["--help"]
