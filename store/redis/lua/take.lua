-- Takes or peeks at any number of checks: all are charged or none.
--
-- KEYS[i]      the counters of check i
-- ARGV[1]      1 to take, 0 to peek
-- ARGV[2]      the time in microseconds, in tests only; else empty
-- ARGV[2i+1]   the limits of check i; see spec.go
-- ARGV[2i+2]   its cost, negative for a shadow: it has no say in whether the
--              others are admitted, and is charged with them if its limits admit
-- Returns      status B, time I7, and for each check the slots that were read
--              (15 bytes for each) and the facts of its windows (I4 units in use,
--              I6 age of the blocking unit, I6 age of the newest). Status: 0
--              denied, 1 admitted, 2 a calendar window does not contain the time
--              (nothing was done, and nothing else is returned).
--
-- A value is: the number of slots B, their names 8 bytes each, their states
-- (stamp I7, used I4, extra I4), then perhaps a log. A log is: entry size B, when
-- the key expires I7, the sum before the first entry I5, entries. An entry of 6
-- bytes is the time of one unit, modulo 2^48; one of 11 has the sum of all units
-- up to it, modulo 2^40, behind the time.
local call, pack, unpack, sub, floor, ceil = redis.call, struct.pack, struct.unpack, string.sub, math.floor, math.ceil
local take, now, spare = ARGV[1] == '1', ARGV[2], 0
if now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local nowlow = now % 281474976710656
local admitted, reply, plans = true, {}, {}

for i = 1, #KEYS do
  local key, spec, cost = KEYS[i], ARGV[2 * i + 1], tonumber(ARGV[2 * i + 2])
  local slots, windows = string.byte(spec, 1, 2)
  local fits, shadow = true, cost < 0
  if shadow then cost = -cost end
  local names = 8 * slots
  local value
  if windows == 0 then
    value = call('GET', key) or ''
  else
    value = call('GETRANGE', key, 0, 1023)
  end
  local plan = {key = key, cost = cost, slots = slots, windows = windows, value = value, ttl = 0}
  plans[i] = plan

  -- Where our slots stand in the value. Another version of the rule may have
  -- written it: then ours are looked up by name, and the others are kept.
  local states, at = value, 2 + names
  plan.head = string.char(slots) .. sub(spec, 3, 2 + names)
  plan.log = 2 + 23 * slots
  if value == '' then
    states, at = string.rep('\0', 15 * slots), 1
  elseif sub(value, 1, 1 + names) ~= plan.head then
    states, at = adopt(plan, spec, now), 1
  end
  if windows == 0 and #value > plan.log + 11 then keepLog(plan, now) end
  if slots > 0 then reply[#reply + 1] = sub(states, at, at + 15 * slots - 1) end

  local pos = 3 + names
  local new, moved = {}, nil
  for j = 1, slots do
    local kind, capacity, num, den, period = unpack('>BI4I4I7I7', spec, pos)
    local stamp, used, extra = unpack('>I7I4I4', states, at)
    pos, at = pos + 23, at + 15
    local reset, back -- back: the clock has stepped back, and the counter follows
    if kind == 1 then -- a bucket
      if used > 0 then
        if extra >= num then extra = num - 1 end
        local since = (now - stamp) * num - extra
        if since < 0 then
          stamp, extra, back = now, 0, true
        elseif since >= den then
          local units, rest
          if since < 9007199254740992 then
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
        stamp = now
      end
      if used + cost > capacity then fits = false end
      reset = (used + cost) * den / num
    elseif kind == 5 then -- a sliding counter
      local start = now - now % period
      if used == 0 and extra == 0 or now >= stamp + 2 * period then
        stamp, used, extra = start, 0, 0
      elseif now >= stamp + period then
        stamp, used, extra = stamp + period, 0, used
        if extra == 0 then stamp = start end
      elseif now < stamp - period then
        stamp, used, extra, back = start, math.min(used + extra, 1000000000), 0, true
      end
      local weight = 0
      if extra > 0 then
        local left, rest = period - math.max(0, now - stamp), nil
        weight, rest = muldiv(extra, left, period)
        if rest > 0 then weight = weight + 1 end
      end
      if used + weight + cost > capacity then fits = false end
      reset = stamp + 2 * period - now
    else -- a fixed window: 2 aligned, 3 from the first request, 4 calendar
      local stop, length = now + period, period
      if kind == 2 then
        stop = now - now % period + period
      elseif kind == 4 then
        if now < den or now >= period then return pack('>BI7', 2, now) end
        stop, length = period, num * 1000000
      end
      if now >= stamp then
        stamp, used = stop, 0
      elseif now < stamp - 2 * length then
        stamp, back = stop, true
      end
      if used + cost > capacity then fits = false end
      reset = stamp - now
    end
    if back then
      moved = moved or {}
      moved[j] = pack('>I7I4I4', stamp, used, extra)
    end
    new[j] = pack('>I7I4I4', stamp, used + cost, extra)
    -- A lowered limit can need longer than any key may live.
    if reset > plan.ttl then plan.ttl = math.min(reset, 1e16) end
  end
  plan.states = table.concat(new)
  if moved then
    at = at - 15 * slots
    for j = 1, slots do new[j] = moved[j] or sub(states, at + 15 * j - 15, at + 15 * j - 1) end
    plan.moved = table.concat(new)
  elseif windows > 0 and slots > 0 then
    plan.held = sub(states, at - 15 * slots, at - 1)
  end
  if windows > 0 then
    if not look(plan, spec, pos, nowlow, reply) then fits = false end
  end
  plan.fits = fits
  if not fits and not shadow then admitted = false end
end

for i = 1, #plans do
  local plan = plans[i]
  local charge = take and admitted and plan.fits
  if charge and plan.windows > 0 then
    add(plan, nowlow, now, spare)
  elseif charge or plan.moved or plan.stepped then
    if not charge then plan.states = plan.moved or plan.held or '' end
    if plan.windows > 0 then
      -- Only what had left by the newest entry may go: a clock that steps back may
      -- find the rest inside again. Without a step of the log's own, nothing goes.
      local first = 1
      if plan.stepped then first = plan.live end
      local text = entries(plan, first)
      if plan.stepped then text = clamp(text, plan.size, nowlow) end
      store(plan, plan.size, (plan.base + sum(plan, first - 1)) % 1099511627776, text, now, spare)
    else
      call('SET', plan.key, plan.head .. plan.states .. (plan.others or '') .. (plan.kept or ''),
        'PX', ceil(plan.ttl / 1000) + 1 + spare)
    end
  end
end
return pack('>BI7', admitted and 1 or 0, now) .. table.concat(reply)
