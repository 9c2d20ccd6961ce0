# The operator's image: one static binary and nothing else. No shell, no package manager, no
# CA certificates (in a cluster the operator trusts the cluster's own CA, which is mounted).
#
#   docker build -t workload-operator .
#   buildah build -t workload-operator .
#
# RUST_IMAGE needs cargo, a C compiler and the C library's static archive, as the official
# Debian images have. BASE_IMAGE is what the binary is put into.
ARG RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm
ARG BASE_IMAGE=scratch

FROM ${RUST_IMAGE} AS build
WORKDIR /source
COPY . .
# Naming the target keeps crt-static away from proc macros and build scripts, which cannot be
# static. A binary that still asks for a loader would not start in an empty image, hence the check.
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --locked --release --bin workload-operator --target "$target" \
 && mkdir /image \
 && cp "target/$target/release/workload-operator" /image/workload-operator \
 && if readelf --program-headers /image/workload-operator | grep -q INTERP; then \
      echo "workload-operator is not static: RUST_IMAGE has no static C library" >&2; exit 1; fi

FROM ${BASE_IMAGE}
COPY --from=build /image/workload-operator /workload-operator
# A number: Kubernetes can tell that it is not root (runAsNonRoot) without a passwd file.
USER 65532:65532
ENTRYPOINT ["/workload-operator"]
