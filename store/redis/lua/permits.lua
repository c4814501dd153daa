-- Permits that processes share: see store/book.go, which has the same steps.
--
-- KEYS[1]  the key's leases and its line
-- ARGV[1]  the operation
-- ARGV[2]  the time in microseconds, in tests only; else empty
-- ARGV[3]  the holder
-- ARGV[4]… a  acquire: cost, limit, ttl, queue, wait
--          n  renew: epoch, ttl
--          r  release: epoch, or 0 for any lease and the place in line
--          v  revoke
--          h  holders
-- Returns  a  status, units in use, number who wait, when the first lease ends, number
--             ahead; of a lease, its epoch, when it ends, its ttl, and its slots
--          n  status, epoch, when it ends, ttl, slots
--          r  1 if there was something, else 0; v likewise
--          h  number of leases, number who wait; holder, epoch, when it ends, ttl,
--             whether it is revoked, number of slots and slots of each lease; holder, cost
--             and when it ends of each place
--          Status: 0 refused, or not held; 1 granted, or renewed; 2 waiting; 3 revoked;
--          4 another cost. Times are microseconds from now.
--
-- The value is {epoch, leases, line} in MessagePack. A lease is {holder, until, ttl, epoch,
-- revoked, slot…}, and a place is {holder, until, ttl, cost, passed}.
local call, key, op, now, holder = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local spare = 0
if now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local raw = call('GET', key)
local state = raw and cmsgpack.unpack(raw) or {0, {}, {}}
local changed = false

-- Drops what has ended. After the clock has stepped back nothing lasts longer than it was to.
local function look(list)
  local stays = {}
  for i = 1, #list do
    local one = list[i]
    if one[2] > now then
      if one[2] > now + one[3] then
        one[2], changed = now + one[3], true
      end
      stays[#stays + 1] = one
    else
      changed = true
    end
  end
  return stays
end
local leases, line = look(state[2]), look(state[3])

local function save()
  local keep = 0
  if state[1] > 0 then keep = math.min(state[1] + 10000000, now + 3600000000) end
  for i = 1, #leases do keep = math.max(keep, leases[i][2]) end
  for i = 1, #line do keep = math.max(keep, line[i][2]) end
  if keep > now then
    call('SET', key, cmsgpack.pack({state[1], leases, line}), 'PX', math.ceil((keep - now) / 1000) + spare)
  elseif raw then
    call('DEL', key)
  end
end

local function find(list)
  for i = 1, #list do
    if list[i][1] == holder then return i end
  end
end

local function used()
  local n = 0
  for i = 1, #leases do n = n + #leases[i] - 5 end
  return n
end

-- Appends to an answer what it says of a lease.
local function tell(answer, lease)
  answer[#answer + 1] = lease[4]
  answer[#answer + 1] = lease[2] - now
  answer[#answer + 1] = lease[3]
  for i = 6, #lease do answer[#answer + 1] = lease[i] end
  return answer
end

local function leave()
  local place = find(line)
  if place then
    table.remove(line, place)
    changed = true
  end
  return place
end

local answer
if op == 'a' then
  local cost, limit, ttl, queue, wait =
    tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local status, ahead, lease = 0, 0, nil
  local at, place = find(leases), find(line)
  if at then
    lease = leases[at]
    if lease[5] == 1 then
      status = 3
    else
      status = #lease - 5 == cost and 1 or 4
    end
  elseif place and line[place][4] ~= cost then
    status = 4
  else
    ahead = place and place - 1 or #line
    -- What is free belongs first to those ahead whom it suffices. One whom it does not
    -- suffice may be overtaken by units of the whole limit.
    local inuse = used()
    local room, overtaken = limit - inuse, {}
    for i = 1, ahead do
      local other = line[i]
      if other[4] > limit then
        -- it waits under another limit
      elseif other[4] <= room then
        room = room - other[4]
      elseif other[5] + cost > limit then
        room = -1
        break
      else
        overtaken[#overtaken + 1] = other
      end
    end
    if cost <= room then
      for i = 1, #overtaken do overtaken[i][5] = overtaken[i][5] + cost end
      leave()
      local taken = {}
      for i = 1, #leases do
        for j = 6, #leases[i] do taken[leases[i][j]] = true end
      end
      state[1] = math.max(state[1] + 1, now)
      lease = {holder, now + ttl, ttl, state[1], 0}
      local slot = 0
      while #lease < cost + 5 do
        if not taken[slot] then lease[#lease + 1] = slot end
        slot = slot + 1
      end
      leases[#leases + 1] = lease
      status, ahead, changed = 1, 0, true
    elseif wait == 0 then
      leave()
      ahead = 0
    elseif place then
      line[place][2], line[place][3] = now + wait, wait
      status, changed = 2, true
    elseif #line < queue then
      line[#line + 1] = {holder, now + wait, wait, cost, 0}
      status, changed = 2, true
    else
      ahead = 0
    end
  end
  local ends = 0
  for i = 1, #leases do
    local left = leases[i][2] - now
    if ends == 0 or left < ends then ends = left end
  end
  answer = {status, used(), #line, ends, ahead}
  if status == 1 then tell(answer, lease) end
elseif op == 'n' then
  local at = find(leases)
  local lease = at and leases[at]
  if not lease or lease[4] ~= tonumber(ARGV[4]) then
    answer = {0}
  elseif lease[5] == 1 then
    answer = {3}
  else
    lease[3] = tonumber(ARGV[5])
    lease[2], changed = now + lease[3], true
    answer = tell({1}, lease)
  end
elseif op == 'r' then
  local epoch, at = tonumber(ARGV[4]), find(leases)
  answer = {0}
  if at and (epoch == 0 or leases[at][4] == epoch) then
    table.remove(leases, at)
    answer, changed = {1}, true
  end
  if epoch == 0 and leave() then answer = {1} end
elseif op == 'v' then
  local at = find(leases)
  if at then leases[at][5], changed = 1, true end
  answer = {(leave() or at) and 1 or 0}
else
  answer = {#leases, #line}
  for i = 1, #leases do
    local lease = leases[i]
    answer[#answer + 1] = lease[1]
    answer[#answer + 1] = lease[4]
    answer[#answer + 1] = lease[2] - now
    answer[#answer + 1] = lease[3]
    answer[#answer + 1] = lease[5]
    answer[#answer + 1] = #lease - 5
    for j = 6, #lease do answer[#answer + 1] = lease[j] end
  end
  for i = 1, #line do
    answer[#answer + 1] = line[i][1]
    answer[#answer + 1] = line[i][4]
    answer[#answer + 1] = line[i][2] - now
  end
end
if changed then save() end
return answer
