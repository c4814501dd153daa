-- One check of a rule whose limits are all sliding windows, at the price of a few
-- units. It does what take.lua does, in the plain case: the log has entries of one
-- unit and the clock has not stepped back.
--
-- KEYS[1]  the log
-- ARGV[1]  count I4, period I7 for each window, the longest period first
-- ARGV[2]  the cost, 1 to 8
-- ARGV[3]  the time in microseconds, in tests only
-- Returns  status B, time I7 and the facts of each window, as take.lua does.
--          Status: 0 denied, 1 admitted and charged, 3 not the plain case
--          (nothing was done).
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local key, spec, cost, now, spare = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], 0
if now then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local low48 = now % 281474976710656
-- The head has the first 40 entries, which the longest window begins in unless
-- the log has been idle; the tail has the last 40, which short windows do.
local head = call('GETRANGE', key, 0, 253)
local n, expires, tail, from = 0, 0, head, 9 -- entry i stands in tail at from + 6 i
if #head >= 14 then
  local slots, size
  slots, size, expires = unpack('>BBI7', head)
  if slots ~= 0 or size ~= 6 then return pack('>BI7', 3, now) end
  if #head < 254 then
    n = (#head - 14) / 6
  else
    n = (call('STRLEN', key) - 14) / 6
    if n > 40 then
      tail = call('GETRANGE', key, -240, -1)
      from = 1 - 6 * (n - 39)
    end
  end
elseif #head > 0 then
  return pack('>BI7', 3, now)
end
local newest = 0
if n > 0 then
  newest = (low48 - unpack('>I6', tail, from + 6 * n)) % 281474976710656
  if newest > 140737488355328 then return pack('>BI7', 3, now) end
end
local admitted, live, facts, longest = true, n + 1, '', 0
for at = 1, #spec, 11 do
  local count, period = unpack('>I4I7', spec, at)
  if at == 1 then longest = period end
  local used, blocking = 0, 0
  if n > 0 and newest < period then
    -- The first entry inside: high is inside, low is not, or 0. A full window
    -- begins count entries back. Else look where no call is needed: in the tail
    -- for short windows, in the head for long ones.
    local low, high = 0, n
    local look = n - count + 1
    if look < 1 then look = 1 end
    if look > n - 40 then
      if (low48 - unpack('>I6', tail, from + 6 * look)) % 281474976710656 < period then
        high = look
      else
        low = look
      end
    elseif look <= 40 then
      if (low48 - unpack('>I6', head, 9 + 6 * look)) % 281474976710656 < period then
        high = look
        if look == 1 or (low48 - unpack('>I6', head, 3 + 6 * look)) % 281474976710656 >= period then
          low = look - 1
        end
      else
        low = look
      end
    end
    if high - low > 1 and n > 40 then
      if low < n - 39 then
        if (low48 - unpack('>I6', tail, from + 6 * (n - 39))) % 281474976710656 < period then
          high = n - 39
        else
          low = n - 39
        end
      end
      if low < 40 and high > 40 then
        if (low48 - unpack('>I6', head, 249)) % 281474976710656 < period then high = 40 else low = 40 end
      end
      while high - low > 1 and low >= 40 and high <= n - 39 do
        local spot = low + high
        spot = (spot - spot % 2) / 2
        local x = unpack('>I6', call('GETRANGE', key, 8 + 6 * spot, 13 + 6 * spot))
        if (low48 - x) % 281474976710656 < period then high = spot else low = spot end
      end
    end
    local text, base = tail, from
    if high <= 40 then text, base = head, 9 end
    if high - low > 2 and low > 0 then
      -- Requests mostly come evenly: guess, then halve what is left.
      local oldest = (low48 - unpack('>I6', text, base + 6 * low)) % 281474976710656
      local spot = low + math.floor((high - low) * (oldest - period) / (oldest - newest))
      if spot <= low then spot = low + 1 elseif spot >= high then spot = high - 1 end
      if (low48 - unpack('>I6', text, base + 6 * spot)) % 281474976710656 < period then
        high = spot
        spot = spot - 1
      else
        low = spot
        spot = spot + 1
      end
      if spot > low and spot < high then
        if (low48 - unpack('>I6', text, base + 6 * spot)) % 281474976710656 < period then
          high = spot
        else
          low = spot
        end
      end
    end
    while high - low > 1 do
      local spot = low + high
      spot = (spot - spot % 2) / 2
      if (low48 - unpack('>I6', text, base + 6 * spot)) % 281474976710656 < period then
        high = spot
      else
        low = spot
      end
    end
    used = n - high + 1
    if used + cost > count then
      admitted = false
      if cost <= count then
        -- The last unit that must leave.
        local unit, x = n + cost - count, nil
        if unit <= 40 then
          x = unpack('>I6', head, 9 + 6 * unit)
        elseif unit >= n - 39 then
          x = unpack('>I6', tail, from + 6 * unit)
        else
          x = unpack('>I6', call('GETRANGE', key, 8 + 6 * unit, 13 + 6 * unit))
        end
        blocking = (low48 - x) % 281474976710656
      end
    end
    if high < live then live = high end
    facts = facts .. pack('>I4I6I6', used, blocking, newest)
  else
    if cost > count then admitted = false end
    facts = facts .. '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
  end
end
if not admitted then return pack('>BI7', 0, now) .. facts end
local entry = pack('>I6', low48)
if cost > 1 then entry = string.rep(entry, cost) end
if live > n or live > 33 and live > n / 8 then
  -- Leave out what no window holds any more.
  local rest = ''
  if live <= n then rest = call('GETRANGE', key, 8 + 6 * live, -1) end
  call('SET', key, pack('>BBI7I5', 0, 6, now + longest, 0) .. rest .. entry,
    'PX', math.ceil(longest / 1000) + 1 + spare)
else
  call('APPEND', key, entry)
  if now + longest > expires then
    -- Ask for an eighth more than is needed, so as not to ask each time.
    -- Nothing must be written after PEXPIRE: the server deletes the key at once if it
    -- was held up for so long that the time has passed.
    longest = math.ceil(longest * 1.125)
    call('SETRANGE', key, 2, pack('>I7', now + longest))
    call('PEXPIRE', key, math.ceil(longest / 1000) + 1 + spare)
  end
end
return pack('>BI7', 1, now) .. facts
