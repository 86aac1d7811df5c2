#!/bin/bash
# Run MariaDB, a workload and Debezium, and write to OUT:
#   PART/orders.json.gz, PART/messages.json.gz  the messages of the table, and those of no table
#   expected/PART/orders.json                   the table in the database after that part
# Usage: capture.sh OUT, not as root, with MariaDB's programs in PATH and BASEDIR (/usr). It needs Java 17 and Maven.
set -euo pipefail
mkdir -p "$1" && out=$(realpath "$1")
cd "$(dirname "$0")"
capture=../../debezium-postgres/writer/Capture.java
work=$(mktemp -d)
socket="$work/socket"
query() { mariadb --no-defaults -uroot -S "$socket" -N --default-character-set=utf8mb4 "$@"; }
mvn -q -B -f pom.xml dependency:copy-dependencies -DoutputDirectory="$work/lib"

mariadb-install-db --no-defaults --basedir="$BASEDIR" --datadir="$work/data" \
  --auth-root-authentication-method=normal --skip-test-db > "$work/install.log"
mariadbd --no-defaults --basedir="$BASEDIR" --datadir="$work/data" --socket="$socket" --port=33069 --bind-address=127.0.0.1 \
  --log-bin=bin --binlog-format=ROW --binlog-row-image=FULL --server-id=7 --default-time-zone=+00:00 2> "$work/server.log" &
server=$!
finish() {
  touch "$work/stop"
  [ -z "${engine:-}" ] || wait "$engine" || true
  kill "$server"
  wait
}
trap finish EXIT
until query -e "select 1" > /dev/null 2>&1; do sleep 1; done
query -e "create database shop; create user debezium@'%' identified by 'debezium'; grant all on *.* to debezium@'%';
  create user debezium@localhost identified by 'debezium'; grant all on *.* to debezium@localhost"
query shop < before.sql

mkdir "$work/messages"
{
  cat engine.properties
  echo "schema.history.internal.file.filename=$work/history"
  echo "offset.storage.file.filename=$work/offsets"
} > "$work/properties"
java -cp "$work/lib/*" "$capture" "$work/properties" "$work/messages" "$work/stop" > "$work/engine.log" 2>&1 &
engine=$!
until grep -q "Keepalive thread is running" "$work/engine.log"; do sleep 1; done
sleep 2
for part in 1 2; do
  query shop < $part.sql > /dev/null
  sleep 4
  mkdir -p "$out/$part" "$out/expected/$part"
  rm -f "$work/messages/shop.shop.signals.json"
  gzip -n9 < "$work/messages/shop.shop.orders.json" > "$out/$part/orders.json.gz"
  rm "$work/messages/shop.shop.orders.json"
  cat "$work/messages"/*.json | gzip -n9 > "$out/$part/messages.json.gz"
  rm "$work/messages"/*.json
  note=$([ $part = 1 ] || echo ", 'note', note")
  query shop -re "select json_object('id', id, 'code', code, 'big', big, 'price', price, 'value', value, 'flag', flag, 'day', day,
    'at_time', at_time, 'plain', plain, 'stamp', stamp, 'body', body, 'data', hex(data), 'feeling', feeling, 'choices', choices,
    'doc', json_compact(doc), 'y', y, 'bits', bits + 0$note) from orders order by id" > "$out/expected/$part/orders.json"
done
