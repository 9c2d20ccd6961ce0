# shellcheck shell=bash
# Installs Debian packages for their programs alone: no service of theirs starts, now or at the next boot.

# install_packages PACKAGE...: as root. Fails as apt-get does, with its output. In a subshell, whose end, also by
# a signal, removes the policy.
install_packages() (
  local network=(-o Acquire::Retries=1 -o Acquire::http::Timeout=30) policy=/usr/sbin/policy-rc.d lock status=0 package
  exec {lock}<"${policy%/*}" && flock "$lock" # a second run waits, or the first would remove its policy
  # Maintainer scripts ask it before they start a service; 101 forbids that.
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  # Another engine's containerd or runc does as well, so nothing is removed.
  DEBIAN_FRONTEND=noninteractive apt-get "${network[@]}" update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get "${network[@]}" install -qq -y --no-install-recommends --no-remove "$@" ||
    status=$?
  if [[ -d /run/systemd/system ]]; then
    for package in "$@"; do
      dpkg -L "$package" 2>/dev/null | sed -n 's#.*/systemd/system/\([^/]*\.service\)$#\1#p' |
        xargs -r systemctl --quiet disable || true
    done
  fi
  return "$status"
)
