-- Reads the note of a request.
--
-- KEYS[1]      the note
-- ARGV[1]      the time in microseconds, in tests only; else empty
-- Returns      the time I7 and the note, of which there may be none.
local now = ARGV[1]
if now ~= '' then
  now = tonumber(now)
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
return struct.pack('>I7', now) .. (redis.call('GET', KEYS[1]) or '')
