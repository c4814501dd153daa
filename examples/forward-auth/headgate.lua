-- Has HAProxy ask Headgate whether a request may pass:
--
--     global
--         lua-load-per-thread headgate.lua
--     frontend ...
--         http-request lua.headgate http://127.0.0.1:8080 open 1000
--
-- The arguments are Headgate's address, what becomes of requests while it does not
-- answer ("open" or "closed"), and how long it may take, in milliseconds. They are those of
-- the action, as some HAProxy 2.6 hand none on to the file. A request
-- that is denied is answered here. Of one that passes, the variables txn.hg_limit,
-- txn.hg_remaining and txn.hg_reset have what its client is to be told.

-- The headers of a client that Headgate looks at. All others stay here.
local passed = { "authorization", "x-api-key", "x-http-method-override", "x-http-method", "x-method-override" }

-- The headers of an answer that are for the client.
local told = {
    "content-type", "retry-after", "cache-control", "x-content-type-options",
    "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
    "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit", "ratelimit-policy",
}

-- Until when nobody is asked at an address, in milliseconds of core.now.
local away = {}

-- For how long that is, after Headgate did not answer.
local pause = 1000

local function now()
    local t = core.now()
    return t.sec * 1000 + math.floor(t.usec / 1000)
end

-- The lines of a request that asks about this one.
local function question(txn, host)
    local lines = {
        "GET /v1/auth HTTP/1.0",
        "Host: " .. host,
        "X-Forwarded-Method: " .. txn.sf:method(),
        "X-Forwarded-Uri: " .. txn.sf:pathq(),
        "X-Forwarded-Host: " .. txn.sf:req_fhdr("host"),
        "X-Forwarded-For: " .. txn.sf:src(),
    }
    local given = txn.http:req_get_headers()
    for _, name in ipairs(passed) do
        -- All lines of it: Headgate refuses a request that has two keys.
        local values, i = given[name] or {}, 0
        while values[i] do
            table.insert(lines, name .. ": " .. values[i])
            i = i + 1
        end
    end
    return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

-- Reads an answer: status, headers and body, or nothing.
local function read(socket)
    local first = socket:receive("*l")
    local answer = { status = tonumber((first or ""):match("^HTTP/1%.%d (%d%d%d)")), headers = {} }
    while answer.status do
        local line = socket:receive("*l")
        if not line then
            return {}
        elseif line == "" or line == "\r" then
            break
        end
        local name, value = line:match("^([^:]+):%s*(.-)%s*$")
        if name then
            answer.headers[name:lower()] = { [0] = value }
        end
    end
    -- Without a length the body lasts until the connection is closed, as that of an answer of
    -- Headgate's HTTP server to what it does not take.
    local length = answer.headers["content-length"]
    length = length and tonumber(length[0])
    if length ~= 0 then
        answer.body = socket:receive(length or "*a")
    end
    return answer
end

-- Asks Headgate. This is not HAProxy's own client of HTTP: up to HAProxy 3 that tries four times
-- to connect, and repeats a request without an answer, which may have been counted.
local function ask(txn, base, timeout)
    local host, port = base:match("^http://%[?([^/%]]-)%]?:(%d+)")
    if not host then
        host, port = base:match("^http://%[?([^/%]]+)"), 80
    end
    local socket = core.tcp()
    socket:settimeout(timeout / 1000)
    local answer = {}
    if socket:connect(host, tonumber(port)) and socket:send(question(txn, host)) then
        answer = read(socket)
    end
    socket:close()
    return answer
end

-- Whether it is Headgate that has answered, and not HAProxy in its place, which says
-- 5xx. A 400 or 431 that is no problem document is of Headgate's HTTP server, which does not
-- take what the client has sent: no client may have it fail like this and pass uncounted.
local function answered(answer)
    local status = answer.status or 0
    if status == 200 or 400 <= status and status < 500 then
        return true
    end
    local kind = answer.headers and answer.headers["content-type"]
    return kind ~= nil and kind[0] == "application/problem+json"
end

core.register_action("headgate", { "http-req" }, function(txn, base, failure, timeout)
    local answer = {}
    if now() >= (away[base] or 0) then
        answer = ask(txn, base, tonumber(timeout))
        if not answered(answer) then
            away[base] = now() + pause
            core.Warning("headgate does not answer at " .. base)
        end
    end
    local reply = txn:reply()
    if not answered(answer) then
        if failure == "open" then
            return
        end
        reply:set_status(503)
        reply:add_header("retry-after", "5")
    elseif answer.status == 200 then
        for _, name in ipairs({ "limit", "remaining", "reset" }) do
            local value = answer.headers["x-ratelimit-" .. name]
            if value then
                txn:set_var("txn.hg_" .. name, value[0])
            end
        end
        return
    else
        reply:set_status(answer.status)
        for _, name in ipairs(told) do
            local values = answer.headers[name]
            if values then
                reply:add_header(name, values[0])
            end
        end
        -- Without a string here the function would fail, and the request pass.
        reply:set_body(answer.body or "")
    end
    txn:done(reply)
end, 3)
