# Set-up copies this into this environment's pyspark/conf, where every launcher of Spark reads it.
# Variables set by the caller win.
medallion_venv=$(cd "$SPARK_HOME/../../../.." && pwd)
PYSPARK_PYTHON=${PYSPARK_PYTHON:-$medallion_venv/bin/python}
if [ -z "${JAVA_HOME:-}" ] && [ -x "$medallion_venv/java/bin/java" ]; then
    JAVA_HOME=$medallion_venv/java
fi
# What `make classes` has kept. Java takes it only where no folder with files is on its class path,
# and so not beside settings of a caller's own.
if [ -f "$medallion_venv/classes/java.jsa" ] &&
    [ "${SPARK_CONF_DIR:-$SPARK_HOME/conf}" = "$SPARK_HOME/conf" ] &&
    [ "$(ls -A "$SPARK_HOME/conf")" = spark-env.sh ]; then
    SPARK_CONF_DIR=$medallion_venv/classes/no-settings
    SPARK_SUBMIT_OPTS="\"-XX:SharedArchiveFile=$medallion_venv/classes/java.jsa\" -Xlog:cds=off -Xlog:cds+dynamic=off ${SPARK_SUBMIT_OPTS:-}"
fi
unset medallion_venv
