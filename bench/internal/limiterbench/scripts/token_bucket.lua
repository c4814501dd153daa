-- The smallest token bucket that is still right: one key, one packed string, the
-- server's clock, whole numbers only.
-- KEYS: the counter. ARGV: count, period in microseconds, burst, cost.
-- Returns: allowed (0 or 1), remaining, microseconds until the cost fits.
local count, period = tonumber(ARGV[1]), tonumber(ARGV[2])
local full, cost = ARGV[3] * period, ARGV[4] * period
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used, at = 0, now
local state = redis.call('GET', KEYS[1])
if state then
  used, at = struct.unpack('dd', state)
  if now > at then used, at = math.max(0, used - (now - at) * count), now end
end
if used + cost > full then
  return {0, math.floor((full - used) / period), math.ceil((used + cost - full) / count)}
end
used = used + cost
redis.call('SET', KEYS[1], struct.pack('dd', used, at), 'PX', math.ceil(used / count / 1000) + 1)
return {1, math.floor((full - used) / period), 0}
