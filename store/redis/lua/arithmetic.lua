-- Exact arithmetic beyond the 53 bits of a double. Prepended to scripts.

-- The quotient and the remainder of a * b / m; see divide.lua.
local function muldiv(a, b, m)
  local units, over
  --{divide.lua}
  return units, over
end

-- The whole units refilled in elapsed microseconds, less extra / num of one, and
-- the remainder in 1 / num microseconds. 2^53 units stand for all that are more than
-- any counter holds.
local function refilled(elapsed, num, den, extra)
  local turns = math.floor(elapsed / den)
  if turns * num > 9007199254740992 then return 9007199254740992, 0 end
  local units, rest = muldiv(num, elapsed - turns * den, den)
  units, rest = units + turns * num, rest - extra
  if rest < 0 then
    local less = math.ceil(-rest / den)
    units, rest = units - less, rest + less * den
  end
  return units, rest
end

-- The longest block of a penalty, in microseconds: that of its limit, unless lists with
-- another one have counted denials in it. See algorithm/penalty.go.
local function longest_block(own, extra)
  local kept = math.floor(extra / 64)
  if kept ~= 0 and kept ~= math.ceil(own / 1000000) then return kept * 1000000 end
  return own
end

-- Up to how many units in use a limit charges; see MaxUsed in algorithm/marks.go.
local function most_used(kind, capacity, num, den, period)
  if capacity > 1000000000 or kind == 1 and num * (period / den) > 1000000000 then return 9007199254740991 end
  return 1000000000
end

-- The halves of a number of which a state has 32 bits; see split in algorithm/marks.go.
local function halves(n)
  if n < 2147483648 then return n, 0 end
  local low = n % 2147483648
  return 2147483648 + low, (n - low) / 2147483648
end

-- The state of a fixed window, whose high half is in the field that it does not need otherwise.
local function pack_window(stamp, used)
  return struct.pack('>I7I4I4', stamp, halves(used))
end

local function window_used(used, extra)
  if used >= 2147483648 then return used - 2147483648 + extra * 2147483648 end
  return used
end
