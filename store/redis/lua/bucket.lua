-- One check of one token or leaky bucket: the most common request, and so the
-- shortest script. See algorithm/bucket.go for the arithmetic.
--
-- KEYS[1]  the counter
-- ARGV[1]  layout of the value: the byte 1 and the limit's slot
-- ARGV[2]  capacity I4, num I4, den I7, mark I4, cost I4
-- ARGV[3]  the time in microseconds, in tests only
-- Returns  status B, time I7, and the value that was read. Status: 0 denied,
--          1 admitted and charged, 3 the value has another layout, or the bucket
--          another rate (nothing done).
local capacity, num, den, mark, cost = struct.unpack('>I4I4I7I4I4', ARGV[2])
local now, spare = ARGV[3], 0
if now then
  now, spare = tonumber(now), 3600000
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local value = redis.call('GET', KEYS[1])
local stamp, used, extra = now, 0, 0
local moved = false -- the clock has stepped back: the counter follows it
if value then
  if #value ~= 24 or string.sub(value, 1, 9) ~= ARGV[1] then
    return struct.pack('>BI7', 3, now)
  end
  stamp, used, extra = struct.unpack('>I7I4I4', value, 10)
  extra = extra - mark
  if extra < 0 or extra >= num then
    extra = extra + mark
    if extra >= 1073741824 then return struct.pack('>BI7', 3, now) end
    if extra >= num then extra = num - 1 end -- a program that knows no marks has written it
  end
  local since = (now - stamp) * num - extra
  if since < 0 then
    stamp, extra, moved = now, 0, true
  elseif since >= den then
    local units, rest
    if since < 9007199254740992 then
      units = math.floor(since / den)
      rest = since - units * den
    else
      units, rest = refilled(now - stamp, num, den, extra)
    end
    if units >= used then
      stamp, used, extra = now, 0, 0
    else
      local back = math.ceil(rest / num)
      used, stamp, extra = used - units, now - back, back * num - rest
    end
  end
end
local admitted = used + cost <= capacity
if admitted then
  used = used + cost
elseif not moved then
  return struct.pack('>BI7', 0, now) .. (value or '')
end
redis.call('SET', KEYS[1], ARGV[1] .. struct.pack('>I7I4I4', stamp, used, extra + mark),
  'PX', math.ceil(math.min(used * den / num, 1e16) / 1000) + 1 + spare)
return struct.pack('>BI7', admitted and 1 or 0, now) .. (value or '')
