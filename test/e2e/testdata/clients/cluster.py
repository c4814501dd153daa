# Asks Headgate as programs do whose redis-py is in cluster mode, and prints what four calls of
# CL.THROTTLE and two of HG.CHECK were answered. The port and the token are arguments.
import sys

import redis

port, password = int(sys.argv[1]), sys.argv[2]
protocols = [2, 3] if int(redis.__version__.split(".")[0]) >= 5 else [None]
for protocol in protocols:
    options = {} if protocol is None else {"protocol": protocol}
    client = redis.RedisCluster(host="127.0.0.1", port=port, password=password, decode_responses=True, socket_timeout=60, **options)
    name = f"redis-py-{redis.__version__.split('.')[0]}-{protocol or 2}"
    throttled = [client.execute_command("CL.THROTTLE", name, 2, 1, 3600)[0] for _ in range(4)]
    print(name, "".join(map(str, throttled)), end="")
    for args in (("COST", 5), ()):
        reply = client.execute_command("HG.CHECK", "mail", name, *args)
        print("", int(reply["allowed"] if isinstance(reply, dict) else reply[1]), end="")
    print()
    client.close()
