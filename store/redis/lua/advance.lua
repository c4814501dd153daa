-- Brings a counter up to now. It is part of take.lua and plain.lua. It reads kind, num, den and period
-- of the limit, its mark, the cost, and changes the counter's stamp, used and extra. weight becomes what is in
-- use besides, and lasts for how many microseconds anything will be, if the cost is charged. plain
-- becomes false if the clock has stepped back, or if numbers are not exact in a double: checks.lua
-- does these. It calls no functions, because each call costs as much as many operations.
if kind == 1 and used == 0 then -- an empty bucket
  if extra < 0 and mark == 2147483648 then plain = false end
  stamp, extra = now, 0
  lasts = cost * den / num
elseif kind == 1 then -- a bucket
  local since = (now - stamp) * num - extra
  if extra < 0 or extra >= num or since < 0 or since >= 9007199254740992 then
    plain = false
  elseif since >= den then
    local over = since % den
    local units = (since - over) / den
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
  end
  if used >= 2147483648 or extra >= 2147483648 then plain = false end
  local units = extra * (period - now + stamp)
  if units >= 9007199254740992 then plain = false end
  local rest = units % period
  weight = (units - rest) / period
  if rest > 0 then weight = weight + 1 end
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
  if now >= stamp then
    stamp, used, extra = stop, 0, 0
  elseif used >= 2147483648 or now < stamp - 2 * length then
    plain = false
  end
  lasts = stamp - now
end
