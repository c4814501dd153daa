-- Permits that processes share: see store/book.go, which decides the same.
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
-- Returns  a  status, units in use, number who wait, number ahead; of a lease, its epoch,
--             when it ends, its ttl, and its slots
--          n  status; epoch, when it ends, ttl, slots
--          r  1 if there was something, else 0; v likewise
--          h  number of leases, number who wait; holder, epoch, when it ends, ttl,
--             whether it is revoked, number of slots and slots of each lease; holder, cost
--             and when it ends of each place
--          Status: 0 refused, or not held; 1 granted, or renewed; 2 waiting; 3 revoked;
--          4 another cost. Times are microseconds from now.
--
-- The value is a hash, so that what a call costs does not depend on how many leases there
-- are. Its fields:
--   h  epoch I7, when it was written I7, when something may have ended I7, until when it
--      is kept I7, units in use I2, and a sign for each slot: 1 if it is held
--   q  the line, if anybody waits: MessagePack of {holder, until, ttl, cost, passed} each
--   l and the name of a holder: its lease: until I7, ttl I5, epoch I7, revoked B, slots I2
-- Only when something may have ended, or the clock has stepped back, is all of it read.
local call, key, op, now, holder = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local pack, unpack_, sub = struct.pack, struct.unpack, string.sub
local spare = 0
if now ~= '' then
  now, spare = tonumber(now), 3600000
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local never = 9007199254740992
local mine = 'l' .. holder
local got = call('HMGET', key, 'h', mine, 'q')
local lease, line = got[2], got[3] and cmsgpack.unpack(got[3]) or {}
local epoch, at, due, keep, used, signs = 0, 0, never, 0, 0, ''
if got[1] then
  epoch, at, due, keep, used = unpack_('>I7I7I7I7I2', got[1])
  signs = sub(got[1], 31)
end
local changed, moved, all = false, false, nil -- the header, the line

local function mark(value, sign)
  for i = 21, #value, 2 do
    local slot = unpack_('>I2', value, i)
    signs = signs .. string.rep('0', slot + 1 - #signs)
    signs = sub(signs, 1, slot) .. sign .. sub(signs, slot + 2)
  end
end

-- Drops what has ended. After the clock has stepped back nothing lasts longer than it was to.
local function look()
  lease, due, keep, used, signs, changed = false, never, 0, 0, '', true
  all = {}
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if string.byte(field) == 108 then
      local ends, ttl = unpack_('>I7I5', value)
      if ends <= now then
        call('HDEL', key, field)
      else
        if ends > now + ttl then
          ends = now + ttl
          value = pack('>I7', ends) .. sub(value, 8)
          call('HSET', key, field, value)
        end
        due, keep, used = math.min(due, ends), math.max(keep, ends), used + (#value - 20) / 2
        mark(value, '1')
        all[#all + 1] = {sub(field, 2), value}
        if field == mine then lease = value end
      end
    end
  end
  local stays = {}
  for i = 1, #line do
    local place = line[i]
    if place[2] > now then
      place[2] = math.min(place[2], now + place[3])
      due, keep = math.min(due, place[2]), math.max(keep, place[2])
      stays[#stays + 1] = place
    end
  end
  if #line > 0 then line, moved = stays, true end
end
if got[1] and (now >= due or now < at) or op == 'h' then look() end

local function save()
  if used == 0 and #line == 0 then
    keep, due = math.min(epoch + 10000000, now + 3600000000), never
    if epoch == 0 or keep <= now then
      if got[1] then call('DEL', key) end
      return
    end
  end
  local header = pack('>I7I7I7I7I2', epoch, now, due, keep, used) .. signs
  if not moved then
    call('HSET', key, 'h', header)
  elseif #line > 0 then
    call('HSET', key, 'h', header, 'q', cmsgpack.pack(line))
  else
    call('HSET', key, 'h', header)
    call('HDEL', key, 'q')
  end
  -- Leases that end by themselves leave the epoch behind, too.
  local stays = math.max(keep, math.min(epoch + 10000000, now + 3600000000))
  call('PEXPIRE', key, math.ceil((stays - now) / 1000) + spare)
end

local function place_of()
  for i = 1, #line do
    if line[i][1] == holder then return i end
  end
end

local function leave()
  local place = place_of()
  if place then
    table.remove(line, place)
    changed, moved = true, true
  end
  return place
end

local function lasts(ends)
  due, keep, changed = math.min(due, ends), math.max(keep, ends), true
end

-- Appends to an answer what it says of a lease.
local function tell(answer, value)
  local ends, ttl, of = unpack_('>I7I5I7', value)
  answer[#answer + 1] = of
  answer[#answer + 1] = ends - now
  answer[#answer + 1] = ttl
  for i = 21, #value, 2 do answer[#answer + 1] = unpack_('>I2', value, i) end
  return answer
end

-- Whether a cost may be granted to somebody with so many ahead. What is free belongs first
-- to those ahead whom it suffices. One whom it does not suffice may be overtaken by units
-- of the whole limit.
local function turn(ahead, cost, limit)
  local room, overtaken = limit - used, {}
  for i = 1, ahead do
    local other = line[i]
    if other[4] > limit then
      -- it waits under another limit
    elseif other[4] <= room then
      room = room - other[4]
    elseif other[5] + cost > limit then
      return false
    else
      overtaken[#overtaken + 1] = other
    end
  end
  if cost > room then return false end
  for i = 1, #overtaken do
    overtaken[i][5], moved = overtaken[i][5] + cost, true
  end
  return true
end

local answer
if op == 'a' then
  local cost, limit, ttl, queue, wait =
    tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local status, ahead, place = 0, 0, place_of()
  if lease then
    if string.byte(lease, 20) == 1 then
      status = 3
    else
      status = (#lease - 20) / 2 == cost and 1 or 4
    end
  elseif place and line[place][4] ~= cost then
    status = 4
  else
    ahead = place and place - 1 or #line
    if turn(ahead, cost, limit) then
      leave()
      epoch = math.max(epoch + 1, now)
      lease = pack('>I7I5I7B', now + ttl, ttl, epoch, 0)
      local slot = 0
      for _ = 1, cost do
        slot = (string.find(signs, '0', slot + 1, true) or math.max(#signs, slot) + 1) - 1
        lease = lease .. pack('>I2', slot)
        slot = slot + 1
      end
      mark(lease, '1')
      call('HSET', key, mine, lease)
      used = used + cost
      lasts(now + ttl)
      status, ahead = 1, 0
    elseif wait == 0 then
      leave()
      ahead = 0
    elseif place then
      line[place][2], line[place][3] = now + wait, wait
      lasts(now + wait)
      status, moved = 2, true
    elseif #line < queue then
      line[#line + 1] = {holder, now + wait, wait, cost, 0}
      lasts(now + wait)
      status, moved = 2, true
    else
      ahead = 0
    end
  end
  answer = {status, used, #line, ahead}
  if status == 1 then tell(answer, lease) end
elseif op == 'n' then
  answer = {0}
  if lease then
    local _, _, of, revoked = unpack_('>I7I5I7B', lease)
    if of == tonumber(ARGV[4]) then
      if revoked == 1 then
        answer = {3}
      else
        local ttl = tonumber(ARGV[5])
        lease = pack('>I7I5I7B', now + ttl, ttl, of, 0) .. sub(lease, 21)
        call('HSET', key, mine, lease)
        lasts(now + ttl)
        answer = tell({1}, lease)
      end
    end
  end
elseif op == 'r' then
  local only = tonumber(ARGV[4])
  answer = {0}
  if lease and (only == 0 or unpack_('>I7', lease, 13) == only) then
    call('HDEL', key, mine)
    mark(lease, '0')
    used, changed = used - (#lease - 20) / 2, true
    answer = {1}
  end
  if only == 0 and leave() then answer = {1} end
elseif op == 'v' then
  answer = {(leave() or lease) and 1 or 0}
  if lease then
    call('HSET', key, mine, sub(lease, 1, 19) .. '\1' .. sub(lease, 21))
    changed = true
  end
else
  answer = {#all, #line}
  for i = 1, #all do
    local value = all[i][2]
    local ends, ttl, of, revoked = unpack_('>I7I5I7B', value)
    for _, part in ipairs({all[i][1], of, ends - now, ttl, revoked, (#value - 20) / 2}) do
      answer[#answer + 1] = part
    end
    for j = 21, #value, 2 do answer[#answer + 1] = unpack_('>I2', value, j) end
  end
  for i = 1, #line do
    answer[#answer + 1] = line[i][1]
    answer[#answer + 1] = line[i][4]
    answer[#answer + 1] = line[i][2] - now
  end
end
if changed then save() end
return answer
