# Which Java runs Spark. To be sourced, from the project's root.

# Set JAVA_HOME so that Spark's launchers find a supported Java; fail if there is none.
use_java() {
    set_java=$(.venv/bin/python -m medallion.install.java) && eval "$set_java"
}
