-- Several checks of several requests, one after the other, each by itself: what
-- bucket.lua, buckets.lua and window.lua do, which stand before it as the functions
-- buckets and window, but for the most common one. Nothing that is wrong with one
-- counter stops the others.
--
-- KEYS     the counter of each check; one may be there several times
-- ARGV[1]  for each check its kind B, and for the kind
--          0, one bucket like that of the check before: nothing
--          1, one bucket: what bucket.lua gets, 32 bytes
--          2, buckets: number n B, names of slots 8 n, spec 19 n, cost I4
--          3, windows: number n B, spec 11 n, cost I4
-- ARGV[2]  the time in microseconds, in tests only
-- Returns  a byte, time I7, and for each check
--          0 and 1: status B, and if it is 0 or 1 the value that was read
--          2 and 3: length I2, and as much of what the script answers.
--          Status: 0 denied, 1 admitted and charged, 3 the value has another layout,
--          4 and 5 as 0 and 1 where there was no value, 9 the server refused. For a
--          check that the server refused the length is 0. With 3 and with a refusal
--          nothing was done.
local call, unpack, pack, sub, char, format = redis.pcall, struct.unpack, struct.pack, string.sub, string.char, string.format
local floor, ceil, min = math.floor, math.ceil, math.min
local blob, now, spare, at, answers = ARGV[1], ARGV[2], 0, 1, {}
if now then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local layout, capacity, num, den, mark, cost -- of one bucket
local key, args = {}, {}               -- of the other scripts
for i = 1, #KEYS do
  local kind = unpack('B', blob, at)
  at = at + 1
  if kind < 2 then
    if kind == 1 then
      layout, capacity, num, den, mark, cost = unpack('>c9I4I4I7I4I4', blob, at)
      at = at + 32
    end
    local value = call('GET', KEYS[i])
    local stamp, used, extra, moved, answer, written = now, 0, 0, false, nil, nil
    if not value then
      value = ''
    elseif type(value) == 'table' then
      answer = '\9'
    elseif #value ~= 24 then
      answer = '\3'
    else
      written, stamp, used, extra = unpack('>c9I7I4I4', value)
      if written ~= layout then answer = '\3' end
      extra = extra - mark
      if extra < 0 or extra >= num then
        extra = extra + mark
        if extra >= 1073741824 then answer = '\3' end
        if extra >= num then extra = num - 1 end
      end
      local since = (now - stamp) * num - extra
      if since < 0 then
        stamp, extra, moved = now, 0, true
      elseif since >= den then
        local units, rest
        if since < 9007199254740992 then
          units = floor(since / den)
          rest = since - units * den
        else
          units, rest = refilled(now - stamp, num, den, extra)
        end
        if units >= used then
          stamp, used, extra = now, 0, 0
        else
          local back = ceil(rest / num)
          used, stamp, extra = used - units, now - back, back * num - rest
        end
      end
    end
    if not answer then
      local status = value == '' and 4 or 0
      local admitted = used + cost <= capacity
      if admitted then
        used, status = used + cost, status + 1
      end
      answer = char(status) .. value
      if admitted or moved then
        -- A number that the server writes out costs it more.
        local reset = format('%d', ceil(min(used * den / num, 1e16) / 1000) + 1 + spare)
        if call('SET', KEYS[i], pack('>c9I7I4I4', layout, stamp, used, extra + mark), 'PX', reset).err then
          answer = '\9'
        end
      end
    end
    answers[i] = answer
  else
    local n = unpack('B', blob, at)
    local script
    key[1] = KEYS[i]
    if kind == 2 then
      script = buckets
      args[1] = sub(blob, at, at + 8 * n)
      args[2] = sub(blob, at + 1 + 8 * n, at + 27 * n)
      args[3], args[4] = unpack('>I4', blob, at + 1 + 27 * n), ARGV[2]
      at = at + 5 + 27 * n
    else
      script = window
      args[1] = sub(blob, at + 1, at + 11 * n)
      args[2], args[3] = unpack('>I4', blob, at + 1 + 11 * n), ARGV[2]
      at = at + 5 + 11 * n
    end
    local ok, answer = pcall(script, key, args)
    if not ok then answer = '' end
    answers[i] = pack('>I2', #answer) .. answer
  end
end
return pack('>BI7', 1, now) .. table.concat(answers)
