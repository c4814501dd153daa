-- Brings a counter up to now, and charges it. It is part of take.lua and plain.lua. It reads kind,
-- capacity, num, den and period of the limit, its mark, the cost, and
--
--   value    nothing if there is no counter
--   further  nothing if the counter is one state; 1 if a further state has the count of a bucket,
--            6 if one has high halves; see algorithm/marks.go
--   count    of a bucket that has a further state
--   c, d, e  the further state as it was read
--
-- and changes the counter's stamp, used and extra, and c, d, e, to what is to be written, less the
-- mark. weight becomes what is in use in all, and lasts for how many microseconds anything will be,
-- if the cost is charged. kept becomes true if the counter lasts no longer than before: the window is
-- the same. plain becomes false if the clock has stepped back, or for numbers that
-- only checks.lua deals with. It calls no functions, because each call costs as much as many
-- operations.
if further and value then
  if further == 1 then
    plain = c == 0 and d == 0 and e == 3221225472 + count
  elseif kind == 1 then
    plain = c == count and extra >= 0 and extra < 536870912 and e < 16777216 and d - d % 4194304 == stamp % 1024 * 4194304
    used, extra = used % 2147483648 + d % 4194304 * 2147483648, extra + e * 536870912
  elseif used >= 2147483648 or extra >= 2147483648 then
    plain = c == stamp
    used, extra = used % 2147483648 + d * 2147483648, extra % 2147483648 + e * 2147483648
  end
end
if kind == 1 and used == 0 then -- an empty bucket
  stamp, extra = now, 0
  lasts = cost * den / num
elseif kind == 1 then -- a bucket
  local product = (now - stamp) * num
  local since = product - extra
  if extra < 0 or extra >= num or since < 0 then
    plain = false
  elseif since >= den then
    local units, over = used, 0
    if product < 9007199254740992 then
      over = since % den
      units = (since - over) / den
    elseif since / den >= 9007199254740976 then
      if since / den < used + 16 then plain = false end
    elseif since / den < used + 16 then
      local a, b, m = now - stamp, num, den
      --{divide.lua}
      over = over - extra
      if over < 0 then
        local rest = over % den
        units, over = units - (rest - over) / den, rest
      end
    end
    if units >= used then
      stamp, used, extra = now, 0, 0
    else
      extra = over % num
      used, stamp = used - units, now - (over - extra) / num
      if extra > 0 then stamp, extra = stamp - 1, num - extra end
    end
  end
  lasts = (used + cost) * den / num
elseif kind == 5 then -- a sliding counter
  if used == 0 and extra == 0 or now >= stamp + 2 * period then
    stamp, used, extra = now - now % period, 0, 0
  elseif now >= stamp + period then
    stamp, used, extra = stamp + period, 0, used
    if extra == 0 then stamp = now - now % period end
  elseif now < stamp then
    plain = false
  else
    kept = true
  end
  if not further and (used + cost >= 2147483648 or extra >= 2147483648) then plain = false end
  local a, b, m = extra, period - now + stamp, period
  local units, over = a * b, 0
  if units < 9007199254740992 then
    over = units % m
    units = (units - over) / m
  elseif plain then
    --{divide.lua}
  end
  weight = units
  if over > 0 then weight = weight + 1 end
  lasts = stamp + 2 * period - now
elseif kind == 6 then -- a penalty
  plain = false
else -- a fixed window: 2 aligned, 3 from the first request, 4 calendar
  local stop, length = now + period, period
  if kind == 2 then
    stop = stop - now % period
  elseif kind == 4 then
    if now < den or now >= period then plain = false end
    stop, length = period, num * 1000000
  end
  if used >= 2147483648 then used, extra = used - 2147483648 + extra * 2147483648, 0 end
  if now >= stamp then
    stamp, used, extra = stop, 0, 0
  elseif now < stamp - 2 * length then
    plain = false
  else
    kept = true
  end
  lasts = stamp - now
end
used = used + cost
weight = weight + used
if further == 1 then
  c, d, e = 0, 0, 3221225472 + count
elseif further or used >= 2147483648 then
  local low = used % 2147483648
  local high = (used - low) / 2147483648
  if high > 0 then used = 2147483648 + low end
  if kind == 1 and further then
    low = extra % 536870912
    c, d, e, extra = count, high + stamp % 1024 * 4194304, (extra - low) / 536870912, low
  elseif further then
    low = extra % 2147483648
    c, d, e = 0, high, (extra - low) / 2147483648
    if e > 0 then extra = 2147483648 + low end
    if d > 0 or e > 0 then c = stamp end
  elseif kind > 1 then
    extra = high
  end
end
