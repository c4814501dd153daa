"""The same site, limited by the package that CONTENDER names: /free by a limit that nobody reaches, /few by LIMIT."""

import os

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from limits import RateLimitItemPerHour, RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from pyrate_limiter import Limiter as PyrateLimiter
from pyrate_limiter import Rate, RedisBucket
from redis.asyncio import Redis
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

from fastapi_limiter.depends import RateLimiter
from headgate.asgi import Limit

CONTENDER, REDIS = os.environ["CONTENDER"], os.environ["REDIS"]
FREE, FEW, PERIOD = 1_000_000, int(os.environ["LIMIT"]), int(os.environ["PERIOD"])

app = FastAPI()


def key(request: Request) -> str:
    return request.headers["x-api-key"]


async def free(request: Request) -> Response:
    return Response("ok")


async def few(request: Request) -> Response:
    return Response("ok")


if CONTENDER == "headgate":
    app.add_middleware(Limit, url=os.environ["HEADGATE"], timeout=10.0, on_failure="deny")
elif CONTENDER == "slowapi":
    slow = app.state.limiter = SlowLimiter(key_func=key, storage_uri=REDIS)
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    free, few = slow.limit(f"{FREE} per 1 hour")(free), slow.limit(f"{FEW} per {PERIOD} second")(few)

depends = {"/free": [], "/few": []}
if CONTENDER == "limits":
    moving = MovingWindowRateLimiter(RedisStorage("async+" + REDIS, implementation="redispy"))

    def by(item):
        async def limited(request: Request) -> None:
            if not await moving.hit(item, key(request)):
                raise HTTPException(429)

        return limited

    depends = {"/free": [Depends(by(RateLimitItemPerHour(FREE)))], "/few": [Depends(by(RateLimitItemPerSecond(FEW, PERIOD)))]}
elif CONTENDER == "fastapi-limiter":

    def by(name: str, rate: Rate):
        made = []

        async def limited(request: Request, response: Response) -> None:
            if not made:
                bucket = await RedisBucket.init([rate], Redis.from_url(REDIS), name)
                made.append(RateLimiter(limiter=PyrateLimiter(bucket), identifier=identified))
            await made[0](request, response)

        return limited

    async def identified(request: Request) -> str:
        return key(request)

    depends = {"/free": [Depends(by("free", Rate(FREE, 3_600_000)))], "/few": [Depends(by("few", Rate(FEW, PERIOD * 1000)))]}

app.get("/free", dependencies=depends["/free"])(free)
app.get("/few", dependencies=depends["/few"])(few)
