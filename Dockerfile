# The embedded model needs no volume: docker run --rm -p 8080:8080 forebay
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin forebay

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home forebay \
    && install -d -o forebay -g forebay /var/lib/forebay
COPY --from=build /src/target/release/forebay /usr/local/bin/forebay
USER 10001
# Files, batches and who changed what (store.url): mount a volume here to keep them.
WORKDIR /var/lib/forebay
VOLUME /var/lib/forebay
# No keys are asked for, and reaching beyond loopback has to be said aloud: publish the port only where you trust who can, or
# set FOREBAY__KEYS__REQUIRED=true.
ENV FOREBAY__SERVER__HOST=0.0.0.0 \
    FOREBAY__SERVER__INSECURE=true
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["forebay", "health"]
ENTRYPOINT ["forebay"]
CMD ["serve"]
