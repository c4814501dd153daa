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
  if num == 1 then return 3221225472 + count end
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
    if o.extra > 0 and (o.wide or not mark_of(o.count, o.num)) then o.stamp, o.extra = o.stamp + 1, 0 end
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

-- Reads the bucket of slot j, whose own state is given, and brings it up to now for a list
-- of limits that asks. Returns whether the result is to be stored whatever is decided.
local function load_bucket(plan, j, count, period, stamp, used, extra, now)
  local b = {period = period, count = count, own = {}, since = 0}
  local kin = plan.kin and plan.kin[j]
  local of, marks = count, {}
  if extra >= 1073741824 and (extra < 2147483648 or extra >= 3221225472) then
    of, extra = unmark(extra)
  elseif extra >= 2147483648 then
    extra = extra - 2147483648
    for i = 1, 5 do
      if kin and kin[i] then
        local s, u, x = struct.unpack('>I7I4I4', plan.texts[kin[i]])
        if x < 1073741824 then
          -- There is nothing in it.
        elseif u == 0 then
          of, b.since = unmark(x), s
        elseif x >= 2147483648 and x < 3221225472 then
          local o = tank(x - 2147483648, period, s, u, 0)
          o.wide = true
          insert_own(b, o, s)
        else
          local c, f = unmark(x)
          insert_own(b, tank(c, period, s, u, f), s)
        end
      end
    end
  end
  b.all = tank(of, period, stamp, used, extra)
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

local function charge_bucket(b, cost, now)
  if cost <= 0 then return end
  round_own(b)
  local o = own_of(b, b.count)
  if b.all.used == 0 then
    b.all, b.since = tank(b.count, b.period, now, 0, 0), 0
    if #b.own > 0 then b.since = now end
  end
  b.all.used = b.all.used + math.min(cost, math.max(0, 1000000000 - b.all.used))
  if o then o.used = o.used + math.min(cost, math.max(0, 1000000000 - o.used)) end
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
    local m = mark_of(all.count, all.num)
    if m then return pack('>I7I4I4', all.stamp, all.used, all.extra + m), texts end
  end
  local first = pack('>I7I4I4', 0, 0, 2147483648)
  if all.used > 0 then
    first = pack('>I7I4I4', all.stamp, all.used, all.extra + 2147483648)
    texts[1] = pack('>I7I4I4', b.since, 0, 3221225472 + all.count)
  end
  for i = 1, #b.own do
    local o = b.own[i]
    local m = mark_of(o.count, o.num)
    if o.wide then m = 2147483648 + o.count elseif not m then m = 3221225472 + o.count end
    texts[#texts + 1] = pack('>I7I4I4', o.stamp, o.used, o.extra + m)
  end
  return first, texts
end

-- Puts the further states of a bucket among the slots of a value that is about to be written.
local function place_kin(plan, j, texts)
  if #texts == 0 and not (plan.kin and plan.kin[j]) then return end
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
  for i = 1, 5 do
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
-- each that has some.
local function answer_states(plan, states, at)
  local plain, parts = string.sub(states, at, at + 15 * plan.slots - 1), nil
  for j = 1, plan.slots do
    local kind, extra = string.byte(plan.own, 8 * j - 6), string.byte(plain, 15 * j - 3)
    if (kind == 16 or kind == 32) and extra >= 128 and extra < 192 then
      parts = parts or {string.sub(plain, 1, 15 * j - 15)}
      parts[#parts + 1] = string.sub(plain, 15 * j - 14, 15 * j)
      for i = 1, 5 do
        local kin = plan.kin and plan.kin[j] and plan.kin[j][i]
        parts[#parts + 1] = kin and plan.texts[kin] or string.rep('\0', 15)
      end
    elseif parts then
      parts[#parts + 1] = string.sub(plain, 15 * j - 14, 15 * j)
    end
  end
  return parts and table.concat(parts) or plain
end
