# The image of one member. `docker build -t holdfast .`; how it is run is in docs/deploying.md.
# tests/ops/test_image.py carries out these very steps without Docker.
FROM python:3.13-slim AS build

# For the compiled data lane; without a compiler plain Python does the same, several times slower.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml build_lane.py README.md LICENSE requirements.lock requirements-build.lock ./
COPY src ./src

# The versions that the tests ran with, of what the image needs and of nothing else.
RUN sed -nE 's/^((click|dnspython|h11|markdown-it-py|mdurl|mmh3|msgspec|prometheus-client|pyarrow|pygments|rich|uvloop)==[^ ;\\]*).*/\1/p' requirements.lock > constraints.txt
RUN python -m venv /opt/build && /opt/build/bin/pip install --quiet --require-hashes -r requirements-build.lock
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation -w /wheels .
RUN python -m venv /opt/holdfast && /opt/holdfast/bin/pip install --quiet -c constraints.txt "$(ls /wheels/holdfast_grid-*.whl)[arrow,dns]"
RUN /opt/holdfast/bin/python -m compileall -q /opt/holdfast/lib

FROM python:3.13-slim

# Nobody else's user: what it may write is its own directory.
RUN groupadd --gid 10001 holdfast && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
RUN mkdir -p /var/lib/holdfast /etc/holdfast && chown 10001:10001 /var/lib/holdfast

COPY --from=build /opt/holdfast /opt/holdfast
COPY ops/container/healthcheck.py /opt/holdfast/healthcheck.py
COPY ops/container/run.py /opt/holdfast/run.py

ENV PATH=/opt/holdfast/bin:$PATH PYTHONUTF8=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/holdfast
VOLUME /var/lib/holdfast
EXPOSE 5701 5751 5801
# The member drains: give it as long as partitions.drain_timeout_s says (docker stop --timeout).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/opt/holdfast/bin/python", "/opt/holdfast/healthcheck.py"]
# After a wrong setting (exit status 2) the container stays, and is not started again and again.
ENTRYPOINT ["/opt/holdfast/bin/python", "/opt/holdfast/run.py"]
CMD ["start"]
