-- Decides a request of any kind: all of its checks are charged or none. It is the body of a function
-- in take.lua, of
--
--   first   where the keys of the checks begin in KEYS
--   from    where they stand in what is asked
--   checks  how many there are
--   mode    0 to peek, else to take
--   asked, now, spare  as there
--
-- It returns the status, and for each check the slots that were read (15 bytes for each) and the facts
-- of its windows (I4 units in use, I6 age of the blocking unit, I6 age of the newest).
--
-- A value is: the number of slots B, their names 8 bytes each, their states
-- (stamp I7, used I4, extra I4), then perhaps a log. A log is: entry size B, when
-- its last span ends I7, the sum before the first entry I5, entries. An entry of 6
-- bytes is the time of one unit, modulo 2^48; one of 11 has the sum of all units
-- up to it, modulo 2^40, behind the time. A span of the log is a slot named as that of
-- a sliding window, whose period is the horizon: its stamp is when it ends, its used the
-- charges under shorter lists, its extra the largest count. Programs that know no spans
-- keep such slots until then.
local call, unpack, pack, sub, floor, ceil = redis.call, struct.unpack, struct.pack, string.sub, math.floor, math.ceil
local take, admitted, reply, plans = mode > 0, true, {}, {}
local nowlow = now % 281474976710656
for i = 1, checks do
  local key = KEYS[first + i - 1]
  local flags, windows, slots, cost = unpack('<BBBd', asked, from)
  local fits, shadow = true, flags == 1
  local names, pos = 8 * slots, from + 11
  local value = call('GETRANGE', key, '0', '1023')
  local plan = {key = key, cost = cost, slots = slots, windows = windows, value = value, ttl = 0, spans = {}}
  plans[i] = plan

  -- Where our slots stand in the value. Other limits may have written it, and a log has
  -- slots besides: then ours are looked up by name, and the others are kept.
  local states, at = value, 2 + names
  plan.own, plan.count, plan.log = sub(asked, pos, pos + names - 1), slots, 2 + 23 * slots
  if value == '' then
    states, at = string.rep('\0', 15 * slots), 1
  elseif sub(value, 2, 1 + names) ~= plan.own or string.byte(value) ~= slots then
    local kind, horizon
    if string.byte(value) == slots + 1 then kind, horizon = unpack('>I2I6', value, 2 + names) end
    if kind == 64 and sub(value, 2, 1 + names) == plan.own then -- as it mostly is: a span behind ours
      local stop, short, most = unpack('>I7I4I4', value, 10 + names + 15 * slots)
      plan.count, plan.log, at = slots + 1, 25 + 23 * slots, 10 + names
      plan.spans[1] = {place = slots + 1, horizon = horizon, stop = stop, short = short, most = most}
    else
      states, at = adopt(plan), 1
    end
  end
  if windows == 0 and #value > plan.log + 11 then keepLog(plan, now) end
  if slots > 0 then reply[#reply + 1] = answer_states(plan, states, at) end

  pos = pos + names
  local new, moved, penalty, blocked = {}, nil, nil, false
  for j = 1, slots do
    local kind, capacity, num, den, period, mark = unpack('<Bddddd', asked, pos)
    local stamp, used, extra = unpack('>I7I4I4', states, at)
    pos, at = pos + 41, at + 15
    local most = most_used(kind, capacity, num, den, period)
    local reset, back -- back: the clock has stepped back, and the counter follows
    local plain = mark > 0 -- no list of another rate has charged it
    if plain and extra >= 1073741824 then
      extra = extra - mark
      if extra < 0 or extra >= num then extra, plain = extra + mark, false end
    end
    if kind == 1 and not plain then -- lists of different rates share it
      local b
      b, back = load_bucket(plan, j, num * (period / den), period, stamp, used, extra, now)
      plan.shared = plan.shared or {}
      local shared = {}
      if back then shared.first, shared.moved = pack_bucket(b) end
      if used_of(b) + cost > capacity then fits = false end
      charge_bucket(b, cost, most, now)
      shared.charged, shared.texts = pack_bucket(b)
      reset, plan.shared[j] = busy_of(b), shared
    elseif kind == 1 then -- a bucket
      if used > 0 then
        if extra >= num then extra = num - 1 end
        local product = (now - stamp) * num
        local since = product - extra
        if since < 0 then
          stamp, extra, back = now, 0, true
        elseif since >= den then
          local units, rest
          if product < 9007199254740992 then
            units = floor(since / den)
            rest = since - units * den
          else
            units, rest = refilled(now - stamp, num, den, extra)
          end
          if units >= used then
            used, stamp, extra = 0, now, 0
          else
            local late = ceil(rest / num)
            used, stamp, extra = used - units, now - late, late * num - rest
          end
        end
      else
        stamp, extra = now, 0
      end
      if used + cost > capacity then fits = false end
      reset = (used + cost) * den / num
      extra = extra + mark
    elseif kind == 5 then -- a sliding counter
      local start = now - now % period
      used, extra = join_counter(plan, j, stamp, used, extra)
      if used == 0 and extra == 0 or now >= stamp + 2 * period then
        stamp, used, extra = start, 0, 0
      elseif now >= stamp + period then
        stamp, used, extra = stamp + period, 0, used
        if extra == 0 then stamp = start end
      elseif now < stamp - period then
        stamp, used, extra, back = start, math.max(used, math.min(used + extra, most)), 0, true
      end
      local weight = 0
      if extra > 0 then
        local left, rest = period - math.max(0, now - stamp), nil
        weight, rest = muldiv(extra, left, period)
        if rest > 0 then weight = weight + 1 end
      end
      if used + weight + cost > capacity then fits = false end
      if used + cost >= 2147483648 or extra >= 2147483648 or plan.kin and plan.kin[j] then
        local shared = {}
        if back then shared.first, shared.moved = split_counter(stamp, used, extra) end
        shared.charged, shared.texts = split_counter(stamp, math.min(used + cost, most), extra)
        plan.shared = plan.shared or {}
        plan.shared[j] = shared
      end
      reset = stamp + 2 * period - now
    elseif kind == 6 then -- a penalty: den is the first block, num the longest in ms
      local longest = longest_block(num * 1000, extra)
      local reach = math.max(longest, period)
      if now >= stamp + longest then
        stamp, used, extra = 0, 0, 0
      elseif stamp > now + reach then
        stamp, back = now + reach, true
      end
      blocked = used >= capacity and now < stamp
      penalty = {j, stamp, used, extra, capacity, den, period, num * 1000}
      reset = stamp + longest - now
    else -- a fixed window: 2 aligned, 3 from the first request, 4 calendar
      local stop, length = now + period, period
      if kind == 2 then
        stop = now - now % period + period
      elseif kind == 4 then
        if now < den or now >= period then return 2, '' end
        stop, length = period, num * 1000000
      end
      used, extra = window_used(used, extra), 0
      if now >= stamp then
        stamp, used = stop, 0
      elseif now < stamp - 2 * length then
        stamp, back = stop, true
      end
      if used + cost > capacity then fits = false end
      reset = stamp - now
    end
    local shared = plan.shared and plan.shared[j]
    if back then
      moved = moved or {}
      moved[j] = shared and shared.first or kind > 1 and kind < 5 and pack_window(stamp, used) or pack('>I7I4I4', stamp, used, extra)
    end
    if shared then
      new[j] = shared.charged
    else
      if kind ~= 6 then used = used + cost end
      if used >= 2147483648 and kind > 1 and kind < 5 then used, extra = halves(used) end
      new[j] = pack('>I7I4I4', stamp, used, extra)
    end
    -- A lowered limit can need longer than any key may live.
    if reset > plan.ttl then plan.ttl = math.min(reset, 1e16) end
  end
  plan.states = table.concat(new)
  at = at - 15 * slots
  if windows > 0 then
    if not look(plan, asked, pos, nowlow, now, reply) then fits = false end
    if slots > 0 then plan.held = sub(states, at, at + 15 * slots - 1) end
  end
  if penalty and take and not fits and not blocked then
    local j, stamp, used, extra = penalty[1], penalty[2], penalty[3], penalty[4]
    local most, block, period, longest = penalty[5], penalty[6], penalty[7], penalty[8]
    if now >= stamp then stamp, used = now + period, 0 end
    used = used + 1
    local blocks = extra % 64
    extra = blocks + 64 * math.max(floor(extra / 64), ceil(longest / 1000000))
    if used >= most then
      used, stamp = most, now + math.min(block * 2 ^ blocks, longest)
      if blocks < 32 then extra = extra + 1 end
    end
    moved = moved or {}
    moved[j] = pack('>I7I4I4', stamp, used, extra)
    plan.punished = true
    plan.ttl = math.max(plan.ttl, stamp + longest_block(longest, extra) - now)
  end
  if blocked then fits = false end
  if moved then
    for j = 1, slots do new[j] = moved[j] or sub(states, at + 15 * j - 15, at + 15 * j - 1) end
    plan.moved = table.concat(new)
  end
  plan.fits = fits
  if not fits and not shadow then admitted = false end
  from = pos + 11 * windows
end

for i = 1, #plans do
  local plan = plans[i]
  local charge = take and admitted and plan.fits
  for j, shared in pairs(plan.shared or {}) do
    local texts = shared.moved
    if charge then texts = shared.texts end
    if texts then place_kin(plan, j, texts) end
  end
  if charge and plan.windows > 0 then
    add(plan, nowlow, now, spare)
  elseif charge or plan.moved or plan.stepped then
    if not charge then plan.states = plan.moved or plan.held or '' end
    if plan.windows > 0 and not plan.stepped and not plan.moves and plan.expires > 0 then
      -- The log stays as it is.
      update(plan, '', now, spare)
    elseif plan.windows > 0 and plan.n > 0 then
      -- Only what was forgotten by the newest entry may go: a clock that steps back may
      -- find the rest inside again. Without a step of the log's own, nothing goes.
      local first = 1
      if plan.stepped then first = plan.live end
      local text = entries(plan, first)
      if plan.stepped then text = clamp(text, plan.size, nowlow) end
      store(plan, plan.size, (plan.base + sum(plan, first - 1)) % 1099511627776, text, now, spare)
    else
      put(plan, now, spare)
    end
  end
end
return admitted and 1 or 0, table.concat(reply)
