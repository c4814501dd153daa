-- Decides one check of a rule whose limits are all sliding windows, at the price of a few units, as
-- checks.lua does, in the plain case: the log has entries of one unit and one span, and the clock
-- has not stepped back. A value is then: 1 B, 64 I2, the span's horizon I6, when it ends I7, charges
-- under shorter lists I4, its largest count I4, 6 B, when it ends I7, 0 I5, and from byte 38 on the
-- time of each unit I6. It is the body of a function in take.lua, of
--
--   first   where its key is in KEYS
--   from    where it stands in what is asked
--   checks, mode  1 and 1
--   asked, now, spare  as there
--
-- It returns a status and the facts of each window, or nothing if it is not the plain case.
-- checks.lua would cost the server two and a half times the instructions.
local call, unpack, pack, floor = redis.call, struct.unpack, struct.pack, math.floor
local low48, key = now % 281474976710656, KEYS[first]
local windows, _, cost = unpack('<BBd', asked, from + 1)
if cost > 8 then return end
-- The head has the first 40 entries, which the longest window begins in unless
-- the log has been idle; the tail has the last 40, which short windows do.
local head = call('GETRANGE', key, '0', '276')
local n, tail, base = 0, head, 32 -- entry i stands in tail at base + 6 i
local horizon, stop, short, most = 0, 0, 0, 0
if #head >= 37 then
  local slots, kind, size, expires
  slots, kind, horizon, stop, short, most, size, expires = unpack('>BI2I6I7I4I4BI7', head)
  if slots ~= 1 or kind ~= 64 or size ~= 6 or expires ~= stop then return end
  if #head < 277 then
    n = (#head - 37) / 6
  else
    n = (call('STRLEN', key) - 37) / 6
    if n > 40 then
      tail = call('GETRANGE', key, '-240', '-1')
      base = 1 - 6 * (n - 39)
    end
  end
elseif #head > 0 then
  return
end
local newest = 0
if n > 0 then
  newest = (low48 - unpack('>I6', tail, base + 6 * n)) % 281474976710656
  if newest > 140737488355328 then return end
end
local left = stop - now
if left <= 0 then n = 0 end -- the log remembers nothing any more
local admitted, live, facts, longest, largest = true, n + 1, '', 0, 0
for at = from + 11, from + 9 + 11 * windows, 11 do
  local count, period = unpack('>I4I7', asked, at)
  if period > longest then longest = period end
  -- Where the log has to look back further than it did, more is to be done.
  if left > 0 and horizon < period then return end
  if count > largest then largest = count end
  local used, blocking = 0, 0
  if n > 0 and newest < period then
    -- The first entry inside: high is inside, low is not, or 0. A full window
    -- begins count entries back. Else look where no call is needed: in the tail
    -- for short windows, in the head for long ones.
    local low, high, look, age = 0, n, n - count + 1, nil
    if look < 1 then look = 1 end
    if look > n - 40 then
      age = (low48 - unpack('>I6', tail, base + 6 * look)) % 281474976710656
      if age < period then
        high = look
        if look > 1 and look > n - 39 and (low48 - unpack('>I6', tail, base - 6 + 6 * look)) % 281474976710656 >= period then
          low = look - 1
        end
      else
        low = look
      end
    elseif look <= 40 then
      age = (low48 - unpack('>I6', head, 32 + 6 * look)) % 281474976710656
      if age < period then
        high = look
        if look == 1 or (low48 - unpack('>I6', head, 26 + 6 * look)) % 281474976710656 >= period then
          low = look - 1
        end
      else
        low = look
      end
    end
    if high - low > 1 and n > 40 then
      if low < n - 39 then
        if (low48 - unpack('>I6', tail, base + 6 * (n - 39))) % 281474976710656 < period then
          high = n - 39
        else
          low = n - 39
        end
      end
      if low < 40 and high > 40 then
        if (low48 - unpack('>I6', head, 272)) % 281474976710656 < period then high = 40 else low = 40 end
      end
      while high - low > 1 and low >= 40 and high <= n - 39 do
        local spot = low + high
        spot = (spot - spot % 2) / 2
        local x = unpack('>I6', call('GETRANGE', key, 31 + 6 * spot, 36 + 6 * spot))
        if (low48 - x) % 281474976710656 < period then high = spot else low = spot end
      end
    end
    local text, start = tail, base
    if high <= 40 then text, start = head, 32 end
    if high - low > 2 and low > 0 then
      -- Requests mostly come evenly: guess, then halve what is left.
      local oldest = (low48 - unpack('>I6', text, start + 6 * low)) % 281474976710656
      local spot = low + floor((high - low) * (oldest - period) / (oldest - newest))
      if spot <= low then spot = low + 1 elseif spot >= high then spot = high - 1 end
      if (low48 - unpack('>I6', text, start + 6 * spot)) % 281474976710656 < period then
        high = spot
        spot = spot - 1
      else
        low = spot
        spot = spot + 1
      end
      if spot > low and spot < high then
        if (low48 - unpack('>I6', text, start + 6 * spot)) % 281474976710656 < period then
          high = spot
        else
          low = spot
        end
      end
    end
    while high - low > 1 do
      local spot = low + high
      spot = (spot - spot % 2) / 2
      if (low48 - unpack('>I6', text, start + 6 * spot)) % 281474976710656 < period then
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
        local unit = n + cost - count
        if unit == look and age then
          blocking = age
        else
          local x
          if unit <= 40 then
            x = unpack('>I6', head, 32 + 6 * unit)
          elseif unit >= n - 39 then
            x = unpack('>I6', tail, base + 6 * unit)
          else
            x = unpack('>I6', call('GETRANGE', key, 31 + 6 * unit, 36 + 6 * unit))
          end
          blocking = (low48 - x) % 281474976710656
        end
        if left < period - blocking then blocking = period - left end
      end
    end
    if high < live then live = high end
    local late = newest
    if left < period - newest then late = period - left end -- it is forgotten before it leaves
    facts = pack('>c0I4I6I6', facts, used, blocking, late)
  else
    if cost > count then admitted = false end
    facts = facts .. '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
  end
end
if not admitted then return 0, facts end
local covered = left >= longest
if not covered and left > 0 and horizon > longest then return end -- it needs one more span
local shorter = left > 0 and horizon > longest
if shorter then
  if short >= 1023 then return end -- the log is to be squeezed
  short = short + 1
elseif left <= 0 then
  short, most = 0, 0
end
local counts = shorter or most < largest
if most < largest then most = largest end
if not covered then
  -- An eighth more than is needed, so as not to write it each time.
  stop, horizon = now + longest + floor(longest / 8), longest
end
local entry = pack('>I6', low48)
if cost > 1 then entry = string.rep(entry, cost) end
if not shorter and (live > n or live > 33 and live > n / 8) then
  -- Leave out what is forgotten.
  local rest = ''
  if live <= n then rest = call('GETRANGE', key, 31 + 6 * live, -1) end
  call('SET', key, pack('>BI2I6I7I4I4BI7I5', 1, 64, horizon, stop, short, most, 6, stop, 0) .. rest .. entry,
    'PX', string.format('%d', math.ceil((stop - now) / 1000) + 1 + spare))
elseif covered then
  if counts then call('SETRANGE', key, '16', pack('>I4I4', short, most)) end
  call('APPEND', key, entry)
else
  call('APPEND', key, entry)
  call('SETRANGE', key, '9', pack('>I7I4I4BI7', stop, short, most, 6, stop))
  -- Nothing must be written after PEXPIRE: the server deletes the key at once if it
  -- was held up for so long that the time has passed.
  call('PEXPIRE', key, math.ceil((stop - now) / 1000) + 1 + spare)
end
return 1, facts
