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
local unpack, pack, sub, floor, ceil = struct.unpack, struct.pack, string.sub, math.floor, math.ceil
local admitted, reply, values, lasting = 1, {}, {}, {}
for i = 1, checks do
  local flags, cost, windows, slots = unpack('>BI4BB', asked, from)
  if windows > 0 then return end
  local value = redis.call('GET', KEYS[first + i - 1])
  local total = value and string.byte(value)
  if value and (total < slots or #value ~= 1 + 23 * total) then return end
  local names, pos, at = sub(asked, from + 7, from + 6 + 8 * slots), from + 7 + 8 * slots, 2 + 8 * (total or 0)
  -- Where the numbers of a bucket leave no room for a mark, a further state has its count; see
  -- algorithm/marks.go. These are behind the others.
  local texts, read, counts, fits, longest = '', '', '', true, 0
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = unpack('>BI4I4I7I7I4', asked, pos)
    if kind == 6 then return end
    local stamp, used, extra, plain, weight, lasts, count = now, 0, mark, true, 0, 0, ''
    if kind == 1 and mark == 0 then
      mark, extra, count = 2147483648, 2147483648, pack('>I7I4I4', 0, 0, 3221225472 + num * (period / den))
      names = names .. sub(names, 8 * j - 7, 8 * j - 7) .. string.char(string.byte(names, 8 * j - 6) + 1) .. sub(names, 8 * j - 5, 8 * j)
      counts = counts .. count
      if value then count = count .. string.rep('\0', 60) end
    end
    if value then
      stamp, used, extra = unpack('>I7I4I4', value, at)
      read = read .. sub(value, at, at + 14) .. count
    end
    pos, at, extra = pos + 27, at + 15, extra - mark
    --{advance.lua}
    if not plain then return end
    used = used + cost
    if used + weight > capacity then fits = false end
    if lasts > longest then longest = lasts end
    texts = texts .. pack('>I7I4I4', stamp, used, extra + mark)
  end
  local head = string.char(#names / 8) .. names
  if not value then
    read = string.rep('\0', 15 * slots)
  elseif sub(value, 1, 1 + #names) ~= head or sub(value, at) ~= counts then
    return
  end
  if fits then
    values[i], lasting[i] = head .. texts .. counts, longest
  elseif flags == 0 then
    admitted = 0
  end
  reply[i], from = read, pos
end
if admitted == 1 and mode > 0 then
  for i = 1, checks do
    -- A number that the server writes out costs it more.
    if values[i] then
      redis.call('SET', KEYS[first + i - 1], values[i], 'PX', string.format('%d', ceil(lasting[i] / 1000) + 1 + spare))
    end
  end
end
return admitted, table.concat(reply)
