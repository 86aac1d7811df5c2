create table orders (
  id int auto_increment primary key, code varchar(20) not null, big bigint unsigned, price decimal(10, 2), value double, flag tinyint(1),
  day date, at_time time(6), plain datetime(6), stamp timestamp(3) null, body text, data varbinary(20),
  feeling enum('sad', 'ok'), choices set('a', 'b'), doc json, y year, bits bit(3)
) character set utf8mb4;
create table signals (id varchar(255) primary key, type varchar(255), data varchar(2000));  -- Debezium's table of signals
insert into orders values
  (1, 'a', 18446744073709551615, 123.45, 0.1, true, '2026-05-01', '10:11:12.123456', '2026-05-01 10:11:12.123456', '2026-05-01 10:11:12.123', 'Zoë', x'00ff', 'sad', 'a,b', '{"a": 1}', 2026, b'101'),
  (2, 'b', 0, -0.01, -1e300, false, '1000-01-01', '00:00:00', '1969-12-31 23:59:59.999999', null, '', '', 'ok', '', '[]', 1901, b'000'),
  (3, 'c', null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
  (4, 'd', 4, 4, 4, null, null, null, null, null, null, null, null, null, null, null, null);
