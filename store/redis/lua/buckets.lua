-- Decides one check of a rule whose limits are all buckets, which no list of other rates has
-- charged. It is the body of a function in take.lua, of
--
--   key    the counter
--   from   where its specification stands in what is asked
--   slots  how many buckets there are
--   cost   the cost
--   asked, now, spare  as there
--
-- It returns a status and the states that were read, or nothing if it is not as simple. checks.lua
-- would cost the server twice the instructions for five buckets.
local unpack, pack, sub, floor, ceil = struct.unpack, struct.pack, string.sub, math.floor, math.ceil
local value, layout = redis.call('GET', key), sub(asked, from + 1, from + 1 + 8 * slots)
if value and (#value ~= 1 + 23 * slots or sub(value, 1, 1 + 8 * slots) ~= layout) then return end
local admitted, longest, text, pos = 1, 0, layout, from + 2 + 8 * slots
for at = 2 + 8 * slots, 23 * slots, 15 do
  local capacity, num, den, mark = unpack('>xI4I4I7xxxxxxxI4', asked, pos)
  local stamp, used, extra = now, 0, 0
  if mark == 0 then return end
  if value then
    stamp, used, extra = unpack('>I7I4I4', value, at)
    if used == 0 and extra == 0 then extra = mark end
    extra = extra - mark
    if extra < 0 or extra >= num then return end
  end
  pos = pos + 27
  local since = (now - stamp) * num - extra
  if used == 0 then
    stamp, extra = now, 0
  elseif since < 0 or since >= 9007199254740992 then
    return
  elseif since >= den then
    local units = floor(since / den)
    if units >= used then
      used, stamp, extra = 0, now, 0
    else
      local rest = since - units * den
      local back = ceil(rest / num)
      used, stamp, extra = used - units, now - back, back * num - rest
    end
  end
  used = used + cost
  if used > capacity then admitted = 0 end
  text = text .. pack('>I7I4I4', stamp, used, extra + mark)
  local reset = used * den / num
  if reset > longest then longest = reset end
end
if admitted == 1 then
  -- A number that the server writes out costs it more.
  redis.call('SET', key, text, 'PX', string.format('%d', ceil(longest / 1000) + 1 + spare))
end
return admitted, value and sub(value, 2 + 8 * slots) or string.rep('\0', 15 * slots)
