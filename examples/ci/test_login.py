import json
import os
import urllib.request

from headgate import Client

URL = os.environ.get("HEADGATE_URL", "http://127.0.0.1:8080")
TOKEN = os.environ["HEADGATE_ADMIN_TOKEN"]


def advance(by):
    body = json.dumps({"advance": by}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/clock", body, headers)).close()


def test_the_sixth_attempt_is_denied():
    advance("15m")  # whatever came before is over
    with Client(URL, timeout=30) as client:
        for _ in range(5):
            assert client.check("login-user", "ada")
        denied = client.check("login-user", "ada")
        assert not denied
        assert denied.retry_after == 15 * 60
        advance("15m")
        assert client.check("login-user", "ada")
