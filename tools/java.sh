# Which Java runs Spark. To be sourced, from the project's root.

# Return 0 if this `java` is 17 or 21 and has the module that Spark's launcher needs.
java_suits() {
    java_major=$("$1" --add-modules=jdk.incubator.vector -version 2>&1 |
        sed -n 's/^[a-z]* version "\([0-9]*\).*/\1/p')
    [ "$java_major" = 17 ] || [ "$java_major" = 21 ]
}

# Set JAVA_HOME so that Spark's launchers find a supported Java; fail if there is none.
use_java() {
    if [ -n "${JAVA_HOME:-}" ] && java_suits "$JAVA_HOME/bin/java"; then
        return 0
    fi
    if java_suits java; then
        unset JAVA_HOME
        return 0
    fi
    JAVA_HOME=$PWD/.venv/java
    export JAVA_HOME
    java_suits "$JAVA_HOME/bin/java"
}
