# A build image where no registry can be reached: this machine's own compiler, C library and Rust
# toolchain, which hack/e2e/images.sh mounts into it. It holds nothing but the way to them.
FROM scratch
COPY . /
ENV PATH=/cargo/bin:/usr/bin:/usr/sbin RUSTUP_HOME=/rustup CARGO_HOME=/cargo CARGO_NET_OFFLINE=true
