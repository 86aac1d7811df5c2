#!/bin/sh
# Write src/medallion/cli/page/echarts.min.js and its licences; needs npm and its registry.
# For a newer release, change the version in package.json first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
page=$here/../../src/medallion/cli/page
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/bundle.js" "$work"
cd "$work"
npm install --silent --no-audit --no-fund
node node_modules/esbuild/install.js
version=$(node -p 'require("echarts/package.json").version')
node_modules/.bin/esbuild bundle.js --bundle --minify --format=iife --global-name=echarts \
    --target=es2020 --charset=utf8 --legal-comments=inline --outfile="$page/echarts.min.js" --log-level=warning \
    --banner:js="/*! Apache ECharts $version, Apache-2.0, with zrender and d3, BSD-3-Clause: see echarts.licenses.txt */"
{
    cat node_modules/echarts/NOTICE
    printf '\n\nApache ECharts %s is under the Apache License 2.0, as medallion is. It has parts of:\n' "$version"
    printf '\nzrender:\n\n'
    cat node_modules/zrender/LICENSE
    printf '\nd3:\n\n'
    cat node_modules/echarts/licenses/LICENSE-d3
} > "$page/echarts.licenses.txt"
wc -c "$page/echarts.min.js"
