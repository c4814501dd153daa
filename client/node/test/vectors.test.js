'use strict';

// The cases of client/vectors.json that are about a service and about a middleware. Those about what
// is answered instead are run by connection.test.js.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const express = require('express');
const fastify = require('fastify');

const { Client, HeadgateError, UnavailableError, fastifyLimit, limit } = require('..');
const { Unclear, apiKey, hostname, proxies } = require('../lib/identity.js');
const vectors = require('../../vectors.json');
const { serve, listen, ask } = require('./service.js');

const timeout = 30_000;

/** Starts a service of the vectors, and returns its URLs and what moves its clock. */
async function start(t, name, policy) {
  const { url, resp } = await serve(t, `${policy.join('\n')}\n`, ...vectors.servers[name]);
  const headers = { authorization: `Bearer ${vectors.token}` };
  return { url, resp, advance: async (by) => assert.equal((await ask(`${url}/v1/clock`, { method: 'POST', headers, body: JSON.stringify({ advance: by }) })).status, 200) };
}

const calls = {
  check: (client, request, { outcome }) => client.check(request, { outcome }),
  cancel: (client, { reservation }) => client.cancel(reservation),
};

// What the client and the middlewares ask by: HTTP, and Redis's protocol.
const transports = ['url', 'resp'];

for (const transport of transports) {
  test(`the calls of the vectors, by ${transport}`, (t) => callsOf(t, transport));
}

async function callsOf(t, transport) {
  const servers = {};
  for (const { name, server = 'x-ratelimit', steps } of vectors.calls.cases) {
    servers[server] ||= await start(t, server, vectors.calls.policy);
    const { [transport]: url, advance } = servers[server];
    const client = new Client({ url, timeout });
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
        assert.ok(said instanceof HeadgateError && (said instanceof UnavailableError) === (want.error === 'unavailable'), `${where}: ${said}`);
        assert.deepEqual([said.status, said.retry_after_ms], [want.status, want.retry_after_ms], where);
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
}

const shown = (name) => ['retry-after', 'cache-control', 'x-content-type-options'].includes(name) || name.includes('ratelimit');

// The same site in each of the frameworks.
const sites = {
  express: (options) => {
    const app = express();
    app.set('trust proxy', '127.0.0.0/8');
    app.use(limit(options));
    app.get('/items/:id', (req, res) => res.send('ok'));
    app.get('/paced', (req, res) => res.send('ok'));
    app.post('/login', (req, res) => res.status(Number(req.get('x-status'))).end());
    app.use((req, res) => res.status(404).end());
    return app;
  },
  fastify: async (options) => {
    const app = fastify({ trustProxy: '127.0.0.0/8' });
    app.register(fastifyLimit, options);
    app.get('/items/:id', async () => 'ok');
    app.get('/paced', async () => 'ok');
    app.post('/login', async (request, reply) => reply.code(Number(request.headers['x-status'])).send());
    await app.ready();
    return app.routing;
  },
  http: (options) => {
    const routes = { '/items': 'GET /items/:id', '/paced': 'GET /paced', '/login': 'POST /login' };
    const route = (req) => routes[/^\/[a-z]*/.exec(req.url)[0]] || 'unmatched';
    const limited = limit({ ...options, route, trust: ['127.0.0.0/8'] });
    return (req, res) => limited(req, res, () => {
      res.statusCode = route(req) === 'unmatched' ? 404 : Number(req.headers['x-status'] || 200);
      res.end(String(res.locals.headgate.allowed));
    });
  },
};

for (const [framework, site] of Object.entries(sites)) {
  test(`the requests of the vectors, in ${framework}`, async (t) => {
    for (const server of Object.keys(vectors.servers)) {
      if (framework === 'http' || server !== 'ratelimit-triple') {
        for (const transport of transports) {
          await requests(t, server, site, transport);
        }
      }
    }
  });
}

async function requests(t, server, site, transport) {
  const { [transport]: url, advance } = await start(t, server, vectors.requests.policy.map((line) => line.replace('{id}', ':id')));
  const client = new Client({ url, timeout });
  // A middleware settles while its answer is under way; the next request is to find that done.
  const settled = [];
  const { settle } = client;
  client.settle = (...args) => {
    settled.push(settle.apply(client, args));
    return settled.at(-1);
  };
  const base = await listen(t, await site({ client }));
  for (const { name, steps } of vectors.requests.cases.filter((c) => c.server === server)) {
    for (const [i, step] of steps.entries()) {
      const where = `${name}, step ${i + 1}`;
      if (step.advance) {
        await advance(step.advance);
        continue;
      }
      const headers = {};
      for (const [j, [field, once]] of step.request.headers.entries()) {
        const value = j === step.request.headers.length - 1 ? once.repeat(step.request.times ?? 1) : once;
        headers[field] = field in headers ? [headers[field], value].flat() : value;
      }
      const said = await ask(base + step.request.path, { method: step.request.method, headers });
      const got = Object.fromEntries(Object.entries(said.headers).filter(([field]) => shown(field)));
      await Promise.all(settled);
      assert.deepEqual([said.status, got], [step.want.status, step.want.headers], `${where}: ${said.text}`);
      if (step.want.problem) {
        assert.deepEqual(JSON.parse(said.text), step.want.problem, where);
      }
    }
  }
}

test('who a request is from', () => {
  for (const { name, peer, trusted, source, lines, want } of vectors.addresses) {
    assert.equal(proxies(trusted, source)(peer, lines), want === null ? undefined : want, name);
  }
  for (const trusted of ['', 'example.com', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/8/8', '0.0.0.0/0', '::/0', '1.2.3']) {
    assert.throws(() => proxies([trusted], 'forwarded'), /trusted proxy/, trusted);
  }
  const read = (of, reading) => (of.unclear ? assert.throws(reading, Unclear, JSON.stringify(of)) : assert.equal(reading(), of.want, JSON.stringify(of)));
  for (const of of vectors.api_keys) {
    read(of, () => apiKey(of.headers.flat(), ['authorization', 'x-api-key']));
  }
  for (const of of vectors.hosts) {
    read(of, () => hostname(of.host));
  }
});
