'use strict';

// Calls over Redis's protocol, of services that are as they should be, and of others.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const net = require('node:net');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { test } = require('node:test');

const { Client, HeadgateError, UnavailableError } = require('..');
const { Pipeline } = require('../lib/pipeline.js');
const { Replies, ReplyError } = require('../lib/replies.js');
const { serve } = require('./service.js');

// A machine that is busy with other tests may be slow; none of these is about that.
const timeout = 30_000;

/** Serves TCP until the test ends: each command is given to answer, which writes to the socket. */
async function service(t, answer) {
  const seen = { sockets: new Set(), connections: 0, commands: [], reads: 0 };
  const server = net.createServer((socket) => {
    seen.sockets.add(socket);
    seen.connections++;
    socket.on('close', () => seen.sockets.delete(socket)).on('error', () => {});
    const replies = new Replies();
    socket.on('data', (chunk) => {
      seen.reads++;
      // A command is an array of strings, as an answer may be one.
      replies.add(chunk, (command) => {
        seen.commands.push(command);
        answer(socket, command, seen);
      });
    });
  });
  seen.listen = (port) => new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  seen.close = () => new Promise((resolve) => {
    seen.sockets.forEach((socket) => socket.destroy());
    server.close(resolve);
  });
  await seen.listen(0);
  t.after(() => seen.close());
  seen.port = server.address().port;
  seen.url = `redis://127.0.0.1:${seen.port}`;
  return seen;
}

async function until(what, is) {
  for (const end = Date.now() + 120_000; !(await is()); await new Promise((resolve) => setTimeout(resolve, 5))) {
    assert.ok(Date.now() < end, what);
  }
}

const answered = (body, headers = []) => `*3\r\n:200\r\n*${headers.length}\r\n${headers.map(bulk).join('')}${bulk(body)}`;
const bulk = (text) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
const verdict = '{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[]}';
const good = answered(verdict, ['X-RateLimit-Limit', '7', 'Other', 'ö']);

for (const [name, answer, why, kept = false] of [
  ['it is closed', [null], /closed before the answer/],
  ['it ends in the middle', ['*3\r\n:200\r\n', null], /closed before the answer/],
  ['it ends in a string', ['*3\r\n:200\r\n*0\r\n$200\r\n{', null], /closed before the answer/],
  ['it is a text', ['+OK\r\n'], /not that of a Headgate/],
  ['it is a number', [':200\r\n'], /not that of a Headgate/],
  ['it is an empty array', ['*0\r\n'], /not that of a Headgate/],
  ['it has other types', ['*3\r\n$3\r\n200\r\n*0\r\n$2\r\n{}\r\n'], /not that of a Headgate/],
  ['it has no text', ['*3\r\n:200\r\n*0\r\n:7\r\n'], /not that of a Headgate/],
  ['it is RESP3', ['%0\r\n'], /not in Redis's protocol/],
  ['it is HTTP', ['HTTP/1.1 400 Bad Request\r\n\r\n'], /not in Redis's protocol/],
  ['it is no array', ['*-1\r\n'], /number or a length that is none/],
  ['it is no string', ['*3\r\n:200\r\n*0\r\n$-1\r\n'], /number or a length that is none/],
  ['it has a length without digits', ['*3\r\n:\r\n'], /without digits/],
  ['it has a string without an end', ['$2\r\nokay'], /line without an end/],
  ['it has a line without an end', [':200\rx'], /line without an end/],
  ['it is nested', ['*1\r\n*1\r\n*1\r\n*1\r\n'], /not in Redis's protocol/],
  ['it has a huge string', ['$4194305\r\n'], /above 4194304/],
  ['it has many large strings', ['*3\r\n:200\r\n*2\r\n$4194304\r\n'], /more than 4194304 bytes/],
  ['it has a huge array', ['*257\r\n'], /above 256/],
  ['it has a huge number', [`:${'9'.repeat(17)}\r\n`], /above 9007199254740991/],
  ['it has a line that does not end', [`-ERR ${'x'.repeat(10_000)}`], /line of more than 8192 bytes/],
  ['it is an error', ['-ERR unknown command\r\n'], /ERR unknown command/, true],
  ['it is no JSON', [answered('no')], /cannot decide/, true],
  ['it is about something else', [answered('{"permit":{}}')], /not that of a Headgate/, true],
]) {
  test(`an answer is none: ${name}`, async (t) => {
    const seen = await service(t, async (socket, command) => {
      if (!/"user"/.test(command[2])) {
        socket.write(good);
        return;
      }
      for (const part of answer) {
        if (part === null) {
          socket.end();
        } else {
          await new Promise((resolve) => socket.write(part, resolve));
        }
      }
    });
    const client = new Client({ url: seen.url, timeout });
    assert.equal((await client.check({ descriptor: {} })).allowed, true);
    await assert.rejects(client.check({ descriptor: { user: 'schlüssel' } }), (err) => err instanceof UnavailableError && err.status === 0 && why.test(err.message));
    assert.equal((await client.check({ descriptor: {} })).allowed, true);
    assert.equal(seen.connections, kept ? 1 : 2);
    assert.deepEqual(seen.commands[1], ['HG.POST', '/v1/check?status=true&at=true', '{"descriptor":{"user":"schlüssel"}}']);
  });
}

test('an answer that arrives byte by byte', async (t) => {
  const seen = await service(t, async (socket) => {
    for (const byte of Buffer.from(good)) {
      await new Promise((resolve) => socket.write(Buffer.of(byte), resolve));
    }
  });
  const said = await new Client({ url: seen.url, timeout }).check({ descriptor: {} });
  assert.deepEqual([said.allowed, said.status, said.headers], [true, 200, { 'x-ratelimit-limit': '7' }]);
});

test('what is read does not depend on how it arrives', () => {
  const text = Buffer.from(`+OK\r\n-ERR no\r\n:17\r\n$0\r\n\r\n*0\r\n${good}*2\r\n*1\r\n:0\r\n${bulk('ä\r\n')}`);
  const want = ['OK', 'ERR no', 17, '', [], [200, ['X-RateLimit-Limit', '7', 'Other', 'ö'], verdict], [[0], 'ä\r\n']];
  for (let size = 1; size <= text.length; size++) {
    const replies = new Replies();
    const got = [];
    const memory = Buffer.alloc(size);
    for (let at = 0; at < text.length; at += size) {
      // The memory of a chunk is used again.
      replies.add(memory.subarray(0, text.copy(memory, 0, at, at + size)), (value) => got.push(value instanceof ReplyError ? value.message : value));
    }
    assert.deepEqual(got, want, `${size} bytes at a time`);
  }
});

test('what nobody has asked for ends the connection', async (t) => {
  const seen = await service(t, (socket) => socket.write(good + good));
  const client = new Client({ url: seen.url, timeout });
  for (let i = 1; i <= 3; i++) {
    assert.equal((await client.check({ descriptor: {} })).allowed, true);
    await until('it is closed', () => seen.sockets.size === 0);
    assert.equal(seen.connections, i);
  }
});

test('a late answer is given to nobody else', async (t) => {
  const held = [];
  const seen = await service(t, (socket, [, , body]) => held.push(() => socket.write(answered(body))));
  const pipeline = new Pipeline(new URL(seen.url), undefined, timeout);
  const stop = new AbortController();
  const calls = ['a', 'b', 'c'].map((name) => pipeline.post('/', name, { signal: name === 'b' ? stop.signal : undefined }));
  await until('they are there', () => held.length === 3);
  stop.abort(new Error('enough'));
  await assert.rejects(calls[1], /enough/);
  held.forEach((answer) => answer());
  assert.deepEqual([(await calls[0]).text, (await calls[2]).text, seen.connections], ['a', 'c', 1]);
});

test('a connection that is silent for the time of a call has no more calls', async (t) => {
  let silent = true;
  const late = [];
  const seen = await service(t, (socket) => {
    if (silent) {
      late.push(() => socket.write(answered('{"late":true}')));
    } else {
      socket.write(good);
    }
  });
  const client = new Client({ url: seen.url, timeout: 50, retry: { tries: 1 } });
  const patient = new Client({ url: seen.url, timeout });
  await assert.rejects(client.check({ descriptor: {} }), (err) => err instanceof UnavailableError && /within 50 ms/.test(err.message));
  await until('it is closed', () => seen.sockets.size === 0);
  silent = false;
  late.forEach((answer) => answer());
  assert.equal((await patient.check({ descriptor: {} })).allowed, true);
});

test('10,000 calls at once, over one connection, are each decided once', async (t) => {
  const { url, resp } = await serve(t, 'rules:\n  - { name: api, per: [user], match: { user: present }, algorithm: sliding_window, limits: [9000 per 1h] }\n');
  const client = new Client({ url: resp, timeout });
  const verdicts = await Promise.all(Array.from({ length: 10_000 }, () => client.check({ descriptor: { user: 'ada' } })));
  const remaining = verdicts.filter((v) => v.allowed).map((v) => v.decisions[0].remaining);
  assert.deepEqual([remaining.length, new Set(remaining).size, verdicts.filter((v) => v.status === 429).length], [9000, 9000, 1000]);
  assert.match(await (await fetch(`${url}/metrics`)).text(), /^headgate_resp_connections 1$/m);
});

test('calls that are made together are sent together', async (t) => {
  const seen = await service(t, (socket) => socket.write(good));
  const client = new Client({ url: seen.url, timeout });
  await client.check({ descriptor: {} });
  await Promise.all(Array.from({ length: 100 }, () => client.check({ descriptor: {} })));
  assert.equal(seen.commands.length, 101);
  assert.ok(seen.reads < 20, `${seen.reads} reads`);
});

test('calls of a connection that breaks are made once, and fail', async (t) => {
  const seen = await service(t, (socket, command, { commands }) => {
    if (commands.length <= 40 || commands.length > 100) {
      socket.write(good);
    } else if (commands.length === 100) {
      socket.end();
    }
  });
  const client = new Client({ url: seen.url, timeout });
  const calls = await Promise.allSettled(Array.from({ length: 100 }, () => client.check({ descriptor: {} })));
  assert.equal(calls.slice(0, 40).every((call) => call.status === 'fulfilled'), true);
  assert.equal(calls.slice(40).every((call) => call.reason instanceof UnavailableError && call.reason.status === 0), true);
  assert.equal((await client.check({ descriptor: {} })).allowed, true);
  assert.deepEqual([seen.commands.length, seen.connections], [101, 2]);
});

test('a check with an id is repeated over another connection', async (t) => {
  const seen = await service(t, (socket, command, { commands }) => (commands.length === 1 ? socket.end() : socket.write(good)));
  assert.equal((await new Client({ url: seen.url, timeout, retry: { backoff: 1 } }).check({ descriptor: {}, id: 'order-7' })).allowed, true);
  assert.deepEqual([seen.commands.length, seen.connections], [2, 2]);
});

test('a service that is away, and is there again', async (t) => {
  const seen = await service(t, (socket) => socket.write(good));
  const client = new Client({ url: seen.url, timeout });
  const check = () => client.check({ descriptor: {} }).catch((err) => err);
  assert.equal((await check()).allowed, true);
  await seen.close();
  await until('nobody answers', async () => /ECONNREFUSED/.test((await check()).message));
  // Until the next connection is tried, calls fail at once, for the same reason.
  for (const err of await Promise.all(Array.from({ length: 100 }, check))) {
    assert.ok(err instanceof UnavailableError && /ECONNREFUSED/.test(err.message), String(err));
  }
  await seen.listen(seen.port);
  await until('it answers', async () => (await check()).allowed);
});

test('calls that cannot be sent wait, and those that end meanwhile are never made', async (t) => {
  const held = [];
  const seen = await service(t, (socket) => held.push(() => socket.write(good)));
  const pipeline = new Pipeline(new URL(seen.url), undefined, timeout);
  const stop = new AbortController();
  const post = (signal) => pipeline.post('/', '{}', { signal });
  const calls = Array.from({ length: 1024 }, () => post());
  const others = Promise.allSettled(Array.from({ length: 100 }, () => post(stop.signal)));
  calls.push(post());
  await until('1024 calls have come', () => held.length === 1024);
  stop.abort(new Error('enough'));
  assert.equal((await others).every(({ reason }) => reason.message === 'enough'), true);
  held.splice(0).forEach((answer) => answer());
  await until('the last one has come', () => held.length === 1);
  held[0]();
  await Promise.all(calls);
  assert.deepEqual([seen.commands.length, seen.connections], [1025, 1]);
});

test('calls that nobody answers end in time, also those that wait', async (t) => {
  const seen = await service(t, () => {});
  const client = new Client({ url: seen.url, timeout: 300 });
  const calls = await Promise.allSettled(Array.from({ length: 3000 }, () => client.check({ descriptor: {} })));
  assert.equal(calls.every(({ reason }) => reason instanceof UnavailableError && reason.status === 0), true);
  await until('it is closed', () => seen.sockets.size === 0);
});

test('a service that is being shut down gets no more calls', async (t) => {
  const held = [];
  const seen = await service(t, (socket, command, { commands }) => {
    if (commands.length === 1) {
      held.push(() => socket.write(good));
      return;
    }
    held.push(() => socket.write(answered(verdict, ['Connection', 'close'])));
    if (commands.length === 3) {
      socket.write(good);
    }
  });
  const client = new Client({ url: seen.url, timeout });
  const first = client.check({ descriptor: {} });
  const second = client.check({ descriptor: {} });
  await until('they are there', () => held.length === 2);
  held[0]();
  held[1]();
  assert.deepEqual([(await first).allowed, (await second).allowed], [true, true]);
  await until('it is closed', () => seen.sockets.size === 0);
  assert.equal((await client.check({ descriptor: {} })).allowed, true);
  assert.equal(seen.connections, 2);
});

test('a connection is not used for ever', async (t) => {
  const seen = await service(t, (socket) => socket.write(good));
  const client = new Client({ url: seen.url, timeout });
  let passed = 0;
  const { now } = performance;
  t.mock.method(performance, 'now', () => now.call(performance) + passed);
  for (const [after, connections] of [[0, 1], [50_000, 1], [80_000, 1], [0, 2], [50_000, 2]]) {
    passed += after;
    assert.equal((await client.check({ descriptor: {} })).allowed, true);
    assert.equal(seen.connections, connections);
  }
});

test('the token', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'headgate-token-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'token'), 'a-token-of-16-bytes@');
  const { resp } = await serve(t, 'rules:\n  - { name: api, per: all, limits: [3 per 1h] }\n', '--resp-token-file', join(dir, 'token'));
  const check = (credentials) => new Client({ url: resp.replace('//', `//${credentials}`), timeout }).check({ descriptor: {} });
  for (const credentials of [':a-token-of-16-bytes%40@', 'default:a-token-of-16-bytes%40@']) {
    assert.equal((await check(credentials)).allowed, true);
  }
  for (const [credentials, why] of [['', /NOAUTH/], [':another-token@', /WRONGPASS/]]) {
    await assert.rejects(check(credentials), (err) => err instanceof UnavailableError && err.status === 0 && why.test(err.message) && !/another-token/.test(err.stack));
  }
});

test('each call ends in its own time', async (t) => {
  const seen = await service(t, (socket, command) => command[2] === 'answered' && socket.write(good));
  const pipeline = new Pipeline(new URL(seen.url), undefined, 300);
  const ended = [];
  const post = (name) => assert.rejects(pipeline.post('/', name, {}), { name: 'TimeoutError' }).then(() => ended.push(name));
  const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
  await pipeline.post('/', 'answered', {});
  await pause();
  const first = post('first');
  await pause();
  await Promise.all([first, post('second'), post('third')]);
  assert.deepEqual(ended, ['first', 'second', 'third']);
});

test('a call that is too large is not made', async (t) => {
  const seen = await service(t, (socket) => socket.write(good));
  const client = new Client({ url: seen.url, timeout });
  await assert.rejects(client.check({ descriptor: { user: 'ä'.repeat(40_000) } }), (err) => err instanceof HeadgateError && err.status === 413 && /65536 bytes/.test(err.message));
  assert.equal((await client.check({ descriptor: {} })).allowed, true);
  assert.equal(seen.commands.length, 1);
});

test('what operators do is not done here', async (t) => {
  const { resp } = await serve(t, 'rules:\n  - { name: api, per: all, limits: [3 per 1h] }\n', '--clock', 'manual');
  const pipeline = new Pipeline(new URL(resp), undefined, timeout);
  for (const [path, status] of [['/v1/clock', 403], ['/v1/reload', 403], ['/v1/permits/revoke', 403], ['/metrics', 404], ['/v1/rules', 405]]) {
    assert.equal((await pipeline.post(path, '{"advance":"1h"}', {})).status, status, path);
  }
});

test('TLS that cannot begin is an error of the call', async () => {
  const client = new Client({ url: 'rediss://127.0.0.1:1', tls: { cert: 'no certificate', key: 'no key' }, timeout });
  await assert.rejects(client.check({ descriptor: {} }), UnavailableError);
});

test('the connection does not keep the process alive', async (t) => {
  const seen = await service(t, (socket) => socket.write(good));
  const program = `const { Client } = require('.'); new Client({ url: '${seen.url}', timeout: ${timeout} }).check({ descriptor: {} }).then((v) => console.log(v.allowed))`;
  const printed = await new Promise((resolve, reject) => {
    execFile(process.execPath, ['-e', program], { cwd: `${__dirname}/..`, timeout: 120_000 }, (err, out) => (err ? reject(err) : resolve(out)));
  });
  assert.equal(printed, 'true\n');
});
