"""A site that slowapi limits: 10 requests in 5 seconds, counted in STORAGE."""

import os

from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

app = FastAPI()
limiter = app.state.limiter = Limiter(key_func=lambda: "everyone", storage_uri=os.environ["STORAGE"], headers_enabled=True)
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/")
@limiter.limit("10 per 5 second")
async def site(request: Request, response: Response) -> dict[str, bool]:
    return {"ok": True}
