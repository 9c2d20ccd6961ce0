# The operator's image: one static binary and nothing else. No shell, no package manager, no
# CA certificates (in a cluster the operator trusts the cluster's own CA, which is mounted).
#
#   docker build --build-arg REVISION="$(git rev-parse --short=12 HEAD)" -t workload-operator .
#   buildah build -t workload-operator .
#
# An image that does not depend on where or when it was built:
#
#   docker buildx build --build-context toolchain=docker-image://docker.io/library/rust@sha256:... \
#     --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#     --output type=image,name=REGISTRY/IMAGE,rewrite-timestamp=true .
#   buildah build --build-context toolchain=docker-image://docker.io/library/rust@sha256:... \
#     --timestamp "$(git log -1 --format=%ct)" -t REGISTRY/IMAGE .
#
# The toolchain needs cargo, a C compiler and the C library's static archive, as the official
# Debian images have. A tag moves; for a release pass a digest. BASE_IMAGE is what the binary is
# put into.
ARG BASE_IMAGE=scratch

# Dependabot does not update an image that an ARG names.
FROM docker.io/library/rust:1.95-slim-bookworm AS toolchain

FROM toolchain AS build
# The time that files get in the image. The binary holds none.
ARG SOURCE_DATE_EPOCH=0
# The commit, for the metric workload_operator_build_info.
ARG REVISION=unknown
# Empty for a builder without platforms.
ARG TARGETARCH
WORKDIR /source
COPY . .
# The dependencies stay compiled for the next build.
RUN --mount=type=cache,target=/source/target,sharing=locked \
    REVISION="$REVISION" hack/build-static.sh "/image/$TARGETARCH/workload-operator" \
 && cp LICENSE "/image/$TARGETARCH/" \
 && find /image -exec touch --date="@$SOURCE_DATE_EPOCH" {} +

# The release workflow begins here: it gives the released binaries as the context `build`.
FROM ${BASE_IMAGE}
ARG TARGETARCH
ARG VERSION=unreleased
ARG REVISION=unknown
ARG REPOSITORY=https://example.com/workload-operator
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="workload-operator" \
      org.opencontainers.image.description="Runs Memcached, GenericDaemon and App workloads from custom resources" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$REPOSITORY" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/$TARGETARCH/ /
# A number: Kubernetes can tell that it is not root (runAsNonRoot) without a passwd file.
USER 65532:65532
ENTRYPOINT ["/workload-operator"]
