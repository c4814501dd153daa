"""A site that Headgate's middleware limits, by the service at SERVICE."""

import os

from fastapi import FastAPI
from headgate.asgi import Limit

app = FastAPI()
app.add_middleware(Limit, url="http://" + os.environ["SERVICE"], timeout=10.0, on_failure="deny")


@app.get("/")
async def site() -> dict[str, bool]:
    return {"ok": True}
