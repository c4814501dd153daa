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
local passed = { "authorization", "x-api-key" }

-- The headers of an answer that are for the client.
local told = {
    "content-type", "retry-after", "cache-control", "x-content-type-options",
    "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
    "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit", "ratelimit-policy",
}

local function ask(txn, base, timeout)
    local given = txn.http:req_get_headers()
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-host"] = { txn.sf:req_hdr("host") },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    for _, name in ipairs(passed) do
        -- All lines of it: Headgate refuses a request that has two keys.
        headers[name] = given[name]
    end
    return core.httpclient():get({ url = base .. "/v1/auth", headers = headers, timeout = tonumber(timeout) })
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
    local answer = ask(txn, base, timeout)
    local reply = txn:reply()
    if not answered(answer) then
        core.Warning("headgate does not answer at " .. base)
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
        reply:set_body(answer.body)
    end
    txn:done(reply)
end, 3)
