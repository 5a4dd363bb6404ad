"""The usual calls of redis-py, on the gateway and on a Redis server. The replies have to be the same.

    calls.py CALLS.TXT GATEWAY_PORT REDIS_PORT
"""

import sys

import redis
from redis.exceptions import RedisError, WatchError


def sets(reply):
    """A set has no order."""
    return sorted(reply)


def pipeline(r):
    with r.pipeline(transaction=False) as pipe:
        return pipe.set("p", 1).incr("p").get("p").execute()


def transaction(r):
    with r.pipeline() as pipe:
        return pipe.set("t", 1).incr("t").hset("th", "f", "v").smembers("none").execute()


def watch(r):
    with r.pipeline() as pipe:
        pipe.watch("w")
        before = pipe.get("w")
        pipe.multi()
        pipe.set("w", (before or "") + "x")
        return pipe.execute()


def watch_that_fails(r):
    with r.pipeline() as pipe:
        pipe.watch("w")
        r.set("w", "other")
        pipe.multi()
        pipe.set("w", "mine")
        try:
            return pipe.execute()
        except WatchError:
            return "WatchError"


def lock(r):
    with r.lock("lock", timeout=5) as held:
        extended = held.extend(5)
        taken = r.lock("lock", timeout=5).acquire(blocking=False)
        return [extended, taken, held.locked(), held.reacquire()]


CALLS = [
    ("PING", lambda r: r.ping()),
    ("ECHO", lambda r: r.echo("hello")),
    ("SET", lambda r: r.set("k", "value")),
    ("GET", lambda r: r.get("k")),
    ("GET nothing", lambda r: r.get("none")),
    ("SET EX", lambda r: [r.set("e", 1, ex=100), 95 < r.ttl("e") <= 100]),
    ("SET PX", lambda r: [r.set("e", 1, px=100_000), 95_000 < r.pttl("e") <= 100_000]),
    ("SET NX", lambda r: [r.set("k", 2, nx=True), r.set("nx", 2, nx=True)]),
    ("SET XX", lambda r: [r.set("k", 3, xx=True), r.set("none", 2, xx=True)]),
    ("SET GET", lambda r: r.set("k", 4, get=True)),
    ("SET KEEPTTL", lambda r: [r.set("e", 2, keepttl=True), r.ttl("e") > 0]),
    ("SETEX", lambda r: r.setex("se", 100, "v")),
    ("PSETEX", lambda r: r.psetex("pse", 100_000, "v")),
    ("SETNX", lambda r: [r.setnx("k", 1), r.setnx("sn", 1)]),
    ("GETSET", lambda r: r.getset("k", "5")),
    ("GETDEL", lambda r: [r.getdel("sn"), r.getdel("sn")]),
    ("GETEX", lambda r: [r.getex("e", persist=True), r.ttl("e")]),
    ("MSET", lambda r: r.mset({"a": 1, "b": 2})),
    ("MGET", lambda r: r.mget("a", "none", "b")),
    ("MSETNX", lambda r: [r.msetnx({"a": 1, "c": 2}), r.msetnx({"m1": 1, "m2": 2})]),
    ("INCR", lambda r: [r.incr("n"), r.incr("n", 41)]),
    ("DECR", lambda r: [r.decr("n"), r.decr("n", 2)]),
    ("INCRBYFLOAT", lambda r: r.incrbyfloat("f", 1.5)),
    ("APPEND", lambda r: [r.append("k", "!"), r.get("k")]),
    ("STRLEN", lambda r: r.strlen("k")),
    ("GETRANGE", lambda r: r.getrange("k", 0, 0)),
    ("SETRANGE", lambda r: [r.setrange("k", 1, "xyz"), r.get("k")]),
    ("EXISTS", lambda r: r.exists("k", "none", "a")),
    ("TYPE", lambda r: [r.type("k"), r.type("none")]),
    ("DEL", lambda r: r.delete("a", "none")),
    ("UNLINK", lambda r: r.unlink("b")),
    ("TOUCH", lambda r: r.touch("k", "none")),
    ("EXPIRE", lambda r: [r.expire("k", 100), r.expire("none", 100)]),
    ("EXPIRE NX", lambda r: [r.expire("k", 200, nx=True), r.expire("k", 200, gt=True)]),
    ("PEXPIRE", lambda r: r.pexpire("k", 100_000)),
    ("EXPIREAT", lambda r: [r.expireat("k", 4_000_000_000), r.expiretime("k")]),
    ("PEXPIREAT", lambda r: [r.pexpireat("k", 4_000_000_000_000), r.pexpiretime("k")]),
    ("PERSIST", lambda r: [r.persist("k"), r.ttl("k")]),
    ("TTL of nothing", lambda r: [r.ttl("none"), r.pttl("none")]),
    ("EXPIRE in the past", lambda r: [r.set("gone", 1), r.expire("gone", -1), r.get("gone")]),
    ("RENAME", lambda r: [r.set("from", 1), r.rename("from", "to"), r.get("to")]),
    ("RENAMENX", lambda r: r.renamenx("to", "k")),
    ("COPY", lambda r: [r.copy("to", "copy"), r.copy("to", "copy"), r.copy("to", "copy", replace=True)]),
    ("KEYS", lambda r: sets(r.keys("m*"))),
    ("SCAN", lambda r: sets(r.scan_iter(match="m*", count=2))),
    ("DBSIZE", lambda r: r.dbsize()),
    ("HSET", lambda r: [r.hset("h", "f", "v"), r.hset("h", mapping={"g": 1, "i": 2})]),
    ("HGET", lambda r: [r.hget("h", "f"), r.hget("h", "none"), r.hget("none", "f")]),
    ("HMGET", lambda r: r.hmget("h", "f", "none", "g")),
    ("HGETALL", lambda r: r.hgetall("h")),
    ("HKEYS", lambda r: sets(r.hkeys("h"))),
    ("HVALS", lambda r: sets(r.hvals("h"))),
    ("HLEN", lambda r: r.hlen("h")),
    ("HEXISTS", lambda r: [r.hexists("h", "f"), r.hexists("h", "none")]),
    ("HINCRBY", lambda r: r.hincrby("h", "g", 5)),
    ("HINCRBYFLOAT", lambda r: r.hincrbyfloat("h", "x", 0.5)),
    ("HSETNX", lambda r: [r.hsetnx("h", "f", 1), r.hsetnx("h", "new", 1)]),
    ("HSTRLEN", lambda r: r.hstrlen("h", "f")),
    ("HSCAN", lambda r: dict(r.hscan_iter("h"))),
    ("HDEL", lambda r: [r.hdel("h", "f", "none"), r.hlen("h")]),
    ("SADD", lambda r: [r.sadd("s", "a", "b", "c"), r.sadd("s", "a")]),
    ("SMEMBERS", lambda r: sets(r.smembers("s"))),
    ("SISMEMBER", lambda r: [r.sismember("s", "a"), r.sismember("s", "x")]),
    ("SMISMEMBER", lambda r: r.smismember("s", ["a", "x"])),
    ("SCARD", lambda r: r.scard("s")),
    ("SREM", lambda r: r.srem("s", "c", "x")),
    ("SINTER", lambda r: [r.sadd("s2", "b", "d"), sets(r.sinter("s", "s2"))]),
    ("SUNION", lambda r: sets(r.sunion("s", "s2"))),
    ("SDIFF", lambda r: sets(r.sdiff("s", "s2"))),
    ("SINTERSTORE", lambda r: [r.sinterstore("si", "s", "s2"), sets(r.smembers("si"))]),
    ("SUNIONSTORE", lambda r: r.sunionstore("su", "s", "s2")),
    ("SMOVE", lambda r: [r.smove("s", "s2", "a"), r.smove("s", "s2", "x")]),
    ("SSCAN", lambda r: sets(r.sscan_iter("s2"))),
    ("SPOP", lambda r: [r.sadd("one", "x"), r.spop("one"), r.spop("one")]),
    ("SRANDMEMBER", lambda r: [r.sadd("one", "x"), r.srandmember("one")]),
    ("a pipeline", pipeline),
    ("MULTI and EXEC", transaction),
    ("WATCH", watch),
    ("WATCH of a key that changes", watch_that_fails),
    ("a lock", lock),
    ("INCR of text", lambda r: r.incr("copy") if r.set("copy", "x") else None),
    ("HGET of a string", lambda r: r.hget("copy", "f")),
    ("a binary value", lambda r: [r.set("bin", b"\xc3\xa4\n\r\n"), r.get("bin")]),
    ("a large value", lambda r: [r.set("large", "x" * 500_000), r.strlen("large")]),
    ("database 3", lambda r: [r.execute_command("SELECT", 3), r.set("k", "in 3"), r.get("k"), r.execute_command("SELECT", 0)]),
    ("INFO", lambda r: sorted(set(r.info()) & {"redis_version", "role", "loading"})),
    ("CLIENT SETNAME", lambda r: [r.client_setname("calls"), r.client_getname()]),
    ("FLUSHDB", lambda r: [r.flushdb(), r.dbsize()]),
]


def reply(call, connection):
    try:
        return call(connection)
    except RedisError as error:
        # The word before the text is what programs rely on.
        return f"{type(error).__name__}: {str(error).split(' ')[0]}"


def unordered(reply):
    """A reply whose items have no order."""
    return sorted(reply.items() if isinstance(reply, dict) else reply)


def of_words(line):
    """A line of calls.txt, as a call."""
    words = line.lstrip("~").split()
    if line.startswith("~"):
        return (line, lambda r: unordered(r.execute_command(*words)))
    return (line, lambda r: r.execute_command(*words))


def main():
    gateway, server = (int(port) for port in sys.argv[2:4])
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    calls = CALLS + [of_words(line) for line in lines]
    differ = 0
    for protocol in (2, 3):
        options = {"decode_responses": True, "protocol": protocol, "single_connection_client": True}
        ours, theirs = (redis.Redis(port=port, **options) for port in (gateway, server))
        for connection in (ours, theirs):
            connection.flushall()
        for name, call in calls:
            got, expected = reply(call, ours), reply(call, theirs)
            if got != expected:
                differ += 1
                print(f"RESP{protocol} {name}: {got!r}, Redis: {expected!r}")
    print(f"redis-py {redis.__version__}: {len(calls)} calls with RESP2 and RESP3, {differ} differ")
    return 1 if differ else 0


sys.exit(main())
