#!/usr/bin/env bash
# The chart and the images of an earlier commit, for tests of an upgrade: build-previous.sh COMMIT DIR [FLAG...]
# Images are named heddle-previous/heddle and heddle-previous/heddle-worker; flags are those of build.sh.
set -euo pipefail
(($# >= 2)) || { echo "build-previous.sh COMMIT DIR [--from-debian]" >&2; exit 2; }
commit=$1 dir=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
checkout=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$checkout"' EXIT
git -C "$root" worktree add --quiet --detach "$checkout" "$commit"
cd "$checkout"
npm ci --no-audit --no-fund --prefer-offline
PATH=$checkout/node_modules/.bin:$PATH HEDDLE_IMAGES=heddle-previous \
  deploy/images/build.sh "$@" --out "$dir/images" control worker
rm -rf "$dir/chart"
cp -r helm/heddle "$dir/chart"
