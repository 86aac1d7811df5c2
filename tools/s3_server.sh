#!/bin/sh
# Build the S3 server of the tests (versitygw) with Go, unless this version is there: two minutes.
set -eu
cd "$(dirname "$0")/.."

version=v1.8.0
folder=$PWD/.venv/s3-server

[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
command -v go >/dev/null || {
    echo "without Go 1.25 or newer there is no S3 server to test with: these tests are skipped" >&2
    exit 0
}
echo "building the S3 server of the tests, versitygw $version"
# A module cache that `make clean` and others can remove.
GOBIN=$folder GOFLAGS="${GOFLAGS:-} -modcacherw -trimpath" \
    go install -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$version"
echo "$version" >"$folder/version"
