-- The log of sliding windows, and values written under other limits. Prepended to
-- take.lua and refund.lua, which describe the format. What spans are for stands in
-- algorithm/span.go.

-- Whether a name of a slot, by its second byte, is that of a high half; see algorithm/marks.go.
local function is_half(kind) return kind % 16 >= 6 and (kind < 48 or kind >= 80) end

-- The state of a slot that is not there. It is free, unless a program that did not tell the time zones
-- of calendar windows apart kept it under the name of a limit in UTC; see algorithm.WithoutZone.
local days = {[52] = 1, [53] = 7, [54] = 31, [55] = 366}
local function without_zone(name, places, texts)
  local n = days[string.byte(name, 2)]
  local older = n and places[string.sub(name, 1, 2) .. struct.pack('>I6', n * 86400000000)]
  if older and struct.unpack('>I7', texts[older]) % 86400000000 ~= 0 then return texts[older] end
  return string.rep('\0', 15)
end

-- Reads a value whose slots are not just those of our limits: another version of the
-- rule, a tariff or an override may have slots in it besides, and a log has spans. Sets
-- names and texts, of all slots in the order of the value; mine, the places of ours in
-- it; others, how many are neither ours nor spans; and spans. Returns the states of our
-- slots.
local function adopt(plan)
  local value, slots = plan.value, plan.slots
  local count = string.byte(value, 1)
  local names, texts, mine, ours, places = {}, {}, {}, {}, {}
  plan.names, plan.texts, plan.mine, plan.count = names, texts, mine, count
  plan.log = 2 + 23 * count
  for i = 1, count do
    local name, from = string.sub(value, 8 * i - 6, 8 * i + 1), 15 * i + 8 * count - 13
    local text = string.sub(value, from, from + 14)
    names[i], texts[i], places[name] = name, text, i
    local kind, horizon = struct.unpack('>I2I6', name)
    if kind == 64 then
      local stop, short, most = struct.unpack('>I7I4I4', text)
      plan.spans[#plan.spans + 1] = {place = i, horizon = horizon, stop = stop, short = short, most = most}
    end
  end
  plan.others = count - #plan.spans
  for j = 1, slots do
    local name = string.sub(plan.own, 8 * j - 7, 8 * j)
    local i = places[name]
    if not i then
      i = #names + 1
      names[i], texts[i], plan.moves = name, without_zone(name, places, texts), true
    else
      plan.others = plan.others - 1
    end
    mine[j], ours[j] = i, texts[i]
    local kind = string.byte(name, 2)
    if kind == 80 then -- a sliding counter, which can have a high half
      local place = places[string.sub(name, 1, 1) .. string.char(86) .. string.sub(name, 3)]
      if place then
        plan.kin, plan.others = plan.kin or {}, plan.others - 1
        plan.kin[j] = {[6] = place}
      end
    elseif kind == 16 or kind == 32 then -- a bucket, which can have further slots
      local kin
      for k = 1, 11 do
        local place = places[string.sub(name, 1, 1) .. string.char(kind + k) .. string.sub(name, 3)]
        if place then
          kin = kin or {}
          kin[k], plan.others = place, plan.others - 1
        end
      end
      local stamp, used, extra = struct.unpack('>I7I4I4', ours[j])
      if kin or extra >= 2147483648 and extra < 3221225472 then
        plan.kin = plan.kin or {}
        plan.kin[j] = kin
        -- A program that knows of no further slots has written the first one.
        if extra < 1073741824 then ours[j] = struct.pack('>I7I4I4', stamp, used, extra + 2147483648) end
      end
    end
  end
  return table.concat(ours)
end

-- All states of a value, ours among the others and the spans of its log.
local function join(plan, states)
  if not plan.names then
    local s = plan.spans[1]
    if not s or not s.place then return states end
    return states .. struct.pack('>I7I4I4', s.stop, s.short, s.most)
  end
  for j = 1, #plan.mine do
    local i = plan.mine[j]
    plan.texts[i] = string.sub(states, 15 * j - 14, 15 * j)
  end
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.place then plan.texts[s.place] = struct.pack('>I7I4I4', s.stop, s.short, s.most) end
  end
  return table.concat(plan.texts)
end

-- For how long what is free is kept, so that a clock that steps back finds it again.
local grace = 60000000

-- The most slots in a value, spans included: as many as are read with the first bytes.
local most_slots = 36

-- Chooses the slots of a value that is written anew: ours, and others that are not free,
-- for a version of the rule with these limits may still be in use. A bucket refills a
-- unit in a period at least; a penalty tells its longest block; what tells the count of a
-- bucket stays with that, which stands before it. Where there are too many, those that are
-- free last stay.
local function choose(plan, states, now)
  local names, texts, others, ours, frees = {}, {}, {}, {}, {}
  for j = 1, plan.slots do
    names[j] = string.sub(plan.own, 8 * j - 7, 8 * j)
    frees[names[j]] = math.huge
  end
  for _, i in ipairs(plan.mine or {}) do ours[i] = true end
  for i = 1, #(plan.names or {}) do
    local kind, period = struct.unpack('>xBI6', plan.names[i])
    local half = is_half(kind)
    kind = math.floor(kind / 16)
    if not ours[i] and kind ~= 4 then
      local stamp, used, extra = struct.unpack('>I7I4I4', plan.texts[i])
      local free = stamp
      if half then
        local name = plan.names[i]
        free = frees[string.sub(name, 1, 1) .. string.char(string.byte(name, 2) - 6) .. string.sub(name, 3)] or 0
      elseif kind == 1 or kind == 2 then
        local name = plan.names[i]
        if used == 0 and extra >= 3221225472 then
          free = frees[string.sub(name, 1, 1) .. string.char(16 * kind) .. string.sub(name, 3)] or 0
        else
          free = stamp + used * period
          frees[name] = free
        end
      end
      if kind == 5 and not half then
        free = stamp + 2 * period
        frees[plan.names[i]] = free
      end
      if kind == 6 then free = stamp + math.max(4 * period, math.floor(extra / 64) * 1000000) end
      if free + grace > now then others[#others + 1] = {i, free} end
    end
  end
  local room = most_slots - plan.slots - #plan.spans
  if #others > room then
    table.sort(others, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
  end
  for i = 1, math.min(#others, room) do
    names[#names + 1], texts[#texts + 1] = plan.names[others[i][1]], plan.texts[others[i][1]]
  end
  if plan.logged then
    for k = 1, #plan.spans do
      local s = plan.spans[k]
      if s.stop + grace > now then
        names[#names + 1] = struct.pack('>I2I6', 64, s.horizon)
        texts[#texts + 1] = struct.pack('>I7I4I4', s.stop, s.short, s.most)
      end
    end
  end
  return string.char(#names) .. table.concat(names) .. states .. table.concat(texts)
end

-- For how long a value is needed that has slots of others: for as long as they asked.
local function lasting(plan, now, spare)
  local ttl = plan.ttl
  for k = 1, #plan.spans do ttl = math.max(ttl, plan.spans[k].stop - now) end
  if (plan.others or 0) > 0 then
    local left = redis.pcall('PTTL', plan.key)
    if type(left) == 'number' then
      ttl = math.max(ttl, (left - spare) * 1000)
    else -- this user may not ask
      for i = 1, #plan.names do
        local kind, period = struct.unpack('>xBI6', plan.names[i])
        if kind ~= 64 and not is_half(kind) then ttl = math.max(ttl, struct.unpack('>I7', plan.texts[i]) + 4 * period - now) end
      end
    end
  end
  return math.ceil(math.min(ttl, 1e16) / 1000) + 1 + spare
end

-- A log of other lists, of a rule without windows, is kept until it would expire.
local function keepLog(plan, now)
  if #plan.value >= plan.log + 12 then
    local expires = struct.unpack('>I7', plan.value, plan.log + 1)
    if expires + grace > now then
      plan.logged = true
      plan.ttl = math.max(plan.ttl, expires - now)
    end
  end
end

-- Writes a value of a rule without windows: only our states, if there is a log behind them.
local function put(plan, now, spare)
  local ttl = lasting(plan, now, spare)
  if plan.logged and not plan.moves then
    redis.call('SETRANGE', plan.key, 1 + 8 * plan.count, join(plan, plan.states))
    redis.call('PEXPIRE', plan.key, ttl)
    return
  end
  local kept = ''
  if plan.logged then kept = redis.call('GETRANGE', plan.key, plan.log - 1, -1) end
  redis.call('SET', plan.key, choose(plan, plan.states, now) .. kept, 'PX', ttl)
end

-- Opens the log behind a value's slots: sets size, of an entry; n, their number;
-- base, the sum before the first; and chunks of text that hold the first and the
-- last entries. plan.value has the first 1,024 bytes of the value, or all of it.
local function open(plan)
  local value, from = plan.value, plan.log
  plan.size, plan.n, plan.base, plan.expires, plan.have = 6, 0, 0, 0, 0
  if #value < from + 12 then return end
  plan.size, plan.expires, plan.base = struct.unpack('>BI7I5', value, from)
  plan.first = from + 13 -- where entries begin, from 1
  local length = #value
  if length == 1024 then
    length = redis.call('STRLEN', plan.key)
  end
  plan.n = (length - plan.first + 1) / plan.size
  plan.have = math.floor((#value - plan.first + 1) / plan.size)
  plan.tailfrom = 1 -- the first entry in plan.tail
  plan.tail = ''
  if plan.have < plan.n then
    plan.tailfrom = math.max(plan.have + 1, plan.n - 63)
    plan.tail = redis.call('GETRANGE', plan.key, plan.first - 1 + (plan.tailfrom - 1) * plan.size, -1)
  end
end

-- The text that entry i is in, and where.
local function locate(plan, i)
  if i <= plan.have then return plan.value, plan.first + (i - 1) * plan.size end
  if i >= plan.tailfrom then return plan.tail, 1 + (i - plan.tailfrom) * plan.size end
  local at = plan.first - 1 + (i - 1) * plan.size
  return redis.call('GETRANGE', plan.key, at, at + plan.size - 1), 1
end

-- How long ago entry i was admitted; negative if the clock has stepped back.
local function age(plan, i, nowlow)
  local text, at = locate(plan, i)
  local a = (nowlow - struct.unpack('>I6', text, at)) % 281474976710656
  if a > 140737488355328 then a = a - 281474976710656 end
  return a
end

-- The sum of all units up to entry i, without the base.
local function sum(plan, i)
  if plan.size == 6 then return i end
  if i == 0 then return 0 end
  local text, at = locate(plan, i)
  return (struct.unpack('>I5', text, at + 6) - plan.base) % 1099511627776
end

-- The first entry younger than period, or n + 1.
local function within(plan, count, period, nowlow)
  local n = plan.n
  if n == 0 or age(plan, n, nowlow) >= period then return n + 1 end
  local low, high = 0, n -- low is older, or 0; high is inside
  -- A full window of unit costs begins count units back: look there first.
  if n > count and plan.size == 6 then
    if age(plan, n - count + 1, nowlow) < period then high = n - count + 1 else low = n - count + 1 end
    if low == 0 then
      if age(plan, n - count, nowlow) >= period then return n - count + 1 end
      high = n - count
    end
  end
  -- Narrow to one of the chunks, where a look costs no call.
  if high > plan.have and low < plan.tailfrom and plan.tail ~= '' then
    if age(plan, plan.tailfrom, nowlow) >= period then
      low = plan.tailfrom
    else
      high = plan.tailfrom
      if low < plan.have and age(plan, plan.have, nowlow) < period then high = plan.have end
    end
  end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if age(plan, middle, nowlow) < period then high = middle else low = middle end
  end
  return high
end

-- The longest of a rule's windows, and the largest of their counts: what it needs of
-- its log.
local function needs(plan, spec, pos)
  plan.longest, plan.most = 0, 0
  for j = 1, plan.windows do
    local count, period = struct.unpack('>I4I7', spec, pos + 11 * (j - 1))
    plan.longest, plan.most = math.max(plan.longest, period), math.max(plan.most, count)
  end
end

-- How far back a log remembers at a time.
local function reach(plan, at)
  local longest = 0
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.stop > at and s.horizon > longest then longest = s.horizon end
  end
  return longest
end

-- A program that knows no spans has charged the log if that expires later than they end.
local function inherit(plan, now, newest)
  local expires = plan.expires
  if plan.n == 0 or expires <= now - newest then return end
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.stop >= expires then return end
  end
  plan.spans[#plan.spans + 1] = {horizon = expires - now + newest, stop = expires, short = 0, most = 1000000}
  plan.moves = true
end

-- Drops the spans that had ended at a time and, if that is one of a clock that has stepped
-- back since, has the others follow it.
local function settle(plan, at, now)
  local kept = {}
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.stop > at then
      if at > now then s.stop = math.min(s.stop, now + s.horizon + math.floor(s.horizon / 8)) end
      kept[#kept + 1] = s
    end
  end
  plan.spans = kept
end

-- The age at which a unit would leave a window when this one is forgotten or leaves it,
-- whichever comes first.
local function leaving(plan, age, period, now)
  local left = 0
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    left = math.max(left, math.min(s.stop - now, s.horizon - age))
  end
  return math.max(age, period - left)
end

-- Decides the windows of a rule, whose limits stand in spec from pos on, and adds
-- their facts to reply.
local function look(plan, spec, pos, nowlow, now, reply)
  open(plan)
  needs(plan, spec, pos)
  local n, cost, fits, newest = plan.n, plan.cost, true, 0
  local total = sum(plan, n)
  if n > 0 then
    newest = age(plan, n, nowlow)
    inherit(plan, now, newest)
  end
  local far
  if newest < 0 then
    -- The clock has stepped back. What was forgotten by the newest entry stays so.
    far = reach(plan, now - newest) + newest
    settle(plan, now - newest, now)
    plan.stepped, newest = true, 0
  else
    far = reach(plan, now)
  end
  plan.far, plan.live, plan.within = far, nil, nil
  for j = 1, plan.windows do
    local count, period = struct.unpack('>I4I7', spec, pos)
    pos = pos + 11
    local first = within(plan, count, math.min(period, far), nowlow)
    local used, blocking = total - sum(plan, first - 1), 0
    if used + cost > count then
      fits = false
      if cost <= count then
        local unit = total + cost - count
        local low, high = 0, n
        if plan.size == 6 then
          high = unit
        else
          while high - low > 1 do
            local middle = math.floor((low + high) / 2)
            if sum(plan, middle) >= unit then high = middle else low = middle end
          end
        end
        blocking = leaving(plan, math.max(0, age(plan, high, nowlow)), period, now)
      end
    end
    if first <= n then
      reply[#reply + 1] = struct.pack('>I4I6I6', math.min(used, 4294967295), blocking, leaving(plan, newest, period, now))
    else
      reply[#reply + 1] = struct.pack('>I4I6I6', 0, 0, 0)
    end
    if period == plan.longest then plan.within = first end
    if period >= far then plan.live = first end
  end
  if not plan.live then plan.live = within(plan, n, far, nowlow) end
  return fits
end

-- The entries from i on, as text.
local function entries(plan, i)
  if i > plan.n then return '' end
  if plan.have == plan.n then return string.sub(plan.value, plan.first + (i - 1) * plan.size) end
  return redis.call('GETRANGE', plan.key, plan.first - 1 + (i - 1) * plan.size, -1)
end

-- When the last span of a log ends.
local function ends(plan)
  local stop = 0
  for k = 1, #plan.spans do stop = math.max(stop, plan.spans[k].stop) end
  return stop
end

-- Writes a whole value with a log.
local function store(plan, size, base, text, now, spare)
  local ttl = lasting(plan, now, spare)
  plan.logged = true
  redis.call('SET', plan.key, choose(plan, plan.states, now) .. struct.pack('>BI7I5', size, ends(plan), base) .. text,
    'PX', ttl)
end

-- The text with each entry turned into one of 11 bytes. So many units came before it.
local function widen(text, units)
  local wide = {}
  for j = 1, #text / 6 do
    wide[j] = string.sub(text, 6 * j - 5, 6 * j) .. struct.pack('>I5', units + j)
  end
  return table.concat(wide)
end

-- The text with entries that lie in the future moved to now.
local function clamp(text, size, nowlow)
  local j = #text / size
  local late = {}
  while j > 0 do
    local a = (nowlow - struct.unpack('>I6', text, size * (j - 1) + 1)) % 281474976710656
    if a <= 140737488355328 then break end
    table.insert(late, 1, struct.pack('>I6', nowlow) .. string.sub(text, size * (j - 1) + 7, size * j))
    j = j - 1
  end
  return string.sub(text, 1, size * j) .. table.concat(late)
end

-- Writes the states of a value whose log stays where it is, and has it live for as long
-- as it is needed. entry is appended to the log.
local function update(plan, entry, now, spare)
  local states, stop = join(plan, plan.states), ends(plan)
  local from, lasts = 1 + 8 * plan.count, stop ~= plan.expires
  if lasts then
    redis.call('SETRANGE', plan.key, from, states .. struct.pack('>BI7', plan.size, stop))
  elseif states ~= string.sub(plan.value, from + 1, from + #states) then
    redis.call('SETRANGE', plan.key, from, states)
  end
  if entry ~= '' then redis.call('APPEND', plan.key, entry) end
  if lasts or now + plan.ttl > stop then
    -- The server deletes the key at once if it was held up for so long that the time
    -- has passed: nothing must be written after that.
    redis.call('PEXPIRE', plan.key, lasting(plan, now, spare))
  end
end

-- Sees to it that a charge is remembered for as long as its list of limits needs it.
-- Returns whether the log is to be squeezed.
local function cover(plan, now)
  local longest, before, best = plan.longest, reach(plan, now), nil
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.horizon >= longest and s.stop >= now + longest and (not best or s.horizon < best.horizon) then best = s end
  end
  if best then
    best.most = math.max(best.most, plan.most)
  else
    best = {horizon = longest, stop = now + longest + math.floor(longest / 8), short = 0, most = plan.most}
    local kept, shortest = {}, nil
    for k = 1, #plan.spans do
      local s = plan.spans[k]
      if s.horizon > longest and s.stop > now then
        kept[#kept + 1] = s
        if not shortest or s.horizon < shortest.horizon then shortest = s end
      else
        if s.stop > now then
          best.most, best.short = math.max(best.most, s.most), math.max(best.short, s.short)
        end
        if s.horizon == longest then
          best.place = s.place
        elseif s.place and plan.names then
          plan.texts[s.place] = string.rep('\0', 15)
        else
          plan.moves = true
        end
      end
    end
    if #kept < 4 then
      kept[#kept + 1] = best
    else
      shortest.stop, shortest.most = math.max(shortest.stop, best.stop), math.max(shortest.most, best.most)
      shortest.short = math.max(shortest.short, best.short)
      if best.place then plan.texts[best.place] = string.rep('\0', 15) end -- there are more slots than ours
      best = shortest
    end
    plan.spans = kept
  end
  local due = false
  if longest < before then
    best.short = best.short + 1
    if best.short >= 1024 or sum(plan, plan.n) - sum(plan, plan.live - 1) > 2000000000 then
      best.short, due = 0, true
    end
  end
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if not s.place then plan.moves = true end
  end
  return due, longest > before
end

-- The first entry to keep of a log that is squeezed, and the sum of the units that are
-- not. What is before the entry, and not left out, becomes part of it.
local function squeeze(plan, now)
  local n, live, most = plan.n, plan.live, 0
  for k = 1, #plan.spans do
    local s = plan.spans[k]
    if s.stop > now then most = math.max(most, s.most) end
  end
  local total, out = sum(plan, n), sum(plan, live - 1)
  local low, high = live - 1, n + 1 -- low has enough units behind it, high has not
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if total - sum(plan, middle) >= most then low = middle else high = middle end
  end
  local first = low
  while first >= live and first < n do -- units of one time stay together
    local x, i = locate(plan, first)
    local y, j = locate(plan, first + 1)
    if string.sub(x, i, i + 5) ~= string.sub(y, j, j + 5) then break end
    first = first - 1
  end
  first = math.max(live, math.min(first, plan.within - 1))
  if total - out > 1000000000 then out = math.max(out, math.min(total - 1000000000, sum(plan, first) - 1)) end
  return first, out
end

-- Charges the log of a check that is admitted, and stores the states of its
-- other limits.
local function add(plan, nowlow, now, spare)
  local cost, n, size = plan.cost, plan.n, plan.size
  local dead = plan.live - 1
  local stepped = plan.stepped
  local small = cost <= 8
  local due, grows = cover(plan, now)
  if dead >= n then -- nothing to keep
    local entry = struct.pack('>I6', nowlow)
    if small then
      store(plan, 6, 0, string.rep(entry, cost), now, spare)
    else
      store(plan, 11, 0, entry .. struct.pack('>I5', cost), now, spare)
    end
    return
  end
  local total = sum(plan, n)
  local text
  if plan.moves or due or stepped or grows and dead > 0 or size == 6 and not small or dead > 64 and dead > n / 8 then
    local first, out = plan.live, sum(plan, dead)
    if due then first, out = squeeze(plan, now) end
    text = entries(plan, first)
    plan.base = (plan.base + out) % 1099511627776
    if stepped then text = clamp(text, size, nowlow) end
    total = total - out
    if size == 6 then
      plan.base = 0
      if not small or first - 1 > out then text, size = widen(text, first - 1 - out), 11 end
    end
    plan.size = size
  end
  local entry = struct.pack('>I6', nowlow)
  if size == 6 then
    entry = string.rep(entry, cost)
  else
    entry = entry .. struct.pack('>I5', (plan.base + total + cost) % 1099511627776)
  end
  if text then
    store(plan, size, plan.base, text .. entry, now, spare)
    return
  end
  update(plan, entry, now, spare)
end
