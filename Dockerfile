# The embedded model needs no volume: docker run --rm -p 8080:8080 forebay
FROM rust:1.95-slim-bookworm AS build
# Of cargo: routers are told what the prefix cache holds. For a GPU see docs/gpu.md.
ARG FEATURES=kv-events
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --features "$FEATURES" --bin forebay \
    && mkdir /stripped && cd /stripped \
    && objcopy --only-keep-debug /src/target/dist/forebay forebay.debug \
    && objcopy --strip-debug --add-gnu-debuglink=forebay.debug /src/target/dist/forebay forebay

# The line tables of the image's binary, for backtraces with lines: docker build --target debug --output . .
FROM scratch AS debug
COPY --from=build /stripped/forebay.debug /

FROM debian:bookworm-slim
# Whose certificates https:// upstreams and collectors are checked against.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home forebay \
    && install -d -o forebay -g forebay /var/lib/forebay
COPY --from=build /stripped/forebay /usr/local/bin/forebay
USER 10001
# Files, batches and who changed what (store.url): mount a volume here to keep them.
WORKDIR /var/lib/forebay
VOLUME /var/lib/forebay
# No keys are asked for, and reaching beyond loopback has to be said aloud: publish the port only where you trust who can, or
# set FOREBAY__KEYS__REQUIRED=true.
ENV FOREBAY__SERVER__HOST=0.0.0.0 \
    FOREBAY__SERVER__INSECURE=true
# HTTP; KV events and their replay, where kv_events.endpoint is set.
EXPOSE 8080 5557 5558
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["forebay", "health"]
ENTRYPOINT ["forebay"]
CMD ["serve"]
