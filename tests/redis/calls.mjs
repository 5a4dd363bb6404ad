// The usual calls of node-redis and ioredis, on the gateway and on a Redis server. The replies have to be the same.
//
//     node calls.mjs CALLS.TXT GATEWAY_PORT REDIS_PORT

import { readFileSync } from 'node:fs';
import { createClient } from 'redis';
import Redis from 'ioredis';

const [gateway, server] = process.argv.slice(3).map(Number);
const sorted = values => [...values].sort();

// The lines of calls.txt, as calls: `send` sends words. The items of a reply have no order behind a ~.
const lines = readFileSync(process.argv[2], 'utf8').split('\n').filter(line => line && !line.startsWith('#'));
const unordered = reply => (Array.isArray(reply) ? sorted(reply) : sorted(Object.entries(reply).map(String)));
const ofWords = send => lines.map(line => {
  const words = line.replace('~', '').split(' ');
  return [line, async r => (line.startsWith('~') ? unordered(await send(r, words)) : send(r, words))];
});

const nodeRedis = [
  ['PING', r => r.ping()],
  ['SET', r => r.set('k', 'value')],
  ['GET', async r => [await r.get('k'), await r.get('none')]],
  ['SET with options', async r => [await r.set('k', '1', { EX: 100 }), await r.set('k', '2', { NX: true }), await r.ttl('k') > 90]],
  ['SETEX', r => r.setEx('se', 100, 'v')],
  ['MSET and MGET', async r => [await r.mSet({ a: '1', b: '2' }), await r.mGet(['a', 'none', 'b'])]],
  ['INCR and DECR', async r => [await r.incr('n'), await r.incrBy('n', 5), await r.decr('n'), await r.incrByFloat('f', 0.5)]],
  ['APPEND', async r => [await r.append('k', '!'), await r.strLen('k'), await r.getRange('k', 0, 0)]],
  ['EXISTS and DEL', async r => [await r.exists(['a', 'none']), await r.del(['a', 'none']), await r.unlink('b')]],
  ['EXPIRE', async r => [await r.expire('k', 100), await r.persist('k'), await r.ttl('k'), await r.pTTL('none')]],
  ['TYPE and RENAME', async r => [await r.type('k'), await r.rename('k', 'renamed'), await r.get('renamed')]],
  ['HSET', async r => [await r.hSet('h', { f: 'v', g: '1' }), await r.hGet('h', 'f'), await r.hGetAll('h'), await r.hIncrBy('h', 'g', 2)]],
  ['HDEL', async r => [await r.hDel('h', ['f', 'none']), await r.hLen('h'), sorted(await r.hKeys('h')), await r.hExists('h', 'g')]],
  ['SADD', async r => [await r.sAdd('s', ['a', 'b', 'c']), await r.sIsMember('s', 'a'), await r.sCard('s'), sorted(await r.sMembers('s'))]],
  ['set operations', async r => [await r.sAdd('s2', ['b', 'd']), await r.sInter(['s', 's2']), sorted(await r.sUnion(['s', 's2'])), await r.sRem('s', 'a')]],
  ['MULTI', r => r.multi().set('t', '1').incr('t').get('t').exec()],
  ['a pipeline', r => Promise.all([r.set('p', '1'), r.incr('p'), r.get('p')])],
  ['SCAN', async r => { const keys = []; for await (const some of r.scanIterator({ MATCH: 's*' })) keys.push(...[some].flat()); return sorted(keys); }],
  ['an error', r => r.incr('renamed')],
  ['a wrong type', r => r.hGet('renamed', 'f')],
  ['EVAL that is unknown', async r => { try { await r.eval('return 1'); return 'done'; } catch { return 'done'; } }],
  ['DBSIZE', r => r.dbSize()],
];

const ioredis = [
  ['PING', r => r.ping()],
  ['SET', async r => [await r.set('k', 'value'), await r.set('k', '1', 'EX', 100), await r.set('k', '2', 'NX')]],
  ['GET', async r => [await r.get('k'), await r.getBuffer('k').then(String), await r.get('none')]],
  ['MSET', async r => [await r.mset({ a: 1, b: 2 }), await r.mget('a', 'none', 'b')]],
  ['INCR', async r => [await r.incr('n'), await r.incrby('n', 5), await r.decrby('n', 2)]],
  ['EXPIRE', async r => [await r.expire('k', 100), await r.ttl('k') > 90, await r.pexpire('k', 100000), await r.persist('k')]],
  ['keys', async r => [await r.exists('k', 'none'), await r.type('k'), await r.del('a', 'b'), sorted(await r.keys('k*'))]],
  ['hashes', async r => [await r.hset('h', { f: 'v', g: 1 }), await r.hgetall('h'), await r.hmget('h', 'f', 'none'), await r.hincrby('h', 'g', 2)]],
  ['sets', async r => [await r.sadd('s', 'a', 'b'), sorted(await r.smembers('s')), await r.sismember('s', 'a'), await r.scard('s')]],
  ['multi()', r => r.multi().set('t', 1).incr('t').get('t').exec()],
  ['pipeline()', r => r.pipeline().set('p', 1).incr('p').get('p').exec()],
  ['multi without a pipeline', async r => [await r.multi({ pipeline: false }), await r.set('x', 1), await r.incr('x'), await r.exec()]],
  ['WATCH', async r => [await r.watch('w'), await r.multi().set('w', 1).exec()]],
  ['scanStream', r => new Promise((done, failed) => { const keys = []; r.scanStream({ match: 's*' }).on('data', some => keys.push(...some)).on('end', () => done(sorted(keys))).on('error', failed); })],
  ['an error', r => r.set('text', 'x').then(() => r.incr('text'))],
  ['select', async r => [await r.select(2), await r.set('k', 'in 2'), await r.get('k'), await r.select(0), await r.get('k')]],
  ['a buffer', async r => [await r.set('b', Buffer.from([0, 255, 13, 10])), [...await r.getBuffer('b')]]],
  ['dbsize', r => r.dbsize()],
];

// An error counts by its first word, as programs rely on it.
const reply = async (call, connection) => {
  try { return JSON.stringify(await call(connection)); } catch (error) { return 'error ' + String(error.message).split(' ')[0]; }
};

let different = 0;
async function compare(name, calls, connect, flush, close) {
  const [ours, theirs] = await Promise.all([connect(gateway), connect(server)]);
  await Promise.all([flush(ours), flush(theirs)]);
  let own = 0;
  for (const [what, call] of calls) {
    const [got, expected] = [await reply(call, ours), await reply(call, theirs)];
    if (got === expected) continue;
    own += 1;
    console.log(`${name} ${what}: ${got}, Redis: ${expected}`);
  }
  await Promise.all([close(ours), close(theirs)]);
  console.log(`${name}: ${calls.length} calls and groups of calls, ${own} differ`);
  different += own;
}

for (const RESP of [2, 3]) {
  const calls = [...nodeRedis, ...ofWords((r, words) => r.sendCommand(words))];
  await compare(`node-redis, RESP${RESP}`, calls, port => createClient({ url: `redis://127.0.0.1:${port}`, RESP }).connect(), r => r.flushAll(), r => r.close());
}
const calls = [...ioredis, ...ofWords((r, [name, ...words]) => r.call(name, ...words))];
await compare('ioredis', calls, async port => new Redis(port), r => r.flushall(), r => r.quit());
process.exit(different ? 1 : 0);
