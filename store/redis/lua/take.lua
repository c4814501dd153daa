-- Takes or peeks at any number of requests, one after the other, each by itself.
--
-- KEYS     the counters of each check of each request; then, of a request with an id, its note
-- ARGV[1]  what is asked, for each request: its number of checks B, or 0 if it is as the one
--          before but for the keys, and then nothing else; 0 to peek, 1 to take, 2 to take a
--          request that has an id, which is then the only one, B; the length of what follows I3;
--          and for each check
--          1 for a shadow B (it has no say in whether the others are admitted, and is charged with
--          them if its limits admit), its limits and its cost; see appendSpec in protocol.go
-- ARGV[2]  the time in microseconds, in tests only; else empty, or nothing if no argument follows
-- ARGV[3]  with an id, what tells this request from others, 16 bytes, and its limits from others,
--          8 bytes
-- ARGV[4]  for how many microseconds the id is remembered
-- ARGV[5]  for how many more a settlement can be repeated
-- ARGV[6]  1 if the caller chose the id: a denial is remembered too
-- ARGV[7]  what else to note
-- ARGV[8]  for how many milliseconds more the note is kept, unsettled
-- Returns  time I7, and for each request the length of what follows I3, a status B, and what
--          checks.lua returns. Status: 0 denied, 1 admitted and charged, 2 a calendar window does not
--          contain the time, 3 and 4 as 0 and 1, and the one counter follows as it was
--          stored, 5 the id is that of another request, 6 and 7 it was denied, or admitted, under
--          other limits than these, 8 its reservation has expired.
--          With 2 and 5 to 8 nothing was done, and nothing else is returned. If the server refused something to one
--          of several requests, the length is 0. A request with an id that is repeated is answered
--          as it was the first time.
--
-- A note is: its state (o open, s settled, x expired), the request 16 bytes, its
-- limits 8 bytes, when it expires I7 and is forgotten I7, what it was settled at 16
-- bytes (until then 1 if nobody chose the id), the answer (status B, time I7, the rest) and that to
-- the settlement (their length I4 before each), and what else to note.
local keys, decode, encode, byte, sub = KEYS, struct.unpack, struct.pack, string.byte, string.sub
local asked, now, spare, call = ARGV[1], ARGV[2], 0, redis.call
if now and now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local at, key, many, answers, n, last = 1, 1, false, nil, 0, #asked
local from, checks, mode, windows, slots
-- A single limit is by far the most frequent. Decided by plain.lua, it would cost the server
-- a sixth more alone, and half more in a shared call.
local one, name, kind, cost, capacity, num, den, period, mark
-- A counter is: the number of its states and their names, which is the front, and the states. That
-- of a bucket has a further one if its numbers leave no room for a mark, and that of a sliding
-- counter once its numbers are large; see algorithm/marks.go.
local kin, count, front
local plain_of, windows_of, all_of
repeat
  if n > 0 and byte(asked, at) == 0 then
    at = at + 1
  else
    local number, way, l1, l2, l3, _, w, s = byte(asked, at, at + 7)
    checks, mode, windows, slots = number, way, w, s
    from = at + 5
    at = from + (l1 * 256 + l2) * 256 + l3
    one = checks == 1 and mode == 1 and windows == 0 and slots == 1
    if one then
      cost, name, kind, capacity, num, den, period, mark = decode('<dc8Bddddd', asked, from + 3)
      one, kin = kind ~= 6, nil
      if kind == 1 and mark == 0 then
        kin, count, mark = 1, num * (period / den), 2147483648
        if count > 1000000000 then kin, mark = 6, 2684354560 elseif capacity > 1000000000 then one = false end
      end
      front = nil
    end
    if n == 0 and at <= last then many, call, answers = true, redis.pcall, {} end
  end
  local head, body
  if mode == 2 then
    local note, prints = call('GET', keys[checks + 1]), ARGV[3]
    if note and now < decode('>I7', note, 33) then
      local status, answered = nil, now
      body = ''
      if string.sub(note, 2, 17) ~= string.sub(prints, 1, 16) then
        status = 5
      elseif now >= decode('>I7', note, 26) then
        status = 8
      elseif string.sub(note, 18, 25) ~= string.sub(prints, 17) then
        status = 6 + string.byte(note, 60)
      else
        status, answered = decode('>BI7', note, 60)
        body = string.sub(note, 68, 59 + decode('>I4', note, 56))
      end
      return encode('>I7I3B', answered, 1 + #body, status) .. body
    end
  end
  if one then
    local counter = keys[key]
    local value = call('GET', counter)
    local plain, further, weight, lasts, kept = true, kin, 0, 0, false
    local stamp, used, extra, c, d, e = now, 0, 0, nil, nil, nil
    if not front and (kin or kind == 5 and value and #value == 47) then
      local top, rest = decode('>I2I6', name)
      front = encode('>Bc8I2I6', 2, name, top + (kin or 6), rest)
    end
    if value then
      local written
      if not kin and #value == 24 then
        local states
        states, written, stamp, used, extra = decode('>Bc8I7I4I4', value)
        plain = states == 1 and written == name
      elseif front and #value == 47 then
        written, stamp, used, extra, c, d, e = decode('>c17I7I4I4I7I4I4', value)
        plain, further = written == front, kin or 6
      else
        plain = false
      end
      extra = extra - mark
    end
    if plain then
      --{advance.lua}
    end
    if plain then
      local admitted = weight <= capacity
      if not value then
        head, body = admitted and '\0\0\16\1' or '\0\0\16\0', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
      elseif further then
        head, body = admitted and '\0\0\48\4' or '\0\0\48\3', value
      else
        head, body = admitted and '\0\0\25\4' or '\0\0\25\3', value -- to cut it would cost a string
      end
      if admitted then
        if further then
          value = encode('>c17I7I4I4I7I4I4', front, stamp, used, extra + mark, c, d, e)
        else
          value = encode('>Bc8I7I4I4', 1, name, stamp, used, extra + mark)
        end
        local answer
        if kept then -- to set when it expires would cost a fifth more
          answer = call('SET', counter, value, 'KEEPTTL')
        else -- a number that the server writes out would cost more
          answer = call('SET', counter, value, 'PX', string.format('%d', lasts / 1000 + 2 + spare))
        end
        if answer.err then
          head, body = '\0\0\0', ''
        end
      end
    end
  end
  if not head then
    -- To make a function takes time, and more with each local of this script that it uses. So each
    -- is made when it is needed, and uses none.
    local ok, status = true, nil
    local simple
    if windows == 0 then
      plain_of = plain_of or function(first, from, checks, mode, asked, now, spare)
        --{plain.lua}
      end
      simple = plain_of
    elseif slots == 0 and mode == 1 and checks == 1 then
      windows_of = windows_of or function(first, from, checks, mode, asked, now, spare)
        --{windows.lua}
      end
      simple = windows_of
    end
    if simple and many then
      ok, status, body = pcall(simple, key, from, checks, mode, asked, now, spare)
    elseif simple then
      status, body = simple(key, from, checks, mode, asked, now, spare)
    end
    if ok and not status then
      all_of = all_of or function(first, from, checks, mode, asked, now, spare)
        --{checks.lua}
      end
      if many then
        ok, status, body = pcall(all_of, key, from, checks, mode, asked, now, spare)
      else
        status, body = all_of(key, from, checks, mode, asked, now, spare)
      end
    end
    if mode == 2 and (status == 1 or status == 0 and ARGV[6] == '1') then
      local expires = now + ARGV[4]
      local forgotten = expires
      if status == 1 then forgotten = expires + ARGV[5] end
      call('SET', keys[checks + 1], 'o' .. ARGV[3] .. encode('>I7I7', expires, forgotten)
        .. (ARGV[6] == '1' and '\0' or '\1') .. string.rep('\0', 15)
        .. encode('>I4BI7', 8 + #body, status, now) .. body .. '\0\0\0\0' .. ARGV[7],
        'PX', math.ceil((forgotten - now) / 1000) + ARGV[8] + spare)
    end
    if not many then return encode('>I7I3Bc0', now, 1 + #body, status, body) end
    if ok then head = encode('>I3B', 1 + #body, status) else head, body = '\0\0\0', '' end
  end
  if not many then return encode('>I7c0c0', now, head, body) end
  answers[n + 1], answers[n + 2] = head, body
  n, key = n + 2, key + checks
until at > last
return encode('>I7', now) .. table.concat(answers)
