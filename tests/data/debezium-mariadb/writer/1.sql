-- All of one or two seconds: several changes of a row, another key, and a row after its delete.
insert into orders (id, code, price) values (5, 'e', 5), (6, 'f', 6);
begin;
update orders set price = 1 where id = 5;
update orders set price = 2 where id = 5;
update orders set price = 3, body = 'of one second' where id = 5;
commit;
update orders set id = 100 where id = 4;
delete from orders where id = 6;
insert into orders (id, code) values (6, 'after its delete');
update orders set price = price + 0.01 where id < 100;
update orders set code = concat(code, code) where price is not null;
