-- A truncate, rows of the same keys after it, and columns that come and go.
truncate carts;
insert into carts values (1, 'again', 1), (6, 'new', 6);
truncate carts, readings;
insert into carts values (1, 'once more', 1), (6, 'last', 7);
insert into readings values ('d1', '2026-05-02 00:00+00', 10);
alter table items add column added numeric(12, 3) default 1.5, add column note text;
update items set note = 'later' where id = 1;
insert into items (id, whole, added, note) values (300, 30, -2.125, 'new');
alter table items drop column letters;
alter table items rename column code to label;
alter table items alter small type integer;
update items set label = 'renamed', small = 70000 where id = 200;
delete from items where id = 101;
insert into items (id, whole, name) values (101, 101, 'after its delete'), (7, 7, 'after its delete');
update documents set title = 'third';
update documents_full set title = 'third';
update documents set doc = '{"short": true}', attrs = 'a=>b', marks = '{7}', tags = '{x}', bigs = '{8}', image = '\xff' where owner = 'Bo' and number = 1;
update documents_full set doc = '{"short": true}', attrs = 'a=>b', marks = '{7}', tags = '{x}', bigs = '{8}', image = '\xff' where owner = 'Bo' and number = 1;
