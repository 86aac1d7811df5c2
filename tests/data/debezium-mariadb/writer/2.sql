-- A column with a default, an incremental snapshot, and changes around it; also of another table.
alter table orders add column note varchar(20) default 'none', modify flag int;
update orders set note = 'later', flag = 7 where id = 1;
insert into orders (id, code, note) values (101, 'g', null);
delete from orders where id = 2;
update orders set note = 'before' where id = 100;
insert into signals values ('ad-hoc', 'execute-snapshot', '{"data-collections": ["shop.orders"], "type": "incremental"}');
select sleep(8);
update orders set note = 'after' where id in (100, 3);
