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
-- It returns a status and the states that were read, or nothing if it is not as simple. checks.lua
-- would cost the server two to five times the time.
local decode, encode, sub = struct.unpack, struct.pack, string.sub
local admitted, reply, values, lasting = 1, nil, {}, {}
for i = 1, checks do
  local flags, cost, windows, slots = decode('>BI4BB', asked, from)
  if windows > 0 then return end
  -- A counter is: its front, the states, and what is behind; see take.lua.
  local value, front = redis.call('GET', KEYS[first + i - 1]), sub(asked, from + 6, from + 6 + 8 * slots)
  local total = slots
  if value and #value ~= 1 + 23 * slots then
    total = string.byte(value)
    if total < slots or #value ~= 1 + 23 * total then return end
  end
  local first_state, pos, states, behind, large, fits, longest = 2 + 8 * total, from + 7 + 8 * slots, '', '', nil, true, 0
  local at = first_state
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = decode('>BI4I4I7I7I4', asked, pos)
    local stamp, used, extra, plain, weight, lasts = now, 0, 0, true, 0, 0
    if kind == 1 and mark == 0 then
      local further = encode('>I7I4I4', 0, 0, 3221225472 + num * (period / den))
      mark, large = 2147483648, large or {}
      large[j], behind = further .. string.rep('\0', 60), behind .. further
      front = front .. sub(front, 8 * j - 6, 8 * j - 6) .. string.char(string.byte(front, 8 * j - 5) + 1) .. sub(front, 8 * j - 4, 8 * j + 1)
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
    states = states .. encode('>I7I4I4', stamp, used, extra + mark)
    pos, at = pos + 27, at + 15
  end
  if large then front = string.char((#front - 1) / 8) .. sub(front, 2) end
  local read
  if not value then
    read = string.rep('\0', 15 * slots)
  elseif sub(value, 1, first_state - 1) ~= front then
    return
  elseif not large then
    read = sub(value, first_state)
  elseif sub(value, at) ~= behind then
    return
  else
    read = ''
    for j = 1, slots do
      local state = first_state + 15 * (j - 1)
      read = read .. sub(value, state, state + 14) .. (large[j] or '')
    end
  end
  if fits then
    values[i], lasting[i] = front .. states .. behind, longest
  elseif flags == 0 then
    admitted = 0
  end
  reply, from = reply and reply .. read or read, pos
end
if admitted == 1 and mode > 0 then
  for i = 1, checks do
    -- A number that the server writes out costs it more.
    if values[i] then
      redis.call('SET', KEYS[first + i - 1], values[i], 'PX', string.format('%d', lasting[i] / 1000 + 2 + spare))
    end
  end
end
return admitted, reply
