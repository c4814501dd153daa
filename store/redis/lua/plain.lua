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
-- It returns a status and what was read, as take.lua returns them, or nothing if it is not as
-- simple. checks.lua would cost the server two to five times the time.
local decode, encode, byte, sub = struct.unpack, struct.pack, string.byte, string.sub
local admitted, whole, reply = true, false, nil
local key, text, lives, writes -- what is to be written last, and before that
for i = 1, checks do
  local flags, windows, slots, cost = decode('<BBBd', asked, from)
  if windows > 0 then return end
  -- A counter is: its front, the states, and what is behind; see take.lua.
  local value = redis.call('GET', KEYS[first + i - 1])
  local pos, total = from + 11, slots
  if value then
    total = byte(value)
    if total < slots or #value ~= 1 + 23 * total then return end
    whole = checks == 1 and mode < 2
  end
  local names, fits, longest, keeps = sub(asked, pos, pos + 8 * slots - 1), true, 0, false
  local n, at, next, states, behind, read = slots, 2 + 8 * total, 2 + 8 * total + 15 * slots, '', '', nil
  pos = pos + 8 * slots
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = decode('<Bddddd', asked, pos)
    local stamp, used, extra, plain, weight, lasts, kept = now, 0, 0, true, 0, 0, false
    local further, count, c, d, e
    if kind == 1 and mark == 0 then
      further, count, mark = 1, num * (period / den), 2147483648
      if count > 1000000000 then further, mark = 6, 2684354560 elseif capacity > 1000000000 then return end
    elseif kind == 5 and n < total then
      further = 6
    end
    if further then
      local top, rest = decode('>I2I6', names, 8 * j - 7)
      local name = encode('>I2I6', top + further, rest)
      if kind == 5 and sub(value, 2 + 8 * n, 9 + 8 * n) ~= name then
        further = nil
      else
        n, names = n + 1, names .. name
        if n > total and value then return end
      end
    end
    if value then
      stamp, used, extra = decode('>I7I4I4', value, at)
      extra = extra - mark
      if further then c, d, e = decode('>I7I4I4', value, next) end
      if further and not whole then
        local state, free = sub(value, at, at + 14), string.rep('\0', 75)
        if further == 6 then state = string.char(byte(state) + 128) .. sub(state, 2) end
        if further == 6 and kind == 1 then state = state .. free end
        state = state .. sub(value, next, next + 14)
        if kind == 1 then state = state .. (further == 1 and sub(free, 16) or free) end
        read = (read or sub(value, at - 15 * (j - 1), at - 1)) .. state
      elseif read then
        read = read .. sub(value, at, at + 14)
      end
    end
    --{advance.lua}
    if not plain then return end
    if weight > capacity then fits = false end
    if lasts > longest then longest, keeps = lasts, kept end
    states = encode('>c0I7I4I4', states, stamp, used, extra + mark)
    if further then behind, next = encode('>c0I7I4I4', behind, c, d, e), next + 15 end
    pos, at = pos + 41, at + 15
  end
  if not value then
    total, read = n, string.rep('\0', 15 * slots)
  elseif n < total or string.find(value, names, 2, true) ~= 2 then
    return
  elseif whole then
    read = value
  else
    read = read or sub(value, at - 15 * slots)
  end
  if fits and mode > 0 then
    if key then writes = {writes, key, text, lives} end
    key, text = KEYS[first + i - 1], string.char(total) .. names .. states .. behind
    -- As in take.lua.
    lives = not keeps and string.format('%d', longest / 1000 + 2 + spare)
  elseif not fits and flags == 0 then
    admitted = false
  end
  reply, from = reply and reply .. read or read, pos
end
while admitted and key do
  if lives then redis.call('SET', key, text, 'PX', lives) else redis.call('SET', key, text, 'KEEPTTL') end
  if writes then writes, key, text, lives = writes[1], writes[2], writes[3], writes[4] else key = nil end
end
return (admitted and 1 or 0) + (whole and 3 or 0), reply
