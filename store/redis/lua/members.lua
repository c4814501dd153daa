-- Notes that a node is there, and counts the nodes.
--
-- KEYS[1]  a sorted set of the nodes, by when they are gone unless they are heard
--          of again, in microseconds; and, behind all of them, of one more that is
--          named by since when the store has its data
-- ARGV[1]  the node
-- ARGV[2]  for how long it is there, in microseconds; 0 if it goes
-- ARGV[3]  the time in microseconds, in tests only; else empty
-- Returns  the number of nodes, and for how many microseconds the store has had
--          its data
local call, key, ttl, now = redis.call, KEYS[1], tonumber(ARGV[2]), ARGV[3]
if now ~= '' then
  now = tonumber(now)
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
-- Its name begins with a space, and those of nodes with an n.
local first = call('ZRANGEBYSCORE', key, '+inf', '+inf')[1]
local since = first and tonumber(first)
if not since or since > now then -- or the clock has stepped back
  if first then call('ZREM', key, first) end
  since = now
  call('ZADD', key, '+inf', string.format(' %.0f', now))
end
if ttl > 0 then
  call('ZADD', key, string.format('%.0f', now + ttl), 'n' .. ARGV[1])
else
  call('ZREM', key, 'n' .. ARGV[1])
end
-- A month without any node, and it is as if there had never been one.
call('PEXPIRE', key, 2678400000)
return {call('ZCARD', key) - 1, now - since}
