-- Exact arithmetic beyond the 53 bits of a double. Prepended to scripts.

-- The quotient and remainder of a * b / m, for a below 2^35, b and m at most
-- 366 days in microseconds, and quotients below 2^53: long division by digits of
-- seven bits, so that no intermediate value reaches 2^53.
local function muldiv(a, b, m)
  local q, rest, digit = 0, 0, 268435456
  while digit >= 1 do
    local x = rest * 128 + math.floor(a / digit) % 128 * b
    local d = math.floor(x / m)
    q, rest, digit = q * 128 + d, x - d * m, digit / 128
  end
  return q, rest
end

-- The whole units refilled in elapsed microseconds, less extra / num of one, and
-- the remainder in 1 / num microseconds. Some very large number of units stands
-- for all that are more than any counter holds.
local function refilled(elapsed, num, den, extra)
  local turns = math.floor(elapsed / den)
  if turns * num > 4294967296 then return 4294967296, 0 end
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
