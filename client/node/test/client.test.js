'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const { test } = require('node:test');

const { Client, HeadgateError, UnavailableError } = require('..');
const { serve, listen } = require('./service.js');

// A machine that is busy with other tests may be slow; none of these is about that.
const timeout = 30_000;

const policy = `
limits:
  - name: mail
    config: [{ limit: 3, period: 3600 }]
rules:
  - name: api
    match: { api_key: present }
    per: [api_key]
    limits: [2 per 1h]
`;

// Over HTTP, and over Redis's protocol.
const both = (name, run) => ['url', 'resp'].forEach((transport) => test(`${name}, by ${transport}`, async (t) => run((await serve(t, policy))[transport] + '/')));

both('check, peek, refund and reset', async (url) => {
  const client = new Client({ url, timeout });
  const mail = { checks: [{ rule: 'mail', key: 'user42', cost: 2 }] };
  const first = await client.check(mail);
  assert.deepEqual([first.allowed, first.status, first.decisions[0].remaining, first.problem], [true, 200, 1, undefined]);
  assert.equal(first.headers['x-ratelimit-remaining'], '1');
  const second = await client.check(mail);
  assert.deepEqual([second.allowed, second.status, second.denied_by.rule, second.problem.status], [false, 429, 'mail', 429]);
  assert.ok(second.retry_after_ms > 0);
  assert.equal((await client.peek({ checks: [{ rule: 'mail', key: 'user42' }] })).allowed, true);
  assert.equal((await client.refund({ ...mail, at: first.at })).decisions[0].remaining, 3);
  assert.equal((await client.check(mail)).allowed, true);
  assert.deepEqual(await client.reset(mail), { reset: ['mail'] });
  assert.deepEqual((await client.explain({ descriptor: { api_key: 'k' } })).rules.map(({ rule, binds }) => [rule, binds]), [['api', true], ['mail', false]]);
  const never = await client.check({ checks: [{ rule: 'mail', key: 'user42', cost: 4 }] });
  assert.deepEqual([never.retry_after_ms, 'retry-after' in never.headers], [-1, false]);
  assert.deepEqual((await client.check({ descriptor: { api_key: 'schlüssel' } })).decisions.map((d) => d.remaining), [1]);
});

both('reserve, settle and cancel', async (url) => {
  const client = new Client({ url, timeout });
  const mail = { checks: [{ rule: 'mail', key: 'user42', cost: 3 }] };
  const first = await client.reserve({ ...mail, id: 'order-8812', lifetime_ms: 60_000 });
  assert.deepEqual([first.allowed, first.reservation, first.expires_in_ms, first.status], [true, 'order-8812', 60_000, 200]);
  const denied = await client.reserve(mail);
  assert.deepEqual([denied.allowed, denied.status, denied.reservation], [false, 429, undefined]);
  const settled = await client.settle({ reservation: first.reservation, cost: 1 });
  assert.deepEqual([settled.decisions[0].remaining, (await client.settle({ reservation: first.reservation, cost: 1 })).decisions[0].remaining], [2, 2]);
  await assert.rejects(client.settle({ reservation: first.reservation, cost: 2 }), (err) => err instanceof HeadgateError && err.status === 409);
  const second = await client.reserve({ checks: [{ rule: 'mail', key: 'user42', cost: 2 }] });
  assert.equal((await client.cancel(second.reservation)).decisions[0].remaining, 2);
  await assert.rejects(client.cancel('nobody'), (err) => err.status === 404);
  assert.equal((await client.check({ descriptor: { api_key: 'k' } }, { outcome: true })).reservation, undefined);
});

both('mistakes are named', async (url) => {
  const client = new Client({ url, timeout });
  await assert.rejects(client.check({ checks: [{ rule: 'mail', key: 'k', cost: 0 }, { rule: 'mali', key: 'k' }] }), (err) => {
    assert.ok(err instanceof HeadgateError && !(err instanceof UnavailableError));
    assert.equal(err.status, 422);
    assert.match(err.message, /checks\[0\]\.cost is 0/);
    return true;
  });
  await assert.rejects(client.check({ checks: [{ rule: 'mali', key: 'k' }] }), (err) => err.status === 404 && /mali/.test(err.message));
  await assert.rejects(client.check({ descriptor: {}, cots: 1 }), (err) => err.status === 400 && /cots/.test(err.message));
});

test('an answer without an end is not read to its end', async (t) => {
  let closed;
  const ended = new Promise((resolve) => { closed = resolve; });
  const other = await listen(t, (req, res) => {
    const chunk = Buffer.alloc(1 << 16, 'x');
    const more = () => { while (res.write(chunk)); };
    res.on('drain', more).on('close', closed);
    more();
  });
  await assert.rejects(new Client({ url: other, timeout }).check({ descriptor: {} }), (err) => err instanceof UnavailableError && /more than 4194304 bytes/.test(err.message));
  await ended;
});

test('there is no decision', async (t) => {
  const service = await serve(t, policy);
  await service.stop();
  await assert.rejects(new Client({ url: service.url, timeout }).check({ descriptor: {} }), (err) => err instanceof UnavailableError && err.status === 0 && /does not answer/.test(err.message) && err.cause !== undefined);
  for (const [status, body] of [[502, '<html>'], [404, 'not here'], [200, ''], [200, '[]'], [302, '{}']]) {
    const other = await listen(t, (req, res) => {
      res.writeHead(status, { location: 'http://127.0.0.1:1/' });
      res.end(body);
    });
    await assert.rejects(new Client({ url: other, timeout }).check({ descriptor: {} }), (err) => err instanceof UnavailableError && err.status === 0, `${status} ${body}`);
  }
});

test('what becomes of calls without an answer', async (t) => {
  const service = await serve(t, policy);
  await service.stop();
  const mail = { checks: [{ rule: 'mail', key: 'user42' }] };
  for (const [onNoAnswer, allowed, status] of [['allow', true, 200], ['deny', false, 503]]) {
    for (const url of [service.url, service.resp]) {
      const client = new Client({ url, timeout, onNoAnswer });
      for (const verdict of [await client.check(mail), await client.peek(mail), await client.reserve(mail)]) {
        assert.deepEqual([verdict.allowed, verdict.status, verdict.problem?.status], [allowed, status, allowed ? undefined : 503]);
        assert.ok(verdict.error instanceof UnavailableError);
      }
      const permit = await client.acquire({ rule: 'report' });
      assert.deepEqual([permit.allowed, permit.lost, await permit.release()], [allowed, false, true]);
      await assert.rejects(client.refund(mail), UnavailableError);
    }
  }
  // A service that says itself that its store does not answer has decided by its policy.
  const other = await listen(t, (req, res) => {
    res.writeHead(503, { 'content-type': 'application/json' });
    res.end('{"title":"t","status":503,"detail":"the store did not answer"}');
  });
  assert.equal((await new Client({ url: other, timeout, onNoAnswer: 'allow' }).check(mail)).allowed, false);
  assert.throws(() => new Client({ onNoAnswer: 'open' }), /must be throw, allow or deny/);
});

test('a mistake of the program is not taken for a service that is away', async () => {
  for (const [options, what] of [['http://127.0.0.1:1', /and not "http/], [{ timeOut: 5, on: 1 }, /and not timeOut, on$/], [null, TypeError]]) {
    assert.throws(() => new Client(options), what);
  }
  const client = new Client({ url: 'http://127.0.0.1:1', onNoAnswer: 'allow' });
  for (const request of [undefined, { descriptor: {}, cost: 1n }]) {
    await assert.rejects(client.check(request), TypeError);
  }
});

test('an answer about something else is none', async (t) => {
  const url = await listen(t, (req, res) => res.end('{"permit":{}}'));
  const client = new Client({ url, timeout });
  const calls = [client.settle({ reservation: 'r', status: 200 }), client.cancel('r'), client.refund({ descriptor: {} }), client.reset({ descriptor: {} }), client.acquire({ rule: 'report' })];
  for (const ended of await Promise.allSettled(calls)) {
    assert.ok(ended.reason instanceof UnavailableError && ended.reason.status === 0, String(ended.reason));
  }
});

test('connections are used again', async (t) => {
  const { url } = await serve(t, policy);
  // A relay, to count connections.
  let connections = 0;
  const relay = await listen(t, (req, res) => {
    const onward = http.request(url + req.url, { method: req.method, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    req.socket.counted ??= ++connections;
    req.pipe(onward);
  });
  const client = new Client({ url: relay, timeout });
  for (let i = 0; i < 20; i++) {
    await client.peek({ descriptor: {} });
  }
  assert.ok(connections < 5, `${connections} connections for 20 requests`);
});
