-- Gives units back to any number of checks, or settles a reservation.
--
-- KEYS[i]      the counters of check i, of n; KEYS[n+1] the note of the reservation
-- ARGV[1]      0 to refund, 1 to settle, 2 to settle what has expired, 3 to settle
--              what came to nothing and forget it
-- ARGV[2]      the time in microseconds, in tests only; else empty
-- ARGV[4i-1]   the limits of check i; see appendSpec in protocol.go
-- ARGV[4i]     its cost, negative to charge so much more, whether it fits or not
-- ARGV[4i+1]   when the units were charged, in microseconds; 0 for the newest
-- ARGV[4i+2]   how many were in use then, without those that may have been given
--              back since, I7 for each limit that is no sliding window; empty or 0
--              if that is not known
-- ARGV[4n+3]   of a reservation: when it expires I7, lest it be another one by that
--              id; empty to settle any
-- ARGV[4n+4]   what tells this settlement from others, 16 bytes
-- ARGV[4n+5]   for how many microseconds a settlement can be repeated if nobody chose the id
-- Returns      as take.lua does: slots as they were read, facts of windows as
--              they are after the refund. Besides, status 5: it was settled
--              otherwise; 8: there is no such reservation, or not any more.
local call, pack, unpack, sub, floor, ceil = redis.call, struct.pack, struct.unpack, string.sub, math.floor, math.ceil
local now, spare = ARGV[2], 0
if now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local nowlow = now % 281474976710656
local reply, plans = {}, {}
local checks, settling, note = #KEYS, ARGV[1] ~= '0', nil
if settling then
  checks = checks - 1
  note = call('GET', KEYS[checks + 1])
  local expires = ARGV[4 * checks + 3]
  if not note or expires ~= '' and sub(note, 26, 32) ~= expires or ARGV[1] == '1' and now >= unpack('>I7', note, 33) then
    return pack('>BI7', 8, now)
  end
  local state = sub(note, 1, 1)
  if state == 's' and ARGV[1] == '1' then
    if sub(note, 40, 55) ~= ARGV[4 * checks + 4] then return pack('>BI7', 5, now) end
    local skip = unpack('>I4', note, 56)
    return sub(note, 64 + skip, 63 + skip + unpack('>I4', note, 60 + skip))
  end
  if state ~= 'o' or ARGV[1] == '1' and now >= unpack('>I7', note, 26) then return pack('>BI7', 8, now) end
end

for i = 1, checks do
  local key, spec, cost, when = KEYS[i], ARGV[4 * i - 1], tonumber(ARGV[4 * i]), tonumber(ARGV[4 * i + 1])
  local uses, more = ARGV[4 * i + 2], 0
  if cost < 0 then cost, more = 0, -cost end
  local windows, slots = string.byte(spec, 1, 2)
  local names, from = 8 * slots, 11
  local value = call('GET', key) or ''
  local plan = {key = key, cost = 0, slots = slots, windows = windows, value = value, ttl = 0, spans = {}}
  plans[i] = plan
  local states, at = value, 2 + names
  plan.own, plan.count, plan.log = sub(spec, from, from + names - 1), slots, 2 + 23 * slots
  if value == '' then
    states, at = string.rep('\0', 15 * slots), 1
  elseif sub(value, 1, 1 + names) ~= string.char(slots) .. plan.own then
    states, at = adopt(plan), 1
  end
  if slots > 0 then reply[#reply + 1] = answer_states(plan, states, at) end

  local pos = from + names
  local new, any = {}, false
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = unpack('<Bddddd', spec, pos)
    local stamp, used, extra = unpack('>I7I4I4', states, at)
    pos, at = pos + 41, at + 15
    local most = most_used(kind, capacity, num, den, period)
    if kind > 1 and kind < 5 then
      used, extra = window_used(used, extra), 0
    elseif kind == 5 then
      used, extra = join_counter(plan, j, stamp, used, extra)
    end
    local back, reset, text, plain = cost, 0, nil, mark > 0
    if plain and extra >= 1073741824 then
      extra = extra - mark
      if extra < 0 or extra >= num then extra, plain = extra + mark, false end
    end
    if kind == 1 and not plain then -- lists of different rates share it
      local b, asks = load_bucket(plan, j, num * (period / den), period, stamp, used, extra, now)
      local known = 0
      if uses ~= '' then known = unpack('>I7', uses, 7 * j - 6) end
      refund_bucket(b, cost, when, known, capacity, now)
      charge_bucket(b, more, most, now)
      local texts
      text, texts = pack_bucket(b)
      reset = busy_of(b)
      used = math.max(b.all.used, #b.own)
      plan.asks = plan.asks or asks
      if cost > 0 or more > 0 or asks then place_kin(plan, j, texts) end
    elseif kind == 6 then
      back = 0
      local longest = longest_block(num * 1000, extra)
      local reach = math.max(longest, period)
      if now >= stamp + longest then
        used, extra = 0, 0
      elseif stamp > now + reach then
        stamp = now + reach
      end
      reset = stamp + longest - now
    elseif used == 0 and extra == 0 then
      back = 0
    elseif kind == 1 then
      if extra >= num then extra = num - 1 end
      local units, rest = 0, 0
      local since = (now - stamp) * num - extra
      if since < 0 then
        stamp, extra = now, 0
      elseif since >= den then
        units, rest = refilled(now - stamp, num, den, extra)
        if units >= used then
          used = 0
        else
          local late = ceil(rest / num)
          used, stamp, extra = used - units, now - late, late * num - rest
        end
      end
      -- What has been refilled since the charge is not given back again, to the
      -- fraction of a unit: that is then one that is not refilled.
      if when ~= 0 and now > when and back > 0 and used > 0 then
        local known = 0
        if uses ~= '' then known = unpack('>I7', uses, 7 * j - 6) end
        if known == 0 then known = math.max(back, capacity) end
        units, rest = refilled(now - when, num, den, 0)
        units = units - (known - back)
        if units >= back then
          back = 0
        elseif units >= 0 then
          back = back - units
          since = (now - stamp) * num - extra - rest
          if since < 0 then
            back, since = back - 1, since + den
          end
          local late = ceil(since / num)
          stamp, extra = now - late, late * num - since
        end
      end
      reset = used * den / num
    elseif kind == 5 then
      if now >= stamp + 2 * period then
        used, extra = 0, 0
      elseif now >= stamp + period then
        stamp, used, extra = stamp + period, 0, used
      elseif now < stamp - period then
        stamp, used, extra = now - now % period, math.max(used, math.min(used + extra, most)), 0
      end
      if when == 0 then
        extra = extra - math.min(math.max(0, cost - used), extra)
      elseif when < stamp then
        back = 0
        if when >= stamp - period then extra = extra - math.min(cost, extra) end
      end
      reset = stamp + 2 * period - now
    else
      local stop, length = now + period, period
      if kind == 2 then
        stop = now - now % period + period
      elseif kind == 4 then
        if now < den or now >= period then return pack('>BI7', 2, now) end
        stop, length = period, num * 1000000
      end
      if now >= stamp then
        used = 0
      elseif now < stamp - 2 * length then
        stamp = stop
      end
      local start = stamp - period
      if kind == 4 then
        start = den
        if stamp > period then start = period end -- the clock stepped back into the window before
      end
      if when ~= 0 and when < start then back = 0 end
      reset = stamp - now
    end
    if not text then used = used - math.min(back, used) end
    if more > 0 and kind ~= 6 and not text then
      if kind == 1 then
        if used == 0 then stamp, extra = now, 0 end
        used = math.max(used, math.min(used + more, most))
        reset = used * den / num
      elseif kind == 5 then
        if used == 0 and extra == 0 then stamp = now - now % period end
        used = math.max(used, math.min(used + more, most))
        reset = stamp + 2 * period - now
      else
        if used == 0 then
          stamp = now + period
          if kind == 2 then
            stamp = now - now % period + period
          elseif kind == 4 then
            if now < den or now >= period then return pack('>BI7', 2, now) end
            stamp = period
          end
        end
        used = math.max(used, math.min(used + more, most))
        reset = stamp - now
      end
    end
    if text then
      any = any or used > 0
    elseif used == 0 and (kind ~= 5 or extra == 0) then
      stamp, extra, reset = 0, 0, 0
    else
      any = true
      extra = extra + mark
    end
    if kind > 1 and kind < 5 then
      text = pack_window(stamp, used)
    elseif kind == 5 and (cost > 0 or more > 0) then
      local texts
      text, texts = split_counter(stamp, used, extra)
      place_kin(plan, j, texts)
    end
    new[j] = text or pack('>I7I4I4', stamp, used, extra)
    -- A lowered limit can need longer than any key may live.
    if reset > plan.ttl then plan.ttl = math.min(reset, 1e16) end
  end
  plan.states = table.concat(new)

  local text = ''
  plan.idle = cost == 0 and more == 0 and not plan.asks
  if windows > 0 and more > 0 then
    local facts = {}
    look(plan, spec, pos, nowlow, now, facts)
    plan.cost = math.min(more, 1000000000 - (sum(plan, plan.n) - sum(plan, plan.within - 1)))
    plan.adds = plan.cost > 0
    for j = 1, windows do
      local used, _, newest = unpack('>I4I6I6', facts[j])
      if plan.adds then used, newest = math.min(used + plan.cost, 4294967295), 0 end
      reply[#reply + 1] = pack('>I4I6I6', used, 0, newest)
    end
    if not plan.adds then
      text, plan.base = entries(plan, plan.live), (plan.base + sum(plan, plan.live - 1)) % 1099511627776
      if plan.stepped then text = clamp(text, plan.size, nowlow) end
    end
  elseif windows > 0 then
    open(plan)
    if plan.n > 0 then
      local newest = age(plan, plan.n, nowlow)
      inherit(plan, now, newest)
      -- What was forgotten by the newest entry stays so: it must not come back when that
      -- one is gone.
      local gone = within(plan, plan.n, newest + reach(plan, now - newest), nowlow) - 1
      settle(plan, now - newest, now)
      -- The newest entry that may be given back, and the first that is emptied.
      local last = plan.n
      while when ~= 0 and last > 0 and when < now - math.max(0, age(plan, last, nowlow)) do last = last - 1 end
      last = math.max(last, gone)
      local from, left, cut = last, cost, nil
      while from > gone and left > 0 do
        local size = sum(plan, from) - sum(plan, from - 1)
        if size > left then
          cut = sum(plan, from) - left
          left = 0
          break
        end
        left, from = left - size, from - 1
      end
      local given = cost - left
      local size, base = plan.size, (plan.base + sum(plan, gone)) % 1099511627776
      if size == 6 then base = 0 end
      text = entries(plan, 1)
      local rest = sub(text, size * last + 1)
      if size == 6 then
        text = sub(text, 6 * gone + 1, 6 * from) .. rest
      else
        local parts = {sub(text, 11 * gone + 1, 11 * from)}
        if cut then
          parts[1] = sub(text, 11 * gone + 1, 11 * from - 5) .. pack('>I5', (plan.base + cut) % 1099511627776)
        end
        for at = 1, #rest, 11 do
          local total = unpack('>I5', rest, at + 6)
          parts[#parts + 1] = sub(rest, at, at + 5) .. pack('>I5', (total - given) % 1099511627776)
        end
        text = table.concat(parts)
      end
      -- The facts are read from what is written: the log as it is now.
      if newest < 0 then text = clamp(text, size, nowlow) end
      plan.value, plan.base = sub(plan.value, 1, plan.first - 1) .. text, base
      plan.n, plan.have, plan.tail = #text / size, #text / size, ''
    end
    local spot, far, newest = pos, reach(plan, now), 0
    if plan.n > 0 then newest = math.max(0, age(plan, plan.n, nowlow)) end
    for j = 1, windows do
      local count, period = unpack('>I4I7', spec, spot)
      spot = spot + 11
      local first, late = within(plan, count, math.min(period, far), nowlow), 0
      local used = sum(plan, plan.n) - sum(plan, first - 1)
      if first <= plan.n then late = leaving(plan, newest, period, now) end
      reply[#reply + 1] = pack('>I4I6I6', math.min(used, 4294967295), 0, late)
    end
  else
    keepLog(plan, now)
  end

  if value ~= '' and not plan.idle then
    if not any and more == 0 and text == '' and (plan.others or 0) == 0 and not plan.logged then
      plan.gone = true
    end
    plan.text = text
  end
end

for i = 1, #plans do
  local plan = plans[i]
  if plan.gone then
    call('DEL', plan.key)
  elseif plan.adds then
    add(plan, nowlow, now, spare)
  elseif not plan.idle and (plan.value ~= '' or plan.ttl > 0) then
    if plan.windows > 0 and (plan.text or '') ~= '' then
      store(plan, plan.size, plan.base, plan.text, now, spare)
    else
      put(plan, now, spare)
    end
  end
end
local answer = pack('>BI7', 1, now) .. table.concat(reply)
if ARGV[1] == '3' then
  call('DEL', KEYS[checks + 1])
elseif settling then
  local state = 's'
  if ARGV[1] == '2' then state = 'x' end
  local skip = unpack('>I4', note, 56)
  local other = unpack('>I4', note, 60 + skip)
  -- An open note is kept longer in case nobody settles it.
  local forgotten = unpack('>I7', note, 33)
  if string.byte(note, 40) == 1 then forgotten = now + ARGV[4 * checks + 5] end
  call('SET', KEYS[checks + 1], state .. sub(note, 2, 32) .. pack('>I7', forgotten) .. ARGV[4 * checks + 4] .. sub(note, 56, 59 + skip)
    .. pack('>I4', #answer) .. answer .. sub(note, 64 + skip + other),
    'PX', math.max(1, ceil((forgotten - now) / 1000)) + spare)
end
return answer
