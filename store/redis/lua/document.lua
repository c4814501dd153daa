-- A document: see store/documents.go.
--
-- KEYS[1]  the document: a version of 8 bytes, and the value
-- ARGV[1]  the time in microseconds, in tests only; else empty
-- ARGV[2]  to write, the version that was read, or nothing if there was no document
-- ARGV[3]  to write, the new version and value
-- ARGV[4]  to write, for how many milliseconds it is kept
-- Returns  to read, the time I7 and the document; to write, 1 if it was written, else 0
local key = KEYS[1]
if ARGV[3] then
  if redis.call('GETRANGE', key, 0, 7) ~= ARGV[2] then return 0 end
  redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
  return 1
end
local now = ARGV[1]
if now ~= '' then
  now = tonumber(now)
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
return struct.pack('>I7', now) .. (redis.call('GET', key) or '')
