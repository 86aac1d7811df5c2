#!/bin/sh
# Create .venv: the packages, and what `medallion setup` fetches for Spark.
# A second call installs what is missing.
#   PYTHON   the Python to build with (default: python3); another version than .venv's replaces it
set -eu
cd "$(dirname "$0")/.."
. tools/java.sh

venv=.venv
stamp=$venv/.medallion-ready
installing=$venv/.medallion-installing
log=$venv/setup.log
started=$(date +%s)

say() {
    printf '[%3d s] %s\n' $(($(date +%s) - started)) "$*"
}

fail() {
    echo "set-up failed: $*" >&2
    exit 1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# The inputs of set-up. An environment cannot be moved, so the folder is one of them.
fingerprint() {
    {
        pwd
        cat pyproject.toml constraints.txt tools/setup.sh tools/jars.py tools/venv/* src/medallion/install/*.*
    } | cksum
}

# An environment in which pip was interrupted is created again.
environment_is_sound() {
    [ -x "$venv/bin/python" ] && [ ! -e "$installing" ] &&
        [ "$(cat "$venv/.medallion-folder" 2>/dev/null)" = "$PWD" ] &&
        { [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]; }
}

create_environment() {
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null ||
        fail "there is no '$python'; install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "medallion needs Python 3.11 or newer, but '$python' is $(version_of "$python"); name another: make setup PYTHON=python3.12"
    say "1/4 Python $(version_of "$python"): creating $venv"
    rm -rf "$venv"
    if ! problem=$("$python" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        echo "$problem" >&2
        fail "'$python' cannot create a virtual environment; install its venv module (Debian, Ubuntu: apt install python3-venv)"
    fi
    echo "$PWD" >"$venv/.medallion-folder"
}

install_packages() {
    # The constraints apply to build dependencies too: the first name is for pip before 25.3.
    PIP_CONSTRAINT=$PWD/constraints.txt
    PIP_BUILD_CONSTRAINT=$PWD/constraints.txt
    export PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
    # Without compression: half of the time to build PySpark's wheel went into packing jars.
    DIST_EXTRA_CONFIG=${DIST_EXTRA_CONFIG:-$PWD/tools/venv/wheels.cfg}
    export DIST_EXTRA_CONFIG
    touch "$installing"
    "$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-compile \
        -c constraints.txt -e ".[dev]" >"$log" 2>&1 || {
        cat "$log" >&2
        fail "pip could not install the packages (its output is above); check the network and pip's settings, then run it again"
    }
    # pip compiles on one core. Files that are not valid for this Python are skipped, as by pip.
    "$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" >"$log" 2>&1 || true
    rm "$installing"
}

prepare_launchers() {
    spark_home=$("$venv/bin/python" -c 'import pyspark; print(pyspark.__path__[0])')
    mkdir -p "$spark_home/conf"
    cp tools/venv/spark-env.sh "$spark_home/conf/"
    cp tools/venv/find-spark-home "$venv/bin/"
    rm -rf "$venv/java"
    if [ -n "${JAVA_HOME:-}" ]; then
        ln -s "$JAVA_HOME" "$venv/java"
    fi
}

if environment_is_sound; then
    if [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ] && use_java; then
        exit 0
    fi
    rm -f "$stamp"
    say "1/4 Python $(version_of "$venv/bin/python"): $venv is there"
else
    create_environment
fi

say "2/4 installing packages (the first time takes minutes: PySpark is 450 MB, and its wheel is built here)"
install_packages

say "3/4 Java and jars for Spark"
"$venv/bin/medallion" setup ||
    fail "Java or jars for Spark are not in place, for the reason above; fix it and run it again"

say "4/4 launchers of Spark"
use_java
"$venv/bin/python" tools/jars.py
prepare_launchers

fingerprint >"$stamp"
say "ready"
