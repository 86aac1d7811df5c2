-- Changes after the snapshot: of all types, of keys, of rows with values outside them.
insert into items select (jsonb_populate_record(i, '{"id": 101, "name": "copied"}')).* from items i where id = 1;
update items set small = 2, big = big + 1, flag = not flag, price = price + 0.01, free = -free, double = 0.5, name = 'changed',
  day = '1600-02-29', micros = micros + interval '1 microsecond', numbers = numbers || 5, docb = docb || '{"z": 1}', feeling = 'ok'
  where id in (1, 2);
update items set name = 'of a null' where id = 3;
update items set id = 200 where id = 8;  -- another key
delete from items where id = 7;
update documents set title = 'second' where owner = 'Ada';  -- sends no value outside the row
update documents_full set title = 'second' where owner = 'Ada';
update documents set body = null where owner = 'Ada' and number = 2;
update documents_full set body = null where owner = 'Ada' and number = 2;
update documents set number = 9, title = 'moved' where owner = 'Bo' and number = 2;  -- another key, and the rest outside the row
update documents_full set number = 9, title = 'moved' where owner = 'Bo' and number = 2;
delete from documents where owner = 'Di';
delete from documents_full where owner = 'Di';
begin;  -- one transaction of two tables, with two changes of a row
insert into readings values ('d3', '2026-05-01 00:02+00', 1);
update readings set value = 2 where device = 'd3';
update carts set quantity = 20 where id = 2;
update carts set quantity = 30 where id = 2;
commit;
begin;
update carts set quantity = 99;
rollback;
update readings set at = '2026-05-01 00:05+00' where device = 'd2';  -- what silver has as its key
delete from readings where value = 'NaN';
select pg_logical_emit_message(true, 'audit', 'a message without a row');
