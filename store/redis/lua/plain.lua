-- Decides a request whose limits are neither sliding windows nor penalties, and whose counters are
-- as this program writes them: no list of other rates has charged them. It is the body of a function
-- in take.lua, of
--
--   first   where the keys of the checks begin in KEYS
--   from    where they stand in what is asked
--   checks  how many there are
--   mode    0 to peek, else to take
--   asked, now, spare  as there
--
-- It returns a status and what was read, as take.lua returns them, or nothing if it is not as simple. checks.lua
-- would cost the server two to five times the time.
local decode, encode, byte, sub = struct.unpack, struct.pack, string.byte, string.sub
local admitted, whole, reply, writes = true, false, nil, nil
for i = 1, checks do
  local flags, c1, c2, c3, c4, windows, slots = byte(asked, from, from + 6)
  if windows > 0 then return end
  local cost = ((c1 * 256 + c2) * 256 + c3) * 256 + c4
  -- A counter is: its front, the states, and what is behind; see take.lua.
  local value, front = redis.call('GET', KEYS[first + i - 1]), sub(asked, from + 6, from + 6 + 8 * slots)
  local total = slots
  if value and #value ~= 1 + 23 * slots then
    total = byte(value)
    if total < slots or #value ~= 1 + 23 * total then return end
  end
  local first_state, pos, behind, large, fits, longest = 2 + 8 * total, from + 7 + 8 * slots, '', nil, true, 0
  local at, states = first_state, ''
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = decode('>BI4I4I7I7I4', asked, pos)
    local stamp, used, extra, plain, weight, lasts = now, 0, 0, true, 0, 0
    if kind == 1 and mark == 0 then
      local further = encode('>I7I4I4', 0, 0, 3221225472 + num * (period / den))
      mark, large = 2147483648, large or {}
      large[j], behind = further .. string.rep('\0', 60), behind .. further
      front = front .. sub(front, 8 * j - 6, 8 * j - 6) .. string.char(byte(front, 8 * j - 5) + 1) .. sub(front, 8 * j - 4, 8 * j + 1)
    end
    if value then
      stamp, used, extra = decode('>I7I4I4', value, at)
      extra = extra - mark
    end
    --{advance.lua}
    if not plain then return end
    used = used + cost
    if used + weight > capacity then fits = false end
    if lasts > longest then longest = lasts end
    states = encode('>c0I7I4I4', states, stamp, used, extra + mark)
    pos, at = pos + 27, at + 15
  end
  if large then front = string.char((#front - 1) / 8) .. sub(front, 2) end
  local read
  if not value then
    read = string.rep('\0', 15 * slots)
  elseif string.find(value, front, 1, true) ~= 1 then
    return
  elseif not large then
    whole = checks == 1 and mode < 2
    read = whole and value or sub(value, first_state)
  elseif sub(value, at) ~= behind then
    return
  else
    read = ''
    for j = 1, slots do
      local state = first_state + 15 * (j - 1)
      read = read .. sub(value, state, state + 14) .. (large[j] or '')
    end
  end
  if fits and mode > 0 then
    -- A number that the server writes out costs it more.
    writes = {writes, KEYS[first + i - 1], front .. states .. behind, string.format('%d', longest / 1000 + 2 + spare)}
  elseif not fits and flags == 0 then
    admitted = false
  end
  reply, from = reply and reply .. read or read, pos
end
while admitted and writes do
  redis.call('SET', writes[2], writes[3], 'PX', writes[4])
  writes = writes[1]
end
return (admitted and 1 or 0) + (whole and 3 or 0), reply
