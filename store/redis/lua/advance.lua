-- Brings a counter up to now. It is part of take.lua and plain.lua. It reads kind, num, den and period
-- of the limit, its mark, the cost, and changes the counter's stamp, used and extra. weight becomes what is in
-- use besides, and lasts for how many microseconds anything will be, if the cost is charged. plain
-- becomes false if the clock has stepped back, or if numbers are not exact in a double: checks.lua
-- does these.
if kind == 1 and used == 0 then -- an empty bucket
  if extra < 0 and mark == 2147483648 then plain = false end
  stamp, extra = now, 0
  lasts = cost * den / num
elseif kind == 1 then -- a bucket
  local since = (now - stamp) * num - extra
  plain = plain and extra >= 0 and extra < num and since >= 0 and since < 9007199254740992
  if plain and since >= den then
    local units = floor(since / den)
    if units >= used then
      stamp, used, extra = now, 0, 0
    else
      local over = since - units * den
      local back = ceil(over / num)
      used, stamp, extra = used - units, now - back, back * num - over
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
  local units = extra * (period - now + stamp)
  if units >= 9007199254740992 then plain = false end
  weight = ceil(units / period)
  lasts = stamp + 2 * period - now
else -- a fixed window: 2 aligned, 3 from the first request, 4 calendar
  local stop, length = now + period, period
  if kind == 2 then
    stop = stop - now % period
  elseif kind == 4 then
    if now < den or now >= period then plain = false end
    stop, length = period, num * 1000000
  end
  if now >= stamp then
    stamp, used = stop, 0
  elseif now < stamp - 2 * length then
    plain = false
  end
  lasts = stamp - now
end
