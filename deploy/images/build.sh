#!/usr/bin/env bash
# Builds the images without a daemon, by buildah: build.sh [--from-debian] [--out DIR] TARGET...
set -euo pipefail

usage() {
  cat <<'TEXT'
build.sh [--from-debian] [--out DIR] TARGET...
  TARGET          control, worker or worker-cuda
  --from-debian   where no registry can be reached: the base images are made of Debian's packages by
                  mmdebstrap, with the Node of this checkout
  --out DIR       also write DIR/TARGET.tar, an archive for `ctr images import` or `docker load`
Images are named $HEDDLE_IMAGES/heddle and $HEDDLE_IMAGES/heddle-worker (default: heddle), with the version as tag.
TEXT
  exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
images=${HEDDLE_IMAGES:-heddle}
from_debian=no
out=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --from-debian) from_debian=yes ;;
    --out) out=$2; shift ;;
    *) usage ;;
  esac
  shift
done
(($# > 0)) || usage
for target; do [[ $target =~ ^(control|worker|worker-cuda)$ ]] || usage; done
command -v buildah >/dev/null || { echo "buildah is missing: apt-get install buildah" >&2; exit 1; }

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
(cd "$root" && npm pack --silent --pack-destination "$context" >/dev/null)
version=$(node -p "require('$root/package.json').version")
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
arguments=(--isolation chroot --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --timestamp 0)

# A Debian root and Node: what the official images have, as far as the Dockerfile needs it.
base_from_debian() {
  local container mount suite=bookworm
  if ! buildah inspect --type image localhost/heddle-base:node >/dev/null 2>&1; then
    command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }
    # Without usr-is-merged a package is chosen that needs all of Perl.
    mmdebstrap --variant=essential --include=libstdc++6,ca-certificates,usr-is-merged \
      --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      "$suite" "$context/root.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$context/root.tar" / >/dev/null
    buildah commit --quiet --rm "$container" localhost/heddle-base:debian >/dev/null
    container=$(buildah from --pull-never localhost/heddle-base:debian)
    mount=$(buildah mount "$container")
    cp -L "$root/node_modules/.bin/node" "$mount/usr/local/bin/node"
    mkdir -p "$mount/usr/local/lib/node_modules"
    cp -r "$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")" "$mount/usr/local/lib/node_modules/npm"
    ln -s ../lib/node_modules/npm/bin/npm-cli.js "$mount/usr/local/bin/npm"
    # The authorities that this machine trusts, for its way to a registry; only the first stages have them.
    cp /etc/ssl/certs/ca-certificates.crt "$mount/etc/ssl/certs/ca-certificates.crt"
    buildah config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$container"
    buildah umount "$container" >/dev/null
    buildah commit --quiet --rm "$container" localhost/heddle-base:node >/dev/null
  fi
  arguments+=(--pull-never --build-arg NODE_IMAGE=localhost/heddle-base:node
    --build-arg RUNTIME_IMAGE=localhost/heddle-base:debian --network host)
}

[[ $from_debian == no ]] || base_from_debian
for target; do
  name=heddle
  [[ $target == control ]] || name=heddle-$target
  image=$images/$name:$version
  buildah bud --quiet "${arguments[@]}" --target "$target" --file "$root/deploy/images/Dockerfile" \
    --tag "$image" "$context" >/dev/null
  echo "$image"
  if [[ $out ]]; then
    mkdir -p "$out"
    rm -f "$out/$target.tar"
    buildah push --quiet "$image" "docker-archive:$out/$target.tar:$image"
  fi
done
