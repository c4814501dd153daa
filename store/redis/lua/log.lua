-- The log of sliding windows, and values written under another version of a
-- rule. Prepended to take.lua and refund.lua, which describe the format.

-- Finds a rule's slots in a value with other slots, by name. What the value has
-- besides is kept while it can matter: a version of the rule with these limits
-- may still be in use elsewhere. Returns the states of our slots.
local function adopt(plan, spec, now)
  local value, slots = plan.value, plan.slots
  local count = string.byte(value, 1)
  local found, names, others = {}, {}, {}
  for j = 1, slots do found[string.sub(spec, 8 * j - 5, 8 * j + 2)] = j end
  local ours = {}
  for j = 1, slots do ours[j] = string.rep('\0', 15) end
  for j = 1, count do
    local name = string.sub(value, 8 * j - 6, 8 * j + 1)
    local from = 2 + 8 * count + 15 * (j - 1)
    local state = string.sub(value, from, from + 14)
    if found[name] then
      ours[found[name]] = state
    elseif slots + #names < 32 then
      -- The name holds the algorithm, in the upper half of its second byte, and
      -- the period.
      local algorithm, period = math.floor(string.byte(name, 2) / 16), struct.unpack('>I6', name, 3)
      local stamp = struct.unpack('>I7', state)
      local keep = stamp > now -- a fixed window that has not ended
      if algorithm == 1 or algorithm == 2 then keep = now < stamp + 4 * period end
      if algorithm == 5 then keep = now < stamp + 2 * period end
      if algorithm == 6 then keep = now < stamp + 4 * period end
      if keep then
        names[#names + 1], others[#others + 1] = name, state
        plan.ttl = math.max(plan.ttl, stamp + 4 * period - now)
      end
    end
  end
  plan.head = string.char(slots + #names) .. string.sub(spec, 3, 2 + 8 * slots) .. table.concat(names)
  plan.others = table.concat(others)
  plan.log = 2 + 23 * count
  plan.foreign = true
  return table.concat(ours)
end

-- A log of a rule that has no windows any more is kept until it would expire.
local function keepLog(plan, now)
  if #plan.value >= plan.log + 12 then
    local expires = struct.unpack('>I7', plan.value, plan.log + 1)
    if expires > now then
      plan.kept = string.sub(plan.value, plan.log)
      plan.ttl = math.max(plan.ttl, expires - now)
    end
  end
end

-- Opens the log behind a value's slots: sets size, of an entry; n, their number;
-- base, the sum before the first; and chunks of text that hold the first and the
-- last entries. plan.value has the first 1,024 bytes of the value, or all of it.
local function open(plan)
  local value, from = plan.value, plan.log
  plan.size, plan.n, plan.base, plan.expires = 6, 0, 0, 0
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

-- The longest of a rule's windows: what its log has to remember.
local function horizon(plan, spec, pos)
  local longest = 0
  for j = 1, plan.windows do
    local _, period = struct.unpack('>I4I7', spec, pos + 11 * (j - 1))
    if period > longest then longest = period end
  end
  return longest
end

-- Decides the windows of a rule, whose limits stand in spec from pos on, and adds
-- their facts to reply.
local function look(plan, spec, pos, nowlow, reply)
  open(plan)
  local n, cost, fits = plan.n, plan.cost, true
  local total, newest, reach = sum(plan, n), 0, nil
  if n > 0 then newest = age(plan, n, nowlow) end
  plan.live, plan.longest = n + 1, horizon(plan, spec, pos)
  if newest < 0 then
    -- The clock has stepped back. What had left by the newest entry stays away.
    plan.stepped, reach, newest = true, newest + plan.longest, 0
  end
  for j = 1, plan.windows do
    local count, period = struct.unpack('>I4I7', spec, pos)
    pos = pos + 11
    local first = within(plan, count, math.min(period, reach or period), nowlow)
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
        blocking = math.max(0, age(plan, high, nowlow))
      end
    end
    if first <= n then
      reply[#reply + 1] = struct.pack('>I4I6I6', used, blocking, newest)
    else
      reply[#reply + 1] = struct.pack('>I4I6I6', 0, 0, 0)
    end
    if first < plan.live then plan.live = first end
  end
  return fits
end

-- The entries from i on, as text.
local function entries(plan, i)
  if i > plan.n then return '' end
  if plan.have == plan.n then return string.sub(plan.value, plan.first + (i - 1) * plan.size) end
  return redis.call('GETRANGE', plan.key, plan.first - 1 + (i - 1) * plan.size, -1)
end

-- Writes a whole value with a log.
local function store(plan, size, base, text, now, spare)
  local ttl = math.max(plan.ttl, plan.longest)
  redis.call('SET', plan.key, plan.head .. plan.states .. (plan.others or '')
    .. struct.pack('>BI7I5', size, now + ttl, base) .. text, 'PX', math.ceil(ttl / 1000) + 1 + spare)
end

-- The text with each entry turned into one of 11 bytes.
local function widen(text)
  local wide = {}
  for j = 1, #text / 6 do
    wide[j] = string.sub(text, 6 * j - 5, 6 * j) .. struct.pack('>I5', j)
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

-- Has a value with a log live for as long as it is needed.
local function extend(plan, now, spare)
  local ttl = math.max(plan.ttl, plan.longest)
  if now + ttl > plan.expires then
    -- Ask for an eighth more than is needed, so as not to ask each time.
    -- The server deletes the key at once if it was held up for so long that the time
    -- has passed: nothing must be written after that.
    ttl = math.ceil(ttl * 1.125)
    redis.call('SETRANGE', plan.key, plan.log, struct.pack('>I7', now + ttl))
    redis.call('PEXPIRE', plan.key, math.ceil(ttl / 1000) + 1 + spare)
  end
end

-- Charges the log of a check that is admitted, and stores the states of its
-- other limits.
local function add(plan, nowlow, now, spare)
  local cost, n, size = plan.cost, plan.n, plan.size
  local dead = plan.live - 1
  local stepped = plan.stepped
  local small = cost <= 8
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
  if plan.foreign or stepped or size == 6 and not small or dead > 64 and dead > n / 8 then
    text = entries(plan, plan.live)
    local base = (plan.base + sum(plan, dead)) % 1099511627776
    if stepped then text = clamp(text, size, nowlow) end
    if size == 6 then
      base, total = 0, total - dead
      if not small then text, size = widen(text), 11 end
    else
      total = total - sum(plan, dead)
    end
    plan.base, plan.size = base, size
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
  if plan.states ~= '' then redis.call('SETRANGE', plan.key, #plan.head, plan.states) end
  redis.call('APPEND', plan.key, entry)
  extend(plan, now, spare)
end
