#!/bin/sh
# Install the servers of the tests, each unless this version is there: versitygw (S3) with Go, in two
# minutes, and Azurite (Azure's storage) with npm.
set -eu
cd "$(dirname "$0")/.."

versitygw=v1.8.0
azurite=3.37.0

# Usage: install FOLDER VERSION PROGRAM NAME COMMAND..., where the command needs the program.
install() {
    folder=$PWD/.venv/$1 version=$2 program=$3 name=$4
    shift 4
    [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || return 0
    command -v "$program" >/dev/null || {
        echo "without $program there is no $name to test with: these tests are skipped" >&2
        return 0
    }
    echo "installing $name $version for the tests"
    "$@"
    echo "$version" >"$folder/version"
}

# Go 1.25 or newer, with a module cache that `make clean` and others can remove.
install s3-server $versitygw go "S3 server" \
    env GOBIN="$PWD/.venv/s3-server" GOFLAGS="${GOFLAGS:-} -modcacherw -trimpath" \
    go install -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$versitygw"
install azure-server $azurite npm "server of Azure's storage" \
    npm install --silent --no-fund --no-audit --prefix "$PWD/.venv/azure-server" "azurite@$azurite"
