#!/usr/bin/env bash
# Builds the images without a daemon, by buildah: build.sh [FLAG...] TARGET...
set -euo pipefail

usage() {
  cat <<'TEXT'
build.sh [--from-debian] [--arch ARCH] [--out DIR] TARGET...
  TARGET          control, worker or worker-cuda
  --from-debian   where no registry can be reached: the base images are made of Debian's packages by
                  mmdebstrap, with the Node of this checkout
  --arch ARCH     amd64 or arm64 (default: this machine's)
  --out DIR       also write DIR/TARGET.tar, an archive for `ctr images import` or `docker load`, and
                  DIR/TARGET.cdx.json, what the image consists of (CycloneDX); for another architecture
                  TARGET-ARCH
Images are named $HEDDLE_IMAGES/heddle and $HEDDLE_IMAGES/heddle-worker (default: heddle), with the version as tag, and
"-ARCH" after it for another architecture than this machine's.
TEXT
  exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export PATH=$root/node_modules/.bin:$PATH
images=${HEDDLE_IMAGES:-heddle}
own=$(dpkg --print-architecture 2>/dev/null || uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
arch=$own
from_debian=no
out=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --from-debian) from_debian=yes ;;
    --arch) arch=$2; shift ;;
    --out) out=$2; shift ;;
    *) usage ;;
  esac
  shift
done
(($# > 0)) || usage
[[ $arch =~ ^(amd64|arm64)$ ]] || usage
for target; do [[ $target =~ ^(control|worker|worker-cuda)$ ]] || usage; done
command -v buildah >/dev/null || { echo "buildah is missing: apt-get install buildah" >&2; exit 1; }

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
(cd "$root" && npm pack --silent --pack-destination "$context" >/dev/null)
version=$(node -p "require('$root/package.json').version")
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
arguments=(--isolation chroot --platform "linux/$arch" --build-arg "BUILDPLATFORM=linux/$own"
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --timestamp 0)

# The base NAME, of what the function MAKE adds to the container whose root is its argument.
base() {
  local name=localhost/heddle-base:$1 from=$2 arch=$3 make=$4 container mount
  if buildah inspect --type image "$name" >/dev/null 2>&1; then return; fi
  container=$(buildah from --pull-never "$from")
  mount=$(buildah mount "$container")
  "$make" "$mount" "$arch"
  buildah config --arch "$arch" --os linux "$container"
  [[ $arch != arm64 ]] || buildah config --variant v8 "$container"
  buildah umount "$container" >/dev/null
  buildah commit --quiet --rm --timestamp 0 "$container" "$name" >/dev/null
}

# What the official image of Debian has, as far as the Dockerfile needs it.
debian_root() {
  local options
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }
  options=(--variant=essential)
  [[ $2 == "$own" ]] || options=(--variant=extract --include='?essential' --extract-hook="$unpacked")
  # Without usr-is-merged a package is chosen that needs all of Perl.
  SOURCE_DATE_EPOCH=0 mmdebstrap "${options[@]}" --architectures="$2" \
    --include=libstdc++6,ca-certificates,usr-is-merged \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$context/root.tar"
  tar -xf "$context/root.tar" -C "$1"
  rm "$context/root.tar"
  [[ $2 == "$own" ]] || configured_files "$1"
}

# No script of another architecture's packages can run here: they are unpacked, and this makes dpkg's list of them.
# mmdebstrap gives the root as $1.
# shellcheck disable=SC2016
unpacked='set -e
for package in "$1"/var/cache/apt/archives/*.deb; do
  dpkg-deb --field "$package"
  printf "Status: install ok installed\n\n"
done >"$1/var/lib/dpkg/status"'

# What the packages' scripts would have written is in the root of this machine's architecture.
configured_files() {
  local container mount
  container=$(buildah from --pull-never "localhost/heddle-base:debian-$own")
  mount=$(buildah mount "$container")
  (
    cd "$mount"
    { find etc ! -name ld.so.cache; find usr -lname '/etc/alternatives/*'; } | tar -cf - --no-recursion --files-from=-
  ) | tar -xf - -C "$1" --skip-old-files
  buildah umount "$container" >/dev/null
  buildah rm "$container" >/dev/null
}

# The Node of this checkout, or its package for another architecture.
node_program() {
  local package=node-linux-${2/amd64/x64} folder version
  folder=$root/node_modules/$package
  if [[ ! -x $folder/bin/node ]]; then
    version=$(node -p "require('$root/package.json').optionalDependencies['$package']")
    folder=$(mktemp -d -p "$context")
    tar -xzf "$context/$(cd "$context" && npm pack --silent "$package@$version")" --strip-components=1 -C "$folder"
  fi
  mkdir -p "$1/usr/local/bin"
  cp "$folder/bin/node" "$1/usr/local/bin/node"
}

# Node and npm for the first stages, with the authorities that this machine trusts on its way to a registry.
builder() {
  node_program "$1" "$2"
  mkdir -p "$1/usr/local/lib/node_modules"
  cp -r "$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")" "$1/usr/local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"
  cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
  mkdir -p "$1/usr/local/etc"
  echo cafile=/etc/ssl/certs/ca-certificates.crt >"$1/usr/local/etc/npmrc"
}

bases_from_debian() {
  local base=localhost/heddle-base
  base "debian-$own" scratch "$own" debian_root
  base "debian-$arch" scratch "$arch" debian_root
  base "build-$own" "$base:debian-$own" "$own" builder
  base "node-$arch" scratch "$arch" node_program
  arguments+=(--pull-never --build-arg "BUILD_IMAGE=$base:build-$own" --build-arg "NODE_IMAGE=$base:node-$arch"
    --build-arg "RUNTIME_IMAGE=$base:debian-$arch" --network host)
}

# What is in an image: its packages of Debian and npm, and the program that it runs.
bill() {
  local container mount
  container=$(buildah from --pull-never "$1")
  mount=$(buildah mount "$container")
  node "$root/tools/release/image-bill.ts" --root "$mount" --image "$1" --arch "$arch"
  buildah umount "$container" >/dev/null
  buildah rm "$container" >/dev/null
}

[[ $from_debian == no ]] || bases_from_debian
for target; do
  name=heddle
  [[ $target == control ]] || name=heddle-$target
  image=$images/$name:$version
  [[ $arch == "$own" ]] || image+=-$arch
  buildah bud --quiet "${arguments[@]}" --target "$target" --file "$root/deploy/images/Dockerfile" \
    --tag "$image" "$context" >/dev/null
  echo "$image"
  if [[ $out ]]; then
    file=$out/$target
    [[ $arch == "$own" ]] || file+=-$arch
    mkdir -p "$out"
    rm -f "$file.tar"
    buildah push --quiet "$image" "docker-archive:$file.tar:$image"
    bill "$image" >"$file.cdx.json"
  fi
done
