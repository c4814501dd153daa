'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const { test } = require('node:test');

const { Client, UnavailableError, limit } = require('..');
const { serve, listen, ask } = require('./service.js');

const policy = `
deny:
  - name: scanners
    match: { path: /wp-* }
rules:
  - name: client
    match: { ip: present, kind: absent }
    per: [ip/64]
    algorithm: sliding_window
    limits: [2 per 1h, 20 per 1d]
  - name: kind
    match: { kind: present }
    per: [kind]
    limits: [10 per 1h]
  - name: paced
    match: { path: /paced }
    per: [ip/64]
    limits: [{ algorithm: leaky_bucket, count: 1, period: 1h, burst: 3 }]
`;

// A machine that is busy with other tests may be slow; none of these is about that.
const timeout = 30_000;

async function until(what, is) {
  for (const end = Date.now() + 120_000; !(await is()); await new Promise((resolve) => setTimeout(resolve, 5))) {
    assert.ok(Date.now() < end, what);
  }
}

// Every promise is kept with each release of Express that is in use.
for (const [version, express, transport] of [['4', require('express4'), 'url'], ['5.1', require('express51'), 'url'], ['5', require('express'), 'url'], ['5, over RESP', require('express'), 'resp']]) {
  const named = (name, run) => test(`express ${version}: ${name}`, run);

  // An app with one route behind the middleware, whose requests come from the
  // address in X-Forwarded-For.
  const limited = async (t, options, policyText = policy, ...more) => {
    const service = options.url ? undefined : await serve(t, policyText, ...more);
    const app = express();
    app.set('trust proxy', 'loopback');
    app.use(limit({ timeout, ...(service && { url: service[transport] }), ...options }));
    let served = 0;
    app.get('/items/:id', (req, res) => {
      served++;
      res.send(`item ${req.params.id}`);
    });
    app.post('/echo', (req, res) => {
      served++;
      req.pipe(res);
    });
    app.get(['/paced', '/wp-login.php', '/else'], (req, res) => res.send('hello'));
    const base = await listen(t, app);
    return { base, service, served: () => served };
  };

  named('headers and bodies of every dialect', async (t) => {
    for (const [dialect, admitted, denied] of [
      ['x-ratelimit', { 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '1', 'x-ratelimit-reset': '3600' },
        { 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '3600' }],
      ['ratelimit-triple', { 'ratelimit-limit': '2', 'ratelimit-remaining': '1', 'ratelimit-reset': '3600' },
        { 'ratelimit-limit': '2', 'ratelimit-remaining': '0', 'ratelimit-reset': '3600' }],
      ['draft-11', { 'ratelimit-policy': '"client per 1h";q=2;w=3600, "client per 1d";q=20;w=86400', 'ratelimit': '"client per 1h";r=1;t=3600, "client per 1d";r=19;t=86400' },
        { 'ratelimit-policy': '"client per 1h";q=2;w=3600, "client per 1d";q=20;w=86400', 'ratelimit': '"client per 1h";r=0;t=3600, "client per 1d";r=18;t=86400' }],
      ['none', {}, {}],
    ]) {
      const { base } = await limited(t, {}, policy, '--headers', dialect);
      const told = (a) => Object.fromEntries(Object.entries(a.headers).filter(([name]) => name.includes('ratelimit')));
      let a = await ask(`${base}/items/7`);
      assert.deepEqual([a.status, a.text, told(a)], [200, 'item 7', admitted]);
      await ask(`${base}/items/7`);
      a = await ask(`${base}/items/7`);
      // Seconds have passed, perhaps: a reset is rounded up.
      const exact = Object.fromEntries(Object.entries(told(a)).map(([name, value]) => [name, value.replace(/\b35\d\d\b/g, '3600').replace(/\b863\d\d\b/g, '86400')]));
      assert.deepEqual([a.status, exact], [429, denied]);
      assert.equal(a.headers['content-type'], 'application/problem+json');
      assert.equal(a.headers['cache-control'], 'no-store');
      assert.equal(a.headers['x-content-type-options'], 'nosniff');
      assert.match(a.headers['retry-after'], /^3(600|5\d\d)$/);
      const problem = JSON.parse(a.text);
      assert.deepEqual(Object.keys(problem), ['type', 'title', 'status', 'detail', 'violated-policies', 'retry_after_ms']);
      assert.equal(problem.type, 'https://iana.org/assignments/http-problem-types#quota-exceeded');
      assert.deepEqual(problem['violated-policies'], ['client per 1h']);
      assert.match(problem.detail, /^Rule "client" admits 2 per 1h; the request fits in /);
    }
  });

  named('a denial never reaches the handler', async (t) => {
    const { base, served } = await limited(t, {});
    for (const want of [200, 200, 429, 429]) {
      assert.equal((await ask(`${base}/items/7`)).status, want);
    }
    assert.equal((await ask(`${base}/echo`, { method: 'POST', body: 'x'.repeat(100_000) })).status, 429);
    const head = await ask(`${base}/items/7`, { method: 'HEAD' });
    assert.deepEqual([head.status, head.text], [429, '']);
    assert.match(head.headers['retry-after'], /^\d+$/);
    assert.equal(served(), 2);
  });

  named('bodies pass', async (t) => {
    const { base } = await limited(t, {});
    const body = '0123456789'.repeat(100_000);
    const a = await ask(`${base}/echo`, { method: 'POST', body });
    assert.deepEqual([a.status, a.text === body], [200, true]);
  });

  named('clients are told apart', async (t) => {
    const { base } = await limited(t, { entries: (req) => ({ kind: req.get('x-kind') }) });
    const from = (address, more = {}) => ask(`${base}/items/7`, { headers: { 'x-forwarded-for': address, ...more } }).then((a) => a.status);
    for (const [want, address] of [
      [200, '203.0.113.7'], [200, '::ffff:203.0.113.7'], [429, '203.0.113.7'], [429, '8.8.8.8, 203.0.113.7'],
      [200, '2001:db8::1'], [200, '2001:db8::2'], [429, '2001:db8::3'], [200, '2001:db8:0:1::1'],
    ]) {
      assert.equal(await from(address), want, address);
    }
    assert.equal(await from('203.0.113.7', { 'x-kind': 'a' }), 200);
  });

  named('the descriptor', async (t) => {
    const descriptors = [];
    const client = { check: async (request) => {
      descriptors.push(request);
      return { allowed: true, delay_ms: 0, headers: {}, status: 200, decisions: [] };
    } };
    const app = express();
    app.use('/api', limit({ client, cost: 3, entries: async () => ({ user: 'ann', tier: null, n: 7, ok: true, ip: '192.0.2.1' }) }));
    app.get('/api/items/:id', (req, res) => res.send('ok'));
    const base = await listen(t, app);
    await ask(`${base}/api/items/a%20b?x=1`, { headers: { host: 'Example.COM:8080', authorization: 'bearer  k1 ', 'x-api-key': 'k2' } });
    await ask(`${base}/api/items/7`, { headers: { authorization: 'Basic k1', 'x-api-key': ' k2 ' } });
    assert.deepEqual(descriptors[0], { cost: 3, descriptor: {
      api_key: 'k1', ip: '192.0.2.1', route: 'GET /api/items/:id', method: 'GET', host: 'example.com', path: '/api/items/a b', user: 'ann', n: '7', ok: 'true',
    } });
    assert.equal(descriptors[1].descriptor.api_key, 'k2');
    for (const authorization of ['Bearer k1 1', 'bearer  1 k1', 'Bearer\tk1', 'Bearer k1\t1', 'Bearer k\u00e9', '\u00a0Bearer k1']) {
      const a = await ask(`${base}/api/items/7`, { headers: { authorization, 'x-api-key': 'k2' } });
      assert.deepEqual([a.status, JSON.parse(a.text).title], [400, 'The request can be read in two ways'], authorization);
    }
    for (const headers of [{ 'x-api-key': ['k1', 'k2'] }, { authorization: ['Bearer k1', 'Bearer k2'] }, { 'x-api-key': ['k1', 'k1'], authorization: 'Bearer k1' }]) {
      const a = await ask(`${base}/api/items/7`, { headers });
      assert.deepEqual([a.status, JSON.parse(a.text).detail.replace(/^\S+ /, '')], [400, 'is there 2 times. Send it once.'], JSON.stringify(headers));
    }
    assert.equal(descriptors.length, 2);
    for (const [authorization, want] of [['Bearer', 'k2'], ['Bearers k1 1', 'k2'], ['Digest a b', 'k2'], ['BEARER   k1', 'k1']]) {
      await ask(`${base}/api/items/7`, { headers: { authorization, 'x-api-key': 'k2' } });
      assert.equal(descriptors.at(-1).descriptor.api_key, want, authorization);
    }
  });

  named('routes', async (t) => {
    const seen = [];
    const client = { check: async (request) => {
      seen.push(request.descriptor.route);
      return { allowed: true, delay_ms: 0, headers: {}, status: 200, decisions: [] };
    } };
    const limits = limit({ client });
    const ok = (req, res) => res.send('ok');
    const app = express();
    app.use(limits);
    app.get('/items/mine', limits, ok);
    app.get('/items/:id', limits, ok);
    app.all('/any', limits, ok);
    app.get(/^\/re(gexp)$/, limits, ok);
    app.post('/items/:id', limits, ok);
    const inner = express.Router();
    inner.use(limits);
    inner.get('/', limits, ok);
    inner.get('/users/:id', limits, ok);
    const outer = express.Router();
    outer.use('/v1', inner);
    app.use('/api', limits, outer);
    const mounted = express();
    mounted.get('/x', limits, ok);
    app.use('/mounted', mounted);
    const base = await listen(t, app);
    for (const [method, path, status, ...want] of [
      ['GET', '/items/7', 200, 'GET /items/:id'],
      ['GET', '/Items/7/', 200, 'GET /items/:id'],
      ['HEAD', '/items/7', 200, 'GET /items/:id'],
      ['POST', '/items/7', 200, 'POST /items/:id'],
      ['GET', '/items/mine', 200, 'GET /items/mine'],
      ['GET', '/items/a%2Fb', 200, 'GET /items/:id'],
      ['DELETE', '/any', 200, 'DELETE /any'],
      ['GET', '/regexp', 200, 'GET /^\\/re(gexp)$/'],
      ['GET', '/api/v1/users/7', 200, 'GET /api/v1/users/:id'],
      ['GET', '/API/V1/users/7', 200, 'GET /api/v1/users/:id'],
      ['GET', '/api/v1', 200, 'GET /api/v1'],
      ['GET', '/api/v1/else', 404, 'unmatched'],
      ['GET', '/else', 404, 'unmatched'],
      ['PUT', '/items/7', 404, 'unmatched'],
      ['GET', '/items/%zz', 400, 'unmatched'],
      // What is mounted as an app of its own is not known to the outer one.
      ['GET', '/mounted/x', 200, 'GET /mounted/x', 'unmatched'],
    ]) {
      seen.length = 0;
      const a = await ask(base + path, { method });
      assert.equal(a.status, status, `${method} ${path}: ${a.text}`);
      assert.deepEqual([...new Set(seen)].sort(), want, `${method} ${path}`);
    }
  });

  named('a route of its own, and a name', async (t) => {
    const seen = [];
    const client = { check: async (request) => {
      seen.push(request.descriptor.route);
      return { allowed: true, delay_ms: 0, headers: {}, status: 200, decisions: [] };
    } };
    const app = express();
    app.use(limit({ client, route: 'search' }), limit({ client, route: (req) => `mine ${req.path}` }));
    app.get('/x', (req, res) => res.send('ok'));
    await ask(`${await listen(t, app)}/x`);
    assert.deepEqual(seen, ['search', 'mine /x']);
  });

  named('costs', async (t) => {
    const { base } = await limited(t, { cost: async (req) => Number(req.get('cost')), entries: () => ({ kind: 'costs' }) });
    for (const [cost, status, left, retry] of [[4, 200, '6', false], [7, 429, '6', true], [0, 200, undefined, false], [6, 200, '0', false], [11, 429, '0', false], [-1, 500, undefined, false], [1.5, 500, undefined, false]]) {
      const a = await ask(`${base}/items/7`, { headers: { cost } });
      assert.deepEqual([a.status, a.headers['x-ratelimit-remaining'], 'retry-after' in a.headers], [status, left, retry], `cost ${cost}`);
    }
  });

  named('the deny list', async (t) => {
    const { base } = await limited(t, {});
    const a = await ask(`${base}/wp-login.php`);
    assert.deepEqual([a.status, a.text], [403, '{"title":"The request is not allowed","status":403}\n']);
  });

  named('an answer of the program\'s own', async (t) => {
    const { base } = await limited(t, { onDenied: (req, res, verdict) => res.status(418).send(`denied by ${verdict.denied_by.rule}`) });
    await ask(`${base}/items/7`);
    await ask(`${base}/items/7`);
    const a = await ask(`${base}/items/7`);
    assert.deepEqual([a.status, a.text], [418, 'denied by client']);
    assert.match(a.headers['retry-after'], /^\d+$/);
  });

  named('nobody answers', async (t) => {
    const service = await serve(t, policy);
    await service.stop();
    for (const [onNoAnswer, want] of [[undefined, 200], ['allow', 200], ['deny', 503]]) {
      const failures = [];
      const { base } = await limited(t, { url: service[transport], ...(onNoAnswer && { onNoAnswer }), onFailure: (err, req) => failures.push([err.name, err.status, req.path]) });
      const a = await ask(`${base}/items/7`);
      assert.equal(a.status, want);
      assert.equal(a.headers['retry-after'], want === 503 ? '5' : undefined);
      assert.deepEqual(failures, [['UnavailableError', 0, '/items/7']]);
    }
    const warnings = [];
    const listener = (warning) => { if (warning.name === 'HeadgateWarning') warnings.push(warning.message); };
    process.on('warning', listener);
    t.after(() => process.off('warning', listener));
    const { base } = await limited(t, { url: service[transport] });
    assert.equal((await ask(`${base}/items/7`)).status, 200);
    assert.match(warnings[0], /does not answer/);
  });

  named('a service that is too slow, and one that is none', async (t) => {
    const answers = new Set();
    const slow = await listen(t, (req, res) => { answers.add(res); });
    const other = await listen(t, (req, res) => { res.end('<html>'); });
    for (const url of [slow, other]) {
      let failure;
      const { base } = await limited(t, { url, timeout: 50, onFailure: (err) => { failure = err; } });
      assert.equal((await ask(`${base}/items/7`)).status, 200);
      assert.deepEqual([failure.name, failure.status], ['UnavailableError', 0]);
      if (url === slow) {
        assert.match(failure.message, /does not answer within 50 ms$/);
      }
    }
    assert.ok(answers.size <= 1, `${answers.size} questions`); // 50 ms may not be enough to ask
  });

  named('a service that was told to let nothing pass', async (t) => {
    const down = await listen(t, (req, res) => {
      res.writeHead(503, { 'content-type': 'application/problem+json', 'retry-after': '1' });
      res.end('{"title":"Capacity is reduced for the moment","status":503,"detail":"the store did not answer"}');
    });
    const { base } = await limited(t, { url: down, onNoAnswer: 'allow' });
    const a = await ask(`${base}/items/7`);
    assert.deepEqual([a.status, a.headers['retry-after'], JSON.parse(a.text).status], [503, '5', 503]);
  });

  named('delays hold a request, or deny it', async (t) => {
    const { base, service } = await limited(t, { entries: () => ({ kind: 'paced' }), maxDelay: 1000 });
    assert.equal((await ask(`${base}/paced`)).status, 200);
    const a = await ask(`${base}/paced`); // its turn is in an hour
    assert.equal(a.status, 429);
    assert.match(a.headers['retry-after'], /^3[56]\d\d$/);
    // What it took is given back.
    const peek = await new Client({ url: service[transport], timeout }).peek({ descriptor: { path: '/paced', ip: '127.0.0.1', kind: 'paced' } });
    assert.deepEqual(peek.decisions.map((d) => [d.rule, d.remaining]), [['kind', 9], ['paced', 2]]);

    const quick = { check: async () => ({ allowed: true, delay_ms: 5, headers: {}, status: 200, decisions: [] }) };
    const app = express();
    app.use(limit({ client: quick }));
    app.get('/', (req, res) => res.send('ok'));
    assert.equal((await ask(await listen(t, app))).status, 200);
  });

  named('rules that charge by the outcome', async (t) => {
    const service = await serve(t, `
rules:
  - name: login
    match: { route: POST /login }
    per: [user]
    limits: [2 per 1h]
    charge_on: [401]
`);
    const client = new Client({ url: service[transport], timeout });
    const left = async () => (await client.peek({ checks: [{ rule: 'login', key: 'ada' }] })).decisions[0].remaining;
    const app = express();
    const failures = [];
    app.use(limit({ client, entries: () => ({ user: 'ada' }), onFailure: (err) => failures.push(err) }));
    let begun, release;
    app.post('/login', async (req, res) => {
      begun?.();
      await release;
      res.status(Number(req.get('x-status'))).send('done');
    });
    const base = await listen(t, app);
    const login = async (status) => (await ask(`${base}/login`, { method: 'POST', headers: { 'x-status': String(status) } })).status;
    for (let i = 0; i < 5; i++) {
      assert.equal(await login(200), 200);
      assert.equal(await left(), 2);
    }
    assert.deepEqual([await login(401), await login(401), await login(200)], [401, 401, 429]);

    // Hanging up before the answer does not save anybody from being charged.
    await client.reset({ checks: [{ rule: 'login', key: 'ada' }] });
    let go;
    release = new Promise((resolve) => { go = resolve; });
    const came = new Promise((resolve) => { begun = resolve; });
    const request = http.request(`${base}/login`, { method: 'POST', headers: { 'x-status': '200' } }).on('error', () => {});
    request.end();
    await came;
    request.destroy();
    assert.equal(await left(), 1);
    go();
    await until('it is settled by the status of the handler', async () => (await left()) === 2);
    assert.deepEqual(failures, []);
  });

  named('an answer is held until the service knows its status', async (t) => {
    const answers = {
      '/sent': (req, res) => res.status(201).send('done'),
      '/ended': (req, res) => {
        res.statusCode = 201;
        res.end('done');
        assert.throws(() => res.setHeader('x', 'too late'), { code: 'ERR_HTTP_HEADERS_SENT' });
        res.end();
      },
      '/streamed': (req, res) => {
        res.writeHead(201, { 'content-length': 4 });
        res.write('do');
        setTimeout(() => res.end('ne'), 5);
      },
      '/chunked': (req, res) => {
        res.status(201).write('do');
        res.end('ne');
      },
    };
    const order = [];
    const app = express();
    app.use(limit({
      client: {
        check: async () => ({ allowed: true, delay_ms: 0, headers: {}, status: 200, decisions: [], reservation: 'r' }),
        settle: async ({ status }) => {
          await new Promise((resolve) => setTimeout(resolve, 50));
          order.push(status);
        },
      },
    }));
    for (const [path, answer] of Object.entries(answers)) {
      app.get(path, answer);
    }
    const base = await listen(t, app);
    for (const path of Object.keys(answers)) {
      const a = await ask(base + path);
      order.push(path);
      assert.deepEqual([a.status, a.text, a.headers['content-length']], [201, 'done', path === '/chunked' ? undefined : '4']);
    }
    assert.deepEqual(order, Object.keys(answers).flatMap((path) => [201, path]));
  });

  named('a client that goes away while it is held', async (t) => {
    const refunds = [];
    let tell;
    const refunded = new Promise((resolve) => { tell = resolve; });
    const client = {
      check: async () => ({ allowed: true, delay_ms: 3_600_000, at: 42, headers: {}, status: 200, decisions: [] }),
      refund: async (request) => {
        refunds.push(request);
        tell();
      },
    };
    const app = express();
    app.use(limit({ client, maxDelay: 4_000_000 }));
    let served = 0;
    app.use(() => { served++; });
    const base = await listen(t, app);
    const req = http.get(base, { agent: false });
    req.on('error', () => {});
    req.on('socket', (socket) => socket.on('connect', () => setTimeout(() => req.destroy(), 20)));
    await refunded;
    assert.deepEqual([refunds.length, refunds[0].at, refunds[0].cost, served], [1, 42, 1, 0]);
  });

  named('a client that goes away before it is held', async (t) => {
    let closed, tell;
    const gone = new Promise((resolve) => { closed = resolve; });
    const refunded = new Promise((resolve) => { tell = resolve; });
    const client = {
      check: async () => {
        await gone;
        return { allowed: true, delay_ms: 3_600_000, at: 42, headers: {}, status: 200, decisions: [] };
      },
      refund: async (request) => tell(request.at),
    };
    const app = express();
    let served = 0;
    app.use((req, res, next) => {
      res.once('close', closed);
      next();
      req.socket.destroy();
    }, limit({ client, maxDelay: 4_000_000 }), () => { served++; });
    const req = http.get(await listen(t, app), { agent: false });
    req.on('error', () => {});
    assert.deepEqual([await refunded, served], [42, 0]);
  });

  named('a request that is answered before it is decided on', async (t) => {
    for (const verdict of [
      { allowed: true, delay_ms: 0, headers: { 'x-ratelimit-limit': '1' }, status: 200, decisions: [] },
      { allowed: false, delay_ms: 0, headers: {}, status: 429, decisions: [], problem: { title: 'x', status: 429 } },
      undefined,
    ]) {
      let decided, passed;
      const errors = [];
      const answered = new Promise((resolve) => { decided = resolve; });
      const end = new Promise((resolve) => { passed = resolve; });
      const client = {
        check: async () => {
          await answered;
          setImmediate(() => setImmediate(passed));
          if (!verdict) {
            throw new UnavailableError('away', 503);
          }
          return verdict;
        },
      };
      const app = express();
      app.use((req, res, next) => {
        next();
        res.status(504).send('too late');
        res.once('finish', decided);
      }, limit({ client }), () => errors.push('it is served'), (err, req, res, next) => errors.push(err));
      const a = await ask(await listen(t, app));
      await end;
      assert.deepEqual([a.status, a.text, errors], [504, 'too late', []]);
    }
  });

  named('a request that is answered before it is found too long', async (t) => {
    let described, passed;
    const errors = [];
    const answered = new Promise((resolve) => { described = resolve; });
    const end = new Promise((resolve) => { passed = resolve; });
    const entries = async () => {
      await answered;
      setImmediate(() => setImmediate(passed));
      return { user: 'x'.repeat(8193) };
    };
    const app = express();
    app.use((req, res, next) => {
      next();
      res.status(504).send('too late');
      res.once('finish', described);
    }, limit({ entries, onFailure: (err) => errors.push(err) }), () => errors.push('it is served'));
    const a = await ask(await listen(t, app));
    await end;
    assert.deepEqual([a.status, a.text, errors], [504, 'too late', []]);
  });

  named('what is too long to be counted by', async (t) => {
    const failures = [];
    const { base, served } = await limited(t, { onFailure: (err) => failures.push(err) });
    for (const [path, headers, status] of [
      [`/items/${'x'.repeat(8185)}`, {}, 200], // 8192 with what stands before
      [`/items/${'x'.repeat(8186)}`, {}, 431],
      ['/items/7', { 'X-Api-Key': 'x'.repeat(8193), 'X-Forwarded-For': '203.0.113.9' }, 431],
    ]) {
      const a = await ask(base + path, { headers });
      assert.deepEqual([a.status, a.headers['cache-control']], [status, status === 431 ? 'no-store' : undefined]);
    }
    assert.deepEqual([served(), failures], [1, []]);
  });

  named('the verdict is left for the handlers', async (t) => {
    const { url } = await serve(t, policy);
    const app = express();
    app.use(limit({ url, timeout }));
    app.get('/', (req, res) => res.json(res.locals.headgate.decisions.map((d) => d.remaining)));
    assert.equal((await ask(await listen(t, app))).text, '[1,19]');
  });

  named('an error in a function of the options', async (t) => {
    for (const options of [{ entries: () => { throw new Error('boom'); } }, { cost: () => { throw new Error('boom'); } }]) {
      const { base, served } = await limited(t, options);
      const a = await ask(`${base}/items/7`);
      assert.deepEqual([a.status, served()], [500, 0]);
    }
  });

  named('clients at once share a limit exactly', async (t) => {
    const { base } = await limited(t, { entries: () => ({ kind: 'all' }) });
    const answers = await Promise.all(Array.from({ length: 60 }, () => ask(`${base}/items/7`)));
    assert.equal(answers.filter((a) => a.status === 200).length, 10);
    assert.equal(answers.filter((a) => a.status === 429).length, 50);
  });
}

test('mistakes in the options', () => {
  for (const [options, want] of [
    [{ limit: 5 }, /limit is not an option/],
    [{ client: {}, url: 'http://127.0.0.1' }, /give a client, or url/],
    [{ onNoAnswer: 'open' }, /must be allow or deny/],
    [{ maxDelay: -1 }, /maxDelay is -1/],
    [{ timeout: 0 }, /timeout is 0/],
    [{ url: 'amqp://127.0.0.1' }, /must begin with http/],
    [{ url: 'redis://127.0.0.1/0' }, /must be redis:\/\/host:port/],
    [{ url: 'redis://127.0.0.1', fetch: () => {} }, /fetch is for a url/],
    [{ url: 'nonsense' }, /Invalid URL/],
    [{ entries: {} }, /entries is not a function/],
    [{ fetch: 1 }, /fetch is not a function/],
  ]) {
    assert.throws(() => limit(options), want, JSON.stringify(options));
  }
});
