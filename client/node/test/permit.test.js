'use strict';

const assert = require('node:assert/strict');
const { mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { setTimeout: pause } = require('node:timers/promises');
const { test } = require('node:test');

const { Client, HeadgateError, PermitLostError, UnavailableError } = require('..');
const { listen, serve } = require('./service.js');

const timeout = 30_000;

test('acquire says what is wrong with what it is given', async () => {
  const client = new Client({ fetch: () => assert.fail('the service is asked') });
  for (const [request, kind, text] of [
    [undefined, TypeError, /^headgate: acquire needs an object such as .*, and was given undefined$/],
    [null, TypeError, /was given null$/],
    ['report', TypeError, /was given string$/],
    [{}, TypeError, /^headgate: rule is undefined, must be a string$/],
    [{ rule: '' }, RangeError, /^headgate: rule is empty/],
    [{ rule: 'report', key: 7 }, TypeError, /^headgate: key is number, must be a string$/],
    [{ rule: 'report', key: null }, TypeError, /^headgate: key is null/],
    [{ rule: 'report', holder: {} }, TypeError, /^headgate: holder is object/],
    [{ rule: 'report', cost: 0 }, RangeError, /^headgate: cost is 0, must be a whole number of 1 or more$/],
    [{ rule: 'report', cost: '2' }, RangeError, /^headgate: cost is 2/],
    [{ rule: 'report', ttl: 1.5 }, RangeError, /^headgate: ttl is 1.5/],
    [{ rule: 'report', wait: '1s' }, RangeError, /^headgate: wait is 1s, must be 0 to 600000 milliseconds$/],
    [{ rule: 'report', signal: {} }, TypeError, /^headgate: signal is not an AbortSignal$/],
  ]) {
    await assert.rejects(client.acquire(request), (err) => err instanceof kind && text.test(err.message), JSON.stringify(request));
  }
});

const policy = `
rules:
  - name: report
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 1, shared: true, ttl: 10s, wait: 5m }
  - name: trial
    per: all
    mode: shadow
    in_progress: { limit: 1, shared: true }
`;

const token = 'an-admin-token-for-tests';

/** Starts a service, and returns a client and what asks about holders. */
async function permits(t, transport = 'url') {
  const service = await serve(t, policy, '--admin-token-file', tokenFile(t));
  const admin = async (path, options) => {
    const answer = await fetch(service.url + path, { ...options, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } });
    return answer.json();
  };
  return {
    ...service,
    client: new Client({ url: service[transport], timeout }),
    holders: () => admin('/v1/permits/holders?rule=report&key=k'),
    revoke: (holder) => admin('/v1/permits/revoke', { method: 'POST', body: JSON.stringify({ rule: 'report', key: 'k', holder }) }),
  };
}

function tokenFile(t) {
  const dir = mkdtempSync(join(tmpdir(), 'headgate-token-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'token'), token);
  return join(dir, 'token');
}

async function until(what, is) {
  for (const end = Date.now() + 120_000; !(await is()); await pause(10)) {
    assert.ok(Date.now() < end, what);
  }
}

test('a permit is held beyond its time, and given back once', async (t) => {
  const { client, holders } = await permits(t);
  const permit = await client.acquire({ rule: 'report', key: 'k' });
  t.after(() => permit.release());
  assert.deepEqual([permit.allowed, permit.limit, permit.in_use, permit.slots.length, permit.lost, permit.epoch > 0], [true, 1, 1, 1, false, true]);
  const other = await client.acquire({ rule: 'report', key: 'k' });
  assert.deepEqual([other.allowed, other.epoch, other.retry_after_ms], [false, undefined, 1000]);
  await pause(12_000);
  assert.deepEqual([permit.lost, permit.signal.aborted, (await holders()).permits.length], [false, false, 1]);
  assert.equal(await permit.release(), true);
  assert.deepEqual([await other.release(), permit.signal.aborted, (await holders()).in_use], [true, false, 0]);
});

// Over HTTP, and over Redis's protocol, by which the service holds no call back.
const both = (name, run) => ['url', 'resp'].forEach((transport) => test(`${name}, by ${transport}`, (t) => run(t, transport)));

both('who waits is next', async (t, transport) => {
  const { client, holders } = await permits(t, transport);
  const permit = await client.acquire({ rule: 'report', key: 'k' });
  t.after(() => permit.release());
  const waiting = client.acquire({ rule: 'report', key: 'k', wait: 300_000 });
  await until('it waits', async () => (await holders()).waiting.length === 1);
  assert.deepEqual(await Promise.all([permit.release(), permit.release()]), [true, true]);
  const next = await waiting;
  assert.ok(next.allowed && next.epoch > permit.epoch && next.holder !== permit.holder);
  assert.equal(await next.release(), true);
  assert.equal((await holders()).in_use, 0);
});

both('who stops waiting leaves the line', async (t, transport) => {
  const { client, holders } = await permits(t, transport);
  const permit = await client.acquire({ rule: 'report', key: 'k' });
  t.after(() => permit.release());
  const stop = new AbortController();
  const waiting = client.acquire({ rule: 'report', key: 'k', wait: 300_000, signal: stop.signal });
  await until('it waits', async () => (await holders()).waiting.length === 1);
  stop.abort(new Error('enough'));
  await assert.rejects(waiting, /enough/);
  await until('the line is empty', async () => (await holders()).waiting.length === 0);
  await assert.rejects(client.acquire({ rule: 'report', key: 'k', signal: AbortSignal.abort(new Error('before')) }), /before/);
});

both('a permit is lost', async (t, transport) => {
  const { client, revoke, stop } = await permits(t, transport);
  const revoked = await client.acquire({ rule: 'report', key: 'k' });
  assert.deepEqual(await revoke(revoked.holder), { revoked: true });
  await until('it is lost', () => revoked.lost);
  assert.ok(revoked.signal.reason instanceof PermitLostError && /revoked/.test(revoked.signal.reason.message), revoked.signal.reason);
  assert.equal(await revoked.release(), true);

  const permit = await client.acquire({ rule: 'report', key: 'k', wait: 60_000 });
  assert.ok(permit.allowed);
  await stop();
  await until('it is lost', () => permit.signal.aborted);
  assert.ok(permit.signal.reason instanceof PermitLostError);
});

test('mistakes, and rules that measure', async (t) => {
  const { client } = await permits(t);
  await assert.rejects(client.acquire({ rule: 'none', key: 'k' }), (err) => err instanceof HeadgateError && err.status === 404);
  await assert.rejects(client.acquire({ rule: 'report', key: 'k', cost: 2 }), (err) => err.status === 422 && /cost takes 2/.test(err.message));
  await assert.rejects(client.acquire({ rule: 'report', key: 'k', wait: -1 }), RangeError);
  const first = await client.acquire({ rule: 'trial' });
  t.after(() => first.release());
  const second = await client.acquire({ rule: 'trial' });
  assert.deepEqual([first.shadow, second.allowed, second.shadow, second.epoch, await second.release()], [false, true, true, undefined, true]);
});

test('an acquire that got no answer is repeated with its holder, and then released', async (t) => {
  const asked = [];
  const url = await listen(t, (req, res) => {
    let body = '';
    req.on('data', (part) => { body += part; });
    req.on('end', () => {
      asked.push([req.url, JSON.parse(body).holder]);
      res.writeHead(503, { 'content-type': 'application/json' });
      res.end('{"detail":"the store did not answer"}');
    });
  });
  await assert.rejects(new Client({ url, timeout, retry: { backoff: 1 } }).acquire({ rule: 'report', key: 'k' }), UnavailableError);
  await until('it is released', () => asked.some(([path]) => path === '/v1/permits/release'));
  assert.deepEqual(asked.slice(0, 3).map(([path]) => path), Array(3).fill('/v1/permits/acquire'));
  assert.equal(new Set(asked.map(([, holder]) => holder)).size, 1);
});
