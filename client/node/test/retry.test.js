'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { Client, UnavailableError } = require('..');
const { Retries, retryAfter } = require('../lib/retry.js');
const { listen } = require('./service.js');

const timeout = 30_000;

/** Serves what answer says of each request, and counts requests. */
async function answering(t, answer) {
  const seen = { requests: 0 };
  seen.url = await listen(t, (req, res) => {
    req.resume();
    req.on('end', () => {
      const { status = 503, headers = {}, body = '{"detail":"not now"}' } = answer(++seen.requests, req) || {};
      res.writeHead(status, { 'content-type': 'application/json', ...headers });
      res.end(body);
    });
  });
  return seen;
}

const verdict = { status: 200, body: '{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[],"reset":[]}' };

test('a wait is a random part of a bound that doubles', () => {
  for (const [random, waits] of [[() => 0, [0, 0, 0]], [() => 0.5, [50, 100, 150]], [() => 1, [100, 200, 300]]]) {
    const retries = new Retries({ tries: 4, backoff: 100, maxBackoff: 300 }, random);
    assert.deepEqual([1, 2, 3].map((tried) => retries.next(tried, 0, 0)), waits);
    assert.equal(retries.next(4, 0, 0), undefined, 'there are four tries');
  }
});

test('what the service asks for is the least, with jitter upward only', () => {
  const wait = (random, after) => new Retries({ backoff: 100 }, () => random).next(1, 0, after);
  assert.equal(wait(0, 1000), 1000);
  assert.ok(Math.abs(wait(1, 1000) - 1100) < 1e-6);
  assert.equal(wait(1, 50), 100, 'the backoff is longer');
  assert.equal(new Retries({ maxWait: 5000 }).next(1, 0, 6000), undefined, 'it would wait for too long');
  assert.equal(new Retries({ maxWait: 5000 }, () => 0).next(2, 4000, 2000), undefined, 'with what it has waited');
});

test('Retry-After in seconds and as a date', () => {
  const now = Date.parse('2026-11-22T12:00:00Z');
  for (const [text, want] of [['2', 2000], ['1.5', 1500], [' 3 ', 3000], ['Sun, 22 Nov 2026 12:00:07 GMT', 7000], ['Sun, 22 Nov 2026 11:00:00 GMT', 0], ['soon', 0], ['-1', 0], ['', 0], [null, 0], ['99999999999999', 0]]) {
    assert.equal(retryAfter(text, now), want, String(text));
  }
});

test('retries are a tenth of the calls, and some', async (t) => {
  const service = await answering(t, () => undefined);
  const client = new Client({ url: service.url, timeout, retry: { backoff: 1, maxBackoff: 1, floor: 10 } });
  const calls = 200;
  for (let i = 0; i < calls; i++) {
    await assert.rejects(client.peek({ descriptor: {} }), UnavailableError);
  }
  assert.ok(service.requests <= 1.1 * calls + 10 && service.requests >= 1.1 * calls, `${service.requests} requests for ${calls} calls`);
});

test('what may be repeated is repeated, and nothing else', async (t) => {
  const checks = [{ rule: 'mail', key: 'k' }];
  for (const [name, call, want] of [
    ['peek', (c) => c.peek({ checks }), 3],
    ['reset', (c) => c.reset({ checks }), 3],
    ['a check with an id', (c) => c.check({ checks, id: 'order-8812' }), 3],
    ['a check without an id', (c) => c.check({ checks }), 1],
    ['refund', (c) => c.refund({ checks }), 1],
  ]) {
    const service = await answering(t, (n) => (n > 2 ? verdict : undefined));
    const called = call(new Client({ url: service.url, timeout, retry: { backoff: 1 } }));
    if (want === 1) {
      await assert.rejects(called, UnavailableError, name);
    } else {
      await called;
    }
    assert.equal(service.requests, want, name);
  }
});

test('an answer may forbid retries', async (t) => {
  const service = await answering(t, () => ({ headers: { 'headgate-retry': 'no' } }));
  await assert.rejects(new Client({ url: service.url, timeout }).peek({ descriptor: {} }), UnavailableError);
  assert.equal(service.requests, 1);
});

test('a retry waits as long as the service asks for', async (t) => {
  const service = await answering(t, (n) => (n > 1 ? verdict : { headers: { 'retry-after': '1' } }));
  const began = performance.now();
  await new Client({ url: service.url, timeout, retry: { backoff: 1 } }).peek({ descriptor: {} });
  assert.ok(performance.now() - began >= 990, 'it came back too soon');
  const long = await answering(t, () => ({ headers: { 'retry-after': '3600' } }));
  await assert.rejects(new Client({ url: long.url, timeout }).peek({ descriptor: {} }), (err) => err.status === 503 && err.retry_after_ms === 3_600_000);
  assert.equal(long.requests, 1, 'nobody waits for an hour');
});

test('options are checked', () => {
  for (const retry of [{ tries: 0 }, { tries: 1.5 }, { backoff: 0 }, { maxBackoff: 1 }, { budget: 2 }, { budget: '1' }, { floor: -1 }, { maxWait: NaN }]) {
    assert.throws(() => new Client({ retry }), RangeError, JSON.stringify(retry));
  }
  assert.throws(() => new Client({ retry: { times: 3 } }), TypeError);
});
