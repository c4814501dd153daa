-- Takes or peeks at any number of requests, one after the other, each by itself.
--
-- KEYS     the counters of each check of each request; then, of a request with an id, its note
-- ARGV[1]  what is asked, for each request: its number of checks B, or 0 if it is as the one
--          before but for the keys, and then nothing else; 0 to peek, 1 to take, 2 to take a
--          request that has an id, which is then the only one, B; the length of what follows I3;
--          and for each check
--          1 for a shadow B (it has no say in whether the others are admitted, and is charged with
--          them if its limits admit), its cost I4, its limits; see appendLimits in protocol.go
-- ARGV[2]  the time in microseconds, in tests only; else empty
-- ARGV[3]  with an id, what tells this request from others, 16 bytes, and its limits from others,
--          8 bytes
-- ARGV[4]  for how many microseconds the id is remembered
-- ARGV[5]  for how many more a settlement can be repeated
-- ARGV[6]  1 if the caller chose the id: a denial is remembered too
-- ARGV[7]  what else to note
-- ARGV[8]  for how many milliseconds more the note is kept, unsettled
-- Returns  time I7, and for each request the length of what follows I3, a status B, and what
--          checks.lua returns. Status: 0 denied, 1 admitted and charged, 2 a calendar window does not
--          contain the time, 5 the id is that of another request, 6 and 7 it was denied, or
--          admitted, under other limits than these, 8 its reservation has expired. With 2 to 8
--          nothing was done, and nothing else is returned. If the server refused something to one
--          of several requests, the length is 0. A request with an id that is repeated is answered
--          as it was the first time.
--
-- A note is: its state (o open, s settled, x expired), the request 16 bytes, its
-- limits 8 bytes, when it expires I7 and is forgotten I7, what it was settled at 16
-- bytes (until then 1 if nobody chose the id), the answer (status B, time I7, the rest) and that to
-- the settlement (their length I4 before each), and what else to note.
local keys, decode, encode, floor, ceil = KEYS, struct.unpack, struct.pack, math.floor, math.ceil
local asked, now, spare, call = ARGV[1], ARGV[2], 0, redis.call
if now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local at, key, many, answers, n = 1, 1, false, nil, 0
local from, checks, mode, cost, windows, slots
-- A single bucket is by far the most frequent. Decided by buckets.lua, it would cost the server a
-- fifth more instructions alone, and two fifths more in a shared call.
local one, name, capacity, num, den, mark
local buckets_of, windows_of, all_of
repeat
  local count, way, l1, l2, l3, _, c1, c2, c3, c4, w, s = string.byte(asked, at, at + 11)
  if count == 0 then
    at = at + 1
  else
    checks, mode, windows, slots = count, way, w, s
    cost = ((c1 * 256 + c2) * 256 + c3) * 256 + c4
    from = at + 5
    at = from + (l1 * 256 + l2) * 256 + l3
    one = checks == 1 and mode == 1 and windows == 0 and slots == 1
    if one then
      name, capacity, num, den, mark = decode('>c8xI4I4I7xxxxxxxI4', asked, from + 7)
      one = mark > 0
    end
    if n == 0 and at <= #asked then many, call, answers = true, redis.pcall, {} end
  end
  local head, body
  if one then
    local value = call('GET', keys[key])
    local count, written, stamp, used, extra = 1, name, now, 0, 0
    body = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    if value then
      if #value == 24 then
        count, written, stamp, used, extra = decode('>Bc8I7I4I4', value)
        extra, body = extra - mark, string.sub(value, 10)
      else
        count = 0
      end
    end
    local since = (now - stamp) * num - extra
    if written == name and count == 1 and extra >= 0 and extra < num and since >= 0 and since < 9007199254740992 then
      if since >= den then
        local units = floor(since / den)
        if units >= used then
          stamp, used, extra = now, 0, 0
        else
          local rest = since - units * den
          local back = ceil(rest / num)
          used, stamp, extra = used - units, now - back, back * num - rest
        end
      end
      used = used + cost
      if used > capacity then
        head = '\0\0\16\0'
      else
        head = '\0\0\16\1'
        -- A number that the server writes out costs it more.
        local lasts = string.format('%d', ceil(used * den / num / 1000) + 1 + spare)
        if call('SET', keys[key], encode('>Bc8I7I4I4', 1, name, stamp, used, extra + mark), 'PX', lasts).err then
          head, body = '\0\0\0', ''
        end
      end
    end
  end
  if not head then
    -- To make a function takes time, and more with each local of this script that it uses. So each
    -- is made when it is needed, and uses none.
    local ok, status = true, nil
    local one_of, number
    if checks > 1 or mode ~= 1 then
      -- Only all_of decides it.
    elseif windows == 0 then
      buckets_of = buckets_of or function(key, from, slots, cost, asked, now, spare)
        --{buckets.lua}
      end
      one_of, number = buckets_of, slots
    elseif slots == 0 and cost <= 8 then
      windows_of = windows_of or function(key, from, windows, cost, asked, now, spare)
        --{windows.lua}
      end
      one_of, number = windows_of, windows
    end
    if one_of and many then
      ok, status, body = pcall(one_of, keys[key], from + 5, number, cost, asked, now, spare)
    elseif one_of then
      status, body = one_of(keys[key], from + 5, number, cost, asked, now, spare)
    end
    if ok and not status then
      all_of = all_of or function(first, from, checks, mode, asked, now, spare)
        --{checks.lua}
      end
      if many then
        ok, status, body = pcall(all_of, key, from, checks, mode, asked, now, spare)
      else
        status, body, now = all_of(key, from, checks, mode, asked, now, spare)
      end
    end
    if not many then return encode('>I7I3B', now, 1 + #body, status) .. body end
    if ok then head = encode('>I3B', 1 + #body, status) else head, body = '\0\0\0', '' end
  end
  if not many then return encode('>I7', now) .. head .. body end
  n = n + 1
  answers[n], key = head .. body, key + checks
until at > #asked
return encode('>I7', now) .. table.concat(answers)
