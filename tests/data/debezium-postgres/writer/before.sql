-- What the snapshot reads.
insert into items values
  (default, 1, 10, 9007199254740993, true, 123.45, 0.000001, 1234567890123456789012345678.0123456789, 3.14, '12.34',
   1.5, 2.25, 'Zoë "quoted", \back', 'abc', 'ab', b'101', '\x00ff10', '2026-05-01', '10:11:12.123456', '10:11:12+02',
   '2026-05-01 10:11:12.123', '2026-05-01 10:11:12.123456', '2026-05-01 10:11:12.123456+02', '1 day 02:03:04.5',
   'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": 1, "b": [true, null]}', '{"a": {"b": "c"}}', 'happy', '192.168.0.1/24',
   '[2026-01-01,2026-02-01)', '(1.5,-2)', '{1,2,null,4}', '{a,"b c",null,""}', 'k=>v, n=>NULL'),
  (default, -32768, -2147483648, -9223372036854775808, false, -99999999.99, -12345678901234.567891,
   -9999999999999999999999999999.9999999999, -0.00001, '-92233720368547758.08',
   'NaN', 'NaN', '', '', '', b'000', '', '0001-01-01', '00:00', '23:59:59.999999-12',
   '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999', '1900-01-01 00:00:00+00', '-1 day',
   '00000000-0000-0000-0000-000000000000', '[]', '"text"', 'sad', '::1', 'empty', '(0,0)', '{}', '{}', '');
insert into items (whole) values (0);  -- all others null
insert into items (whole, price, rate, huge, free, paid, single, double) values
  (4, -0.01, 1, 0, 123456789012345678901234567890, 0, 'Infinity', '-Infinity'),
  (5, 0, -1, -0.0000000001, 1e20, '-0.01', '-0', '-0'), (6, 1, 127.5, 128, 255, 2.55, 0.1, 0.1);
insert into items (whole, name) values (7, 'deleted later'), (8, 'moved later');
insert into documents select owner, number, 'first', repeat(owner || number || ' of a long text. ', 120),
    convert_to(repeat(owner, 60), 'UTF8'), array_fill(number, array[50]), array_fill(number::bigint, array[25]),
    array_fill('2026-05-01'::date, array[50]), array_fill(0.5::double precision, array[25]), array_fill(owner || number, array[25]),
    array_fill('\x01'::bytea, array[25]), array_fill('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, array[12]),
    jsonb_build_object('long', repeat(owner, 60)), hstore('long', repeat(owner, 60))
  from unnest(array['Ada', 'Bo']) owner, generate_series(1, 2) number;
update documents set body = repeat(body, 4) where owner = 'Ada' and number = 1;  -- above 8 kB
insert into documents values ('Cy', 1, 'short', 'body', '\x01', '{1}', '{1}', '{2026-05-01}', '{1}', '{t}', '{"\\x01"}', '{}', '{"a": 1}', 'a=>1');
insert into documents values ('Di', 1, 'nulls');
insert into documents_full select * from documents;
insert into readings values ('d1', '2026-05-01 00:00+00', 1.5), ('d1', '2026-05-01 00:01+00', 'NaN'), ('d2', '2026-05-01 00:00+00', 3);
insert into carts select id, 'sku' || id, id from generate_series(1, 5) id;
