-- One check of a rule whose limits are all token or leaky buckets, several of
-- them. It does what take.lua does, with as few calls as can be: one to read all
-- numbers of a kind, instead of one for each limit.
--
-- KEYS[1]  the counters
-- ARGV[1]  layout of the value: the number of slots B and their names
-- ARGV[2]  for each limit capacity I4, num I4, den I7, mark I4
-- ARGV[3]  the cost
-- ARGV[4]  the time in microseconds, in tests only
-- Returns  as bucket.lua does
local now, spare, cost, n = ARGV[4], 0, tonumber(ARGV[3]), #ARGV[2] / 19
if now then
  now, spare = tonumber(now), 3600000
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local value = redis.call('GET', KEYS[1])
local spec = {struct.unpack('>' .. string.rep('I4I4I7I4', n), ARGV[2])}
local format = '>' .. string.rep('I7I4I4', n)
local state
if value then
  if #value ~= 1 + 23 * n or string.sub(value, 1, 1 + 8 * n) ~= ARGV[1] then
    return struct.pack('>BI7', 3, now)
  end
  state = {struct.unpack(format, value, 2 + 8 * n)}
else
  state = {}
  for j = 1, 3 * n, 3 do state[j], state[j + 1], state[j + 2] = now, 0, 0 end
end
local admitted, longest, floor, ceil, at = true, 0, math.floor, math.ceil, 1
for j = 1, 3 * n, 3 do
  local used = state[j + 1]
  local capacity, num, den, mark = spec[at], spec[at + 1], spec[at + 2], spec[at + 3]
  at = at + 4
  if used > 0 then
    local stamp, extra = state[j], state[j + 2] - mark
    if extra < 0 or extra >= num then
      extra = extra + mark
      if extra >= 1073741824 then return struct.pack('>BI7', 3, now) end
      if extra >= num then extra = num - 1 end -- a program that knows no marks has written it
    end
    local since = (now - stamp) * num - extra
    if since < 0 then
      return struct.pack('>BI7', 3, now) -- the clock has stepped back
    elseif since >= den then
      local units, rest
      if since < 9007199254740992 then
        units = floor(since / den)
        rest = since - units * den
      else
        units, rest = refilled(now - stamp, num, den, extra)
      end
      if units >= used then
        used, stamp, extra = 0, now, 0
      else
        local back = ceil(rest / num)
        used, stamp, extra = used - units, now - back, back * num - rest
      end
    end
    state[j], state[j + 2] = stamp, extra + mark
  else
    if state[j + 2] > 0 then return struct.pack('>BI7', 3, now) end -- there are lists of other rates
    state[j], state[j + 2] = now, mark
  end
  used = used + cost
  if used > capacity then admitted = false end
  state[j + 1] = used
  local reset = used * den / num
  if reset > longest then longest = reset end
end
if not admitted then return struct.pack('>BI7', 0, now) .. (value or '') end
redis.call('SET', KEYS[1], ARGV[1] .. struct.pack(format, unpack(state, 1, 3 * n)),
  'PX', ceil(longest / 1000) + 1 + spare)
return struct.pack('>BI7', 1, now) .. (value or '')
