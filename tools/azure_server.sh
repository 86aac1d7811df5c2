#!/bin/sh
# Install the server of Azure's storage for the tests (Azurite) with npm, unless this version is there.
set -eu
cd "$(dirname "$0")/.."

version=3.37.0
folder=$PWD/.venv/azure-server

[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
command -v npm >/dev/null || {
    echo "without npm there is no server of Azure's storage to test with: these tests are skipped" >&2
    exit 0
}
echo "installing the server of Azure's storage for the tests, Azurite $version"
npm install --silent --no-fund --no-audit --prefix "$folder" "azurite@$version"
echo "$version" >"$folder/version"
