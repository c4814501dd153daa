-- Buckets that lists of limits with different rates share. Prepended to take.lua and
-- refund.lua. What they are for, and how a state says whose it is, stands in
-- algorithm/shared.go.

-- The rate of so many units in a period, in lowest terms.
local function rate_of(count, period)
  local a, b = count, period
  while b ~= 0 do a, b = b, a % b end
  return count / a, period / a
end

-- What is added to a fraction to say of what count it is, unless there is no room for both.
local function mark_of(count, num)
  if count <= 46340 then return 1073741824 + count * (count - 1) / 2 end
  if num == 1 and count <= 1000000000 then return 3221225472 + count end
end

local function unmark(extra)
  if extra >= 3221225472 then return extra - 3221225472, 0 end
  local n = extra - 1073741824
  local count = math.floor((math.sqrt(8 * n + 1) + 1) / 2)
  while count * (count - 1) / 2 > n do count = count - 1 end
  while count * (count + 1) / 2 <= n do count = count + 1 end
  return count, n - count * (count - 1) / 2
end

-- A state of so many units in a period.
local function tank(count, period, stamp, used, extra)
  local num, den = rate_of(count, period)
  return {count = count, num = num, den = den, stamp = stamp, used = used, extra = extra}
end

-- Drains a state. Returns whether it follows a clock that has stepped back.
local function drain(s, now)
  if s.used == 0 then return false end
  if s.extra >= s.num then s.extra = s.num - 1 end
  local since = (now - s.stamp) * s.num - s.extra
  if since < 0 then
    s.stamp, s.extra = now, 0
    return true
  elseif since >= s.den then
    local units, rest = refilled(now - s.stamp, s.num, s.den, s.extra)
    if units >= s.used then
      s.stamp, s.used, s.extra = 0, 0, 0
    else
      local late = math.ceil(rest / s.num)
      s.used, s.stamp, s.extra = s.used - units, now - late, late * s.num - rest
    end
  end
  return false
end

-- The own bucket of a list, which may be a wide one.
local function own_of(b, count)
  local found
  for i = 1, #b.own do
    local o = b.own[i]
    if o.count == count or o.wide and o.count < count then found = o end
  end
  return found
end

local function raise(s, units, now)
  if units >= s.used then s.stamp, s.used, s.extra = now, units, 0 end
end

local function insert_own(b, o, now)
  local at = 1
  while at <= #b.own and b.own[at].count < o.count do at = at + 1 end
  table.insert(b.own, at, o)
  if #b.own > 4 then
    local fast = table.remove(b.own)
    b.own[4].wide = true
    raise(b.own[4], fast.used, now)
  end
end

-- Takes off the fractions that there is no room for.
local function round_own(b)
  for i = 1, #b.own do
    local o = b.own[i]
    if o.extra > 0 and (o.wide or o.count <= 1000000000 and not mark_of(o.count, o.num)) then o.stamp, o.extra = o.stamp + 1, 0 end
  end
end

-- Takes note of the list that asks. Returns whether that changes anything.
local function meet(b, count, now)
  local all = b.all
  if all.used == 0 or count == all.count then return false end
  if count < all.count then
    if own_of(b, count) then return false end
    insert_own(b, tank(count, b.period, now, all.used, 0), now)
  else
    local o = own_of(b, all.count)
    if o then raise(o, all.used, now) else insert_own(b, all, now) end
    b.all = tank(count, b.period, now, all.used, 0)
  end
  return true
end

-- Whether a bucket has numbers that need a high half.
local function needs_half(s) return s.count > 1000000000 or s.used >= 2147483648 end

-- The two states that are kept for a state of a bucket, and the inverse, which returns nothing if the high
-- half in place does not belong to the low one. See algorithm/marks.go.
local function split(s, as)
  local low, high = halves(s.used)
  local rest = math.floor(s.extra / 536870912)
  if s.wide then rest = rest + 16777216 end
  return struct.pack('>I7I4I4', s.stamp, low, as + s.extra % 536870912),
    struct.pack('>I7I4I4', s.count, high + s.stamp % 1024 * 4194304, rest)
end

local function unite(plan, place, stamp, used, extra, period)
  if not place or extra < 2147483648 or extra >= 3221225472 and extra < 3758096384 then return end
  local count, high, rest = struct.unpack('>I7I4I4', plan.texts[place])
  local units = high % 4194304
  if count == 0 or (high - units) / 4194304 ~= stamp % 1024 then return end
  local s = tank(count, period, stamp, used % 2147483648 + units * 2147483648, extra % 536870912 + rest % 16777216 * 536870912)
  s.wide = rest >= 16777216
  return s
end

-- The two states that are kept for a sliding counter, the second of them only if it needs one, and the inverse.
local function split_counter(stamp, used, extra)
  local u, us = halves(used)
  local x, xs = halves(extra)
  local high
  if us + xs > 0 or u >= 2147483648 or x >= 2147483648 then high = struct.pack('>I7I4I4', stamp, us, xs) end
  return struct.pack('>I7I4I4', stamp, u, x), {[6] = high}
end

local function join_counter(plan, j, stamp, used, extra)
  local place = plan.kin and plan.kin[j] and plan.kin[j][6]
  if place and (used >= 2147483648 or extra >= 2147483648) then
    local same, us, xs = struct.unpack('>I7I4I4', plan.texts[place])
    if same == stamp then return used % 2147483648 + us * 2147483648, extra % 2147483648 + xs * 2147483648 end
  end
  return used, extra
end

-- Reads the bucket of slot j, whose own state is given, and brings it up to now for a list
-- of limits that asks. Returns whether the result is to be stored whatever is decided.
local function load_bucket(plan, j, count, period, stamp, used, extra, now)
  local b = {period = period, count = count, own = {}, since = 0}
  local kin = plan.kin and plan.kin[j]
  local of, first = count, nil
  if extra >= 1073741824 and (extra < 2147483648 or extra >= 3221225472) then
    of, extra = unmark(extra)
  elseif extra >= 2147483648 then
    first = unite(plan, kin and kin[6], stamp, used, extra, period)
    extra = extra - 2147483648
    for i = 1, 5 do
      if kin and kin[i] then
        local s, u, x = struct.unpack('>I7I4I4', plan.texts[kin[i]])
        local o = unite(plan, kin[i + 6], s, u, x, period)
        if o then
          insert_own(b, o, s)
        elseif x < 1073741824 then
          -- There is nothing in it.
        elseif u == 0 then
          of, b.since = unmark(x), s
        elseif x >= 2147483648 and x < 3221225472 then
          o = tank(x - 2147483648, period, s, u, 0)
          o.wide = true
          insert_own(b, o, s)
        else
          local c, f = unmark(x)
          insert_own(b, tank(c, period, s, u, f), s)
        end
      end
    end
  end
  b.all = first or tank(of, period, stamp, used, extra)
  local moved, kept = drain(b.all, now), {}
  for i = 1, #b.own do
    local o = b.own[i]
    if drain(o, now) then moved = true end
    if o.used > 0 then kept[#kept + 1] = o end
  end
  b.own = kept
  if #kept == 0 then b.since = 0 end
  if meet(b, count, now) then moved = true end
  if moved then round_own(b) end
  return b, moved
end

local function used_of(b)
  local o = own_of(b, b.count)
  if o and o.used > b.all.used then return o.used end
  return b.all.used
end

local function charge_bucket(b, cost, most, now)
  if cost <= 0 then return end
  round_own(b)
  local o = own_of(b, b.count)
  if b.all.used == 0 then
    b.all, b.since = tank(b.count, b.period, now, 0, 0), 0
    if #b.own > 0 then b.since = now end
  end
  b.all.used = b.all.used + math.min(cost, math.max(0, most - b.all.used))
  if o then o.used = o.used + math.min(cost, math.max(0, most - o.used)) end
end

-- Gives units of a state back that were charged at a time, when so many were in use.
local function give_back(s, cost, when, known, now)
  local back = cost
  if when ~= 0 and now > when then
    local units, rest = refilled(now - when, s.num, s.den, 0)
    units = units - (known - cost)
    if units >= back then
      back = 0
    elseif units >= 0 then
      back = back - units
      local since = (now - s.stamp) * s.num - s.extra - rest
      if since < 0 then back, since = back - 1, since + s.den end
      local late = math.ceil(since / s.num)
      s.stamp, s.extra = now - late, late * s.num - since
    end
  end
  s.used = s.used - math.min(back, s.used)
  if s.used == 0 then s.stamp, s.extra = 0, 0 end
end

local function refund_bucket(b, cost, when, known, capacity, now)
  if cost <= 0 then return end
  local o = own_of(b, b.count)
  if o then
    known = cost
  elseif known == 0 then
    known = math.max(cost, capacity)
  end
  round_own(b)
  if o then give_back(o, cost, when, known, now) end
  if b.all.used > 0 and (when == 0 or when >= b.since) then give_back(b.all, cost, when, known, now) end
  local kept = {}
  for i = 1, #b.own do
    if b.own[i].used > 0 then kept[#kept + 1] = b.own[i] end
  end
  b.own = kept
  if #kept == 0 then b.since = 0 end
  meet(b, b.count, now)
  round_own(b)
end

-- How long anything of a bucket is in use at most.
local function busy_of(b)
  local busy = b.all.used * b.all.den / b.all.num
  for i = 1, #b.own do
    local o = b.own[i]
    busy = math.max(busy, o.used * o.den / o.num)
  end
  return busy
end

-- What is to be written of a bucket: its first state, and those of its further slots.
local function pack_bucket(b)
  local pack, all, texts = struct.pack, b.all, {}
  round_own(b)
  if #b.own == 0 then
    if all.used == 0 then return string.rep('\0', 15), texts end
    if needs_half(all) then
      local low
      low, texts[6] = split(all, 2684354560)
      return low, texts
    end
    local m = mark_of(all.count, all.num)
    if m then return pack('>I7I4I4', all.stamp, all.used, all.extra + m), texts end
  end
  local first, n = pack('>I7I4I4', 0, 0, 2147483648), 0
  if all.used > 0 then
    if needs_half(all) then
      first, texts[6] = split(all, 2147483648)
    else
      first = pack('>I7I4I4', all.stamp, all.used, all.extra + 2147483648)
    end
    texts[1], n = pack('>I7I4I4', b.since, 0, 3221225472 + math.min(all.count, 1000000000)), 1
  end
  for i = 1, #b.own do
    local o = b.own[i]
    local m = mark_of(o.count, o.num)
    if o.wide then m = 2147483648 + o.count elseif not m then m = 3221225472 + o.count end
    n = n + 1
    if needs_half(o) then
      texts[n], texts[n + 6] = split(o, 3758096384)
    else
      texts[n] = pack('>I7I4I4', o.stamp, o.used, o.extra + m)
    end
  end
  return first, texts
end

-- Puts the further states of a bucket among the slots of a value that is about to be written.
local function place_kin(plan, j, texts)
  if not next(texts) and not (plan.kin and plan.kin[j]) then return end
  if not plan.names then
    plan.names, plan.texts, plan.mine, plan.others = {}, {}, {}, 0
    for i = 1, plan.slots do
      plan.names[i], plan.mine[i], plan.texts[i] = string.sub(plan.own, 8 * i - 7, 8 * i), i, ''
    end
    for k = 1, #plan.spans do
      local s = plan.spans[k]
      if s.place then
        plan.names[s.place], plan.texts[s.place] = struct.pack('>I2I6', 64, s.horizon), struct.pack('>I7I4I4', s.stop, s.short, s.most)
      end
    end
  end
  plan.kin = plan.kin or {}
  plan.kin[j] = plan.kin[j] or {}
  local kin, own = plan.kin[j], string.sub(plan.own, 8 * j - 7, 8 * j)
  for i = 1, 11 do
    if kin[i] then
      plan.texts[kin[i]] = texts[i] or string.rep('\0', 15)
    elseif texts[i] then
      kin[i], plan.moves = #plan.names + 1, true
      plan.names[kin[i]] = string.sub(own, 1, 1) .. string.char(string.byte(own, 2) + i) .. string.sub(own, 3)
      plan.texts[kin[i]] = texts[i]
    end
  end
end

-- The states of our slots as they were read, for the answer: with its further ones behind
-- each that has some. The first bit of a state says that these have high halves.
local function answer_states(plan, states, at)
  local plain, parts = string.sub(states, at, at + 15 * plan.slots - 1), nil
  for j = 1, plan.slots do
    local kind, extra = string.byte(plan.own, 8 * j - 6), string.byte(plain, 15 * j - 3)
    local kin, halved, from, to = plan.kin and plan.kin[j], false, 1, 0
    for i = 6, 11 do halved = halved or kin and kin[i] end
    if (kind == 16 or kind == 32) and extra >= 128 and extra < 192 then
      to = halved and 11 or 5
    elseif kind == 80 and halved then
      from, to = 6, 6
    end
    if to > 0 then
      parts = parts or {string.sub(plain, 1, 15 * j - 15)}
      local state = string.sub(plain, 15 * j - 14, 15 * j)
      if halved then state = string.char(string.byte(state) + 128) .. string.sub(state, 2) end
      parts[#parts + 1] = state
      for i = from, to do
        parts[#parts + 1] = kin and kin[i] and plan.texts[kin[i]] or string.rep('\0', 15)
      end
    elseif parts then
      parts[#parts + 1] = string.sub(plain, 15 * j - 14, 15 * j)
    end
  end
  return parts and table.concat(parts) or plain
end
