-- A snapshot of some tables beside the stream (an incremental one), and changes around it.
update carts set sku = 'before the snapshot' where id = 6;
insert into signals values ('ad-hoc', 'execute-snapshot', '{"data-collections": ["public.items", "public.carts"], "type": "incremental"}');
select pg_sleep(5);
update carts set sku = 'after the snapshot', quantity = 8 where id = 6;
delete from carts where id = 1;
update items set note = 'after the snapshot' where id in (1, 7);
delete from items where id = 3;
