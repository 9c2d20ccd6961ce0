# The operator's image: one static binary and nothing else. No shell, no package manager, no
# CA certificates (in a cluster the operator trusts the cluster's own CA, which is mounted).
#
#   docker build --build-arg REVISION="$(git rev-parse --short=12 HEAD)" -t workload-operator .
#   buildah build -t workload-operator .
#
# An image in which nothing tells where or when it was built:
#
#   docker buildx build --build-arg RUST_IMAGE=docker.io/library/rust@sha256:... \
#     --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#     --output type=image,name=REGISTRY/IMAGE,rewrite-timestamp=true .
#   buildah build --build-arg RUST_IMAGE=docker.io/library/rust@sha256:... \
#     --timestamp "$(git log -1 --format=%ct)" -t REGISTRY/IMAGE .
#
# RUST_IMAGE needs cargo, a C compiler and the C library's static archive, as the official
# Debian images have. A tag moves; for a release pass a digest. BASE_IMAGE is what the binary is
# put into. FEATURES are cargo features: `otel` sends spans to a collector (docs/OPERATING.md).
ARG RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm
ARG BASE_IMAGE=scratch

FROM ${RUST_IMAGE} AS build
# The time that files get in the image. The binary holds none.
ARG SOURCE_DATE_EPOCH=0
ARG FEATURES=
# The commit, for the metric workload_operator_build_info.
ARG REVISION=unknown
WORKDIR /source
COPY . .
RUN FEATURES="$FEATURES" REVISION="$REVISION" hack/build-static.sh /image/workload-operator \
 && touch --date="@$SOURCE_DATE_EPOCH" /image/workload-operator

FROM ${BASE_IMAGE}
COPY --from=build /image/workload-operator /workload-operator
# A number: Kubernetes can tell that it is not root (runAsNonRoot) without a passwd file.
USER 65532:65532
ENTRYPOINT ["/workload-operator"]
