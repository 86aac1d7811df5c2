#!/bin/bash
# Run PostgreSQL, a workload, and Debezium twice (with and without the schema in each message), and write to OUT:
#   plain/PART/TABLE.json.gz, schema/PART/TABLE.json.gz  the messages of a table
#   plain/PART/messages.json.gz, ...                     heartbeats, transaction metadata and a logical message
#   expected/PART/TABLE.json                             the table after that part; documents_full has the rows of documents
# Usage: capture.sh OUT, not as root, with PostgreSQL's programs in PATH. It needs Java 17 and Maven.
set -euo pipefail
mkdir -p "$1" && out=$(realpath "$1")
cd "$(dirname "$0")"
work=$(mktemp -d)
export PGHOST=127.0.0.1 PGPORT=54329 PGUSER=postgres PGDATABASE=shop PGTZ=UTC
mvn -q -B -f pom.xml dependency:copy-dependencies -DoutputDirectory="$work/lib"

initdb -D "$work/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 > "$work/initdb.log"
server="-p $PGPORT -k $work -c listen_addresses=127.0.0.1 -c wal_level=logical -c timezone=UTC"
pg_ctl -D "$work/data" -w -l "$work/server.log" -o "$server" start
finish() {
  touch "$work/stop"
  wait
  pg_ctl -D "$work/data" -m fast stop
}
trap finish EXIT
createdb --maintenance-db=postgres shop
psql -qv ON_ERROR_STOP=1 -f schema.sql -f before.sql

for kind in schema plain; do
  mkdir "$work/$kind"
  {
    cat engine.properties
    echo "slot.name=$kind"
    echo "publication.name=$kind"
    echo "offset.storage.file.filename=$work/$kind.offsets"
    [ $kind = schema ] || echo "converter.schemas.enable=false"
  } > "$work/$kind.properties"
  java -cp "$work/lib/*" Capture.java "$work/$kind.properties" "$work/$kind" "$work/stop" > "$work/$kind.log" 2>&1 &
done

settle() {  # wait until both engines have read a row that is inserted now
  psql -qc "insert into signals values ('$1', 'log', '{\"message\": \"$1\"}')"
  for kind in schema plain; do
    until grep -qs "\"id\":\"$1\"" "$work/$kind/shop.public.signals.json"; do sleep 1; done
  done
  sleep 4  # for a heartbeat
}
for kind in schema plain; do  # the last row of the snapshot, which leaves out the table of signals
  until grep -qs '"snapshot":"last"' "$work/$kind"/*.json; do sleep 1; done
done
settle snapshot
for part in 1 2 3; do
  psql -qv ON_ERROR_STOP=1 -f $part.sql > /dev/null
  settle part$part
  for kind in schema plain; do
    target="$out/$kind/$part"
    mkdir -p "$target"
    rm "$work/$kind/shop.public.signals.json"
    for file in "$work/$kind"/shop.public.*.json; do
      table=${file##*public.}
      gzip -n9 < "$file" > "$target/${table%.json}.json.gz"
      rm "$file"
    done
    cat "$work/$kind"/*.json | gzip -n9 > "$target/messages.json.gz"
    rm "$work/$kind"/*.json
  done
  [ $part != 2 ] || continue  # it lands together with part 3
  mkdir -p "$out/expected/$part"
  for table in items documents readings carts; do
    rows="select row_to_json(each) from (select * from $table order by 1, 2) each"
    psql -qtAc "$rows" > "$out/expected/$part/$table.json"
  done
done
