-- Columns of all types, of the kinds that Debezium's own test schema for PostgreSQL has.
create extension hstore;
create type mood as enum ('sad', 'ok', 'happy');
create table items (  -- a column of each type
  id serial primary key,
  small smallint, whole integer not null, big bigint, flag boolean,
  price numeric(10, 2), rate numeric(20, 6), huge numeric(38, 10), free numeric, paid money,
  single real, double double precision,
  name text, code varchar(8), letters char(4), bits bit(3), data bytea,
  day date, at_time time, at_zone timetz, millis timestamp(3), micros timestamp, zoned timestamptz,
  span interval, uid uuid, doc json, docb jsonb, feeling mood, address inet, days daterange, place point,
  numbers integer[], words text[], attrs hstore
);
create table documents (  -- values outside the row, which an update of others does not send
  owner text, number integer, title text, body text, image bytea, marks integer[], bigs bigint[], dates date[], reals double precision[],
  tags text[], blobs bytea[], uids uuid[], doc jsonb, attrs hstore,
  primary key (owner, number)
) with (toast_tuple_target = 128);
create table documents_full (like documents including all);  -- the same, with complete rows before
alter table documents_full replica identity full;
create table readings (device text not null, at timestamptz not null, value double precision);  -- no key
alter table readings replica identity full;
create table carts (id integer primary key, sku text, quantity integer);
create table signals (id text primary key, type text, data text);  -- Debezium's table of signals
do $$ declare name text; attribute text; begin
  foreach name in array array['documents', 'documents_full'] loop
    foreach attribute in array array['body', 'image', 'marks', 'bigs', 'dates', 'reals', 'tags', 'blobs', 'uids', 'doc', 'attrs'] loop
      execute format('alter table %I alter %I set storage external', name, attribute);
    end loop;
  end loop;
  alter table documents_full set (toast_tuple_target = 128);
end $$;
