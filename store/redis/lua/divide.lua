-- Sets units and over to the quotient and the remainder of a * b / m. It is part of advance.lua and
-- arithmetic.lua. a, b and the quotient are below 2^53, and m is at most 366 days in microseconds.
-- In doubles, the quotient is off by less than four, so what is left over is below 2^47, and known
-- from products modulo 2^48. These are exact, because each factor is cut at its 24th bit.
units = a * b / m
units = units - units % 1
local a0, b0, m0, u0 = a % 16777216, b % 16777216, m % 16777216, units % 16777216
over = ((a - a0) * b0 % 281474976710656 + a0 * (b - b0) % 281474976710656 + a0 * b0
  - (units - u0) * m0 % 281474976710656 - u0 * (m - m0) % 281474976710656 - u0 * m0) % 281474976710656
if over >= 140737488355328 then over = over - 281474976710656 end
while over < 0 do units, over = units - 1, over + m end
while over >= m do units, over = units + 1, over - m end
