'use strict';

// The cases of client/vectors.json that are about a service and about a middleware. Those about what
// is answered instead are run by connection.test.js.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const express = require('express');

const { Client, HeadgateError, UnavailableError, limit } = require('..');
const vectors = require('../../vectors.json');
const { serve, listen, ask } = require('./service.js');

const timeout = 30_000;

/** Starts a service for tests, and returns its URL and what moves its clock. */
async function manual(t, policy, ...options) {
  const { url } = await serve(t, `${policy.join('\n')}\n`, '--clock', 'manual', ...options);
  const headers = { authorization: `Bearer ${vectors.token}` };
  return { url, advance: async (by) => assert.equal((await ask(`${url}/v1/clock`, { method: 'POST', headers, body: JSON.stringify({ advance: by }) })).status, 200) };
}

const calls = {
  check: (client, request, { outcome }) => client.check(request, { outcome }),
  cancel: (client, { reservation }) => client.cancel(reservation),
};

test('the calls of the vectors', async (t) => {
  const { url, advance } = await manual(t, vectors.calls.policy);
  const client = new Client({ url, timeout });
  for (const { name, steps } of vectors.calls.cases) {
    const answers = [];
    const held = new Map();
    for (const [i, step] of steps.entries()) {
      const { call, want } = step;
      const where = `${name}, step ${i + 1}`;
      if (step.advance) {
        await advance(step.advance);
        answers.push(undefined);
        continue;
      }
      if (call === 'release') {
        assert.equal(await held.get(step.request.holder).release(), true, where);
        continue;
      }
      const request = 'at_of' in step ? { ...step.request, at: answers[step.at_of].at } : step.request;
      const said = await (calls[call] ? calls[call](client, request, step) : client[call](request)).catch((err) => err);
      answers.push(said);
      if (want.error) {
        assert.ok(said instanceof HeadgateError && !(said instanceof UnavailableError), `${where}: ${said}`);
        assert.equal(said.status, want.status, where);
        assert.deepEqual((said.problem.errors || []).map((e) => e.field), want.fields || [], where);
        continue;
      }
      if (call === 'acquire') {
        held.set(request.holder, said);
        const { allowed, in_use, limit: most, retry_after_ms } = want.body;
        assert.deepEqual([said.allowed, said.in_use, said.limit, said.retry_after_ms, said.slots], [allowed, in_use, most, retry_after_ms, want.body.permit?.slots], where);
        continue;
      }
      for (const [field, value] of Object.entries(want.body)) {
        assert.deepEqual(said[field], value, `${where}: ${field}`);
      }
      if (want.headers) {
        assert.deepEqual([said.status, said.headers], [want.status, want.headers], where);
      }
    }
    await Promise.all([...held.values()].map((permit) => permit.release()));
  }
});

const shown = (name) => ['retry-after', 'cache-control', 'x-content-type-options'].includes(name) || name.includes('ratelimit');

for (const dialect of ['x-ratelimit', 'ratelimit-triple', 'draft-11']) {
  test(`the requests of the vectors, in ${dialect}`, async (t) => {
    const { url, advance } = await manual(t, vectors.requests.policy.map((line) => line.replace('{id}', ':id')), '--headers', dialect);
    const app = express();
    app.set('trust proxy', '127.0.0.0/8');
    app.use(limit({ url, timeout }));
    app.get('/items/:id', (req, res) => res.send('ok'));
    app.get('/paced', (req, res) => res.send('ok'));
    app.post('/login', (req, res) => res.status(Number(req.get('x-status'))).end());
    app.use((req, res) => res.status(404).end());
    const site = await listen(t, app);
    for (const { name, steps } of vectors.requests.cases.filter((c) => c.dialect === dialect)) {
      for (const [i, step] of steps.entries()) {
        const where = `${name}, step ${i + 1}`;
        if (step.advance) {
          await advance(step.advance);
          continue;
        }
        const headers = {};
        for (const [field, value] of step.request.headers) {
          headers[field] = field in headers ? [headers[field], value].flat() : value;
        }
        const said = await ask(site + step.request.path, { method: step.request.method, headers });
        const got = Object.fromEntries(Object.entries(said.headers).filter(([field]) => shown(field)));
        assert.deepEqual([said.status, got], [step.want.status, step.want.headers], `${where}: ${said.text}`);
        if (step.want.problem) {
          assert.deepEqual(JSON.parse(said.text), step.want.problem, where);
        }
      }
    }
  });
}
