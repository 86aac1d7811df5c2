# Set-up copies this into this environment's pyspark/conf, where every launcher of Spark reads it.
# Variables set by the caller win.
medallion_venv=$(cd "$SPARK_HOME/../../../.." && pwd)
PYSPARK_PYTHON=${PYSPARK_PYTHON:-$medallion_venv/bin/python}
if [ -z "${JAVA_HOME:-}" ] && [ -x "$medallion_venv/java/bin/java" ]; then
    JAVA_HOME=$medallion_venv/java
fi
unset medallion_venv
