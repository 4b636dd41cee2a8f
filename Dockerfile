# The `fanin` program alone: a static program in an empty image.
#
#   docker build --tag fanin .
#   docker run --rm fanin sim --example quickstart
#   docker run --rm --network host fanin switch --listen 0.0.0.0:7700 --open --http 127.0.0.1:9470
FROM rust:1.95.0-alpine AS build
RUN apk add --no-cache musl-dev gcc
WORKDIR /fanin
COPY . .
# The image has the pinned toolchain, without the components that rust-toolchain.toml asks for besides.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN cargo build --locked --profile dist --package fanin --bin fanin && strip target/dist/fanin

RUN mkdir /empty

FROM scratch
COPY --from=build /fanin/target/dist/fanin /bin/fanin
COPY LICENSE /LICENSE
# Examples with files beside them are laid there.
COPY --from=build --chown=65532:65532 /empty /tmp
WORKDIR /tmp
# Nobody: only `testbed`, `--xdp` and `--transparent` need more, and say so (docs/security.md, "Least privilege").
USER 65532:65532
ENTRYPOINT ["/bin/fanin"]
CMD ["--help"]
