-- The sliding window as it is commonly written: a sorted set of requests by
-- time, arguments and answer as JSON.
-- KEYS: the log. ARGV: {"id": …, "limits": [{"limit": 600, "period": 600}, …]}, periods in seconds.
-- Returns: {"allowed": …, "stats": [{"limit", "period", "used", "remaining"}, …]}.
local request = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local longest = 0
for _, window in ipairs(request.limits) do
  longest = math.max(longest, window.period * 1000000)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - longest))
local allowed, stats = true, {}
for i, window in ipairs(request.limits) do
  local used = redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now - window.period * 1000000), '+inf')
  if used >= window.limit then allowed = false end
  stats[i] = {limit = window.limit, period = window.period, used = used}
end
if allowed then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), request.id)
  redis.call('PEXPIRE', KEYS[1], longest / 1000)
end
for _, window in ipairs(stats) do
  if allowed then window.used = window.used + 1 end
  window.remaining = math.max(0, window.limit - window.used)
end
return cjson.encode({allowed = allowed, stats = stats})
