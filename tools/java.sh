# Which Java runs Spark. To be sourced, from the project's root.

# Is this `java` 17 or 21, and does it start with the module that Spark's launcher asks for?
java_suits() {
    java_major=$("$1" --add-modules=jdk.incubator.vector -version 2>&1 |
        sed -n 's/^[a-z]* version "\([0-9]*\).*/\1/p')
    [ "$java_major" = 17 ] || [ "$java_major" = 21 ]
}

# Leaves JAVA_HOME so that Spark's launchers find a Java they can use; fails where there is none.
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
