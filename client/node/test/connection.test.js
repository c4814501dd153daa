'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const net = require('node:net');
const { test } = require('node:test');

const { Client, HeadgateError, UnavailableError } = require('..');
const { answers } = require('../../vectors.json');

// A machine that is busy with other tests may be slow; none of these is about that.
const timeout = 30_000;

/** Serves TCP until the test ends: each request is given to answer, which writes to the socket. */
async function serve(t, answer) {
  const seen = { sockets: new Set(), connections: 0, requests: [] };
  const server = net.createServer((socket) => {
    seen.sockets.add(socket);
    seen.connections++;
    socket.on('close', () => seen.sockets.delete(socket)).on('error', () => {});
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
      const head = text.indexOf('\r\n\r\n');
      if (head >= 0 && Buffer.byteLength(text.slice(head + 4)) === Number(/content-length: (\d+)/i.exec(text)[1])) {
        seen.requests.push(text);
        text = '';
        answer(socket, seen);
      }
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    seen.sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  seen.port = server.address().port;
  seen.url = `http://127.0.0.1:${seen.port}/below/`;
  return seen;
}

async function until(what, is) {
  for (const end = Date.now() + 120_000; !is(); await new Promise((resolve) => setTimeout(resolve, 5))) {
    assert.ok(Date.now() < end, what);
  }
}

const good = 'HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[]}';

for (const { name, answer, bytewise, outcome, timeout_ms, connection_again: again } of answers) {
  test(`an answer: ${name}`, async (t) => {
    const service = await serve(t, async (socket, { requests }) => {
      if (!/"user"/.test(requests.at(-1))) {
        socket.write(good);
        return;
      }
      for (const part of bytewise ? answer[0].split('') : answer) {
        if (part === null) {
          socket.end();
        } else {
          await new Promise((resolve) => socket.write(part, resolve));
        }
      }
    });
    const client = new Client({ url: service.url, timeout });
    const first = timeout_ms ? new Client({ url: service.url, timeout: timeout_ms }) : client;
    const said = await first.check({ descriptor: { user: 'schlüssel' } }).catch((err) => err);
    if (outcome.kind === 'verdict') {
      const { kind, ...want } = outcome;
      assert.deepEqual({ allowed: said.allowed, status: said.status, headers: said.headers }, want, String(said.stack));
    } else {
      assert.equal(said instanceof UnavailableError ? 'unavailable' : said instanceof HeadgateError ? 'mistake' : String(said), outcome.kind);
      const { kind, ...want } = outcome;
      assert.deepEqual(Object.fromEntries(Object.keys(want).map((field) => [field, said[field]])), want, said.message);
    }
    assert.equal((await client.check({ descriptor: {} })).allowed, true);
    assert.equal(service.connections, again ? 1 : 2);
    assert.match(service.requests[0], /^POST \/below\/v1\/check\?status=true&at=true HTTP\/1\.1\r\nHost: 127\.0\.0\.1:\d+\r\n/);
    assert.ok(service.requests[0].endsWith('{"descriptor":{"user":"schlüssel"}}'));
  });
}

test('a call that gets no answer in time closes its connection, and no other', async (t) => {
  const service = await serve(t, (socket, { requests }) => {
    if (!/silent/.test(requests.at(-1))) {
      socket.write(good);
    }
  });
  await assert.rejects(new Client({ url: service.url, timeout: 20 }).check({ descriptor: { user: 'silent' } }), (err) => err instanceof UnavailableError && /within 20 ms/.test(err.message));
  await until('it is closed', () => service.sockets.size === 0);
  const client = new Client({ url: service.url, timeout });
  assert.equal((await client.check({ descriptor: {} })).allowed, true);
  assert.equal(service.sockets.size, 1);
});

test('connections are bounded, and calls wait for one', async (t) => {
  const held = [];
  let release = false;
  const service = await serve(t, (socket) => {
    if (release) {
      socket.write(good);
    } else {
      held.push(socket);
    }
  });
  const client = new Client({ url: service.url, timeout });
  const calls = Array.from({ length: 200 }, () => client.check({ descriptor: {} }));
  await until('64 calls have come', () => held.length === 64);
  release = true;
  held.forEach((socket) => socket.write(good));
  await Promise.all(calls);
  assert.equal(service.connections, 64);
  assert.equal(service.requests.length, 200);
});

test('calls that wait for a connection end in time, too', async (t) => {
  const service = await serve(t, () => {});
  const client = new Client({ url: service.url, timeout: 200 });
  const calls = await Promise.all(Array.from({ length: 100 }, () => client.check({ descriptor: {} }).catch((err) => err)));
  assert.ok(calls.every((err) => err instanceof UnavailableError && err.status === 0), String(calls[99]));
  await until('all are closed', () => service.sockets.size === 0);
});

test('a connection that the service has closed is not used again', async (t) => {
  const service = await serve(t, (socket) => socket.write(good));
  const client = new Client({ url: service.url, timeout });
  await client.check({ descriptor: {} });
  service.sockets.forEach((socket) => socket.end());
  await until('it is closed', () => service.sockets.size === 0);
  assert.equal((await client.check({ descriptor: {} })).allowed, true);
  assert.equal(service.connections, 2);
});

test('kept connections do not keep the process alive', async (t) => {
  const service = await serve(t, (socket) => socket.write(good));
  const program = `const { Client } = require('.'); new Client({ url: '${service.url}', timeout: ${timeout} }).check({ descriptor: {} }).then((v) => console.log(v.allowed))`;
  const printed = await new Promise((resolve, reject) => {
    execFile(process.execPath, ['-e', program], { cwd: `${__dirname}/..`, timeout: 120_000 }, (err, out) => (err ? reject(err) : resolve(out)));
  });
  assert.equal(printed, 'true\n');
});

test('a fetch that the program brings', async (t) => {
  const service = await serve(t, (socket) => socket.write(good));
  let called = 0;
  const client = new Client({ url: service.url, timeout, fetch: (...args) => {
    called++;
    return fetch(...args);
  } });
  assert.deepEqual([(await client.check({ descriptor: {} })).allowed, called], [true, 1]);
});

test('urls and options that cannot be', () => {
  for (const url of ['ftp://127.0.0.1', 'http://user@127.0.0.1', 'http://127.0.0.1/?a', 'http://127.0.0.1/#a', 'nothing']) {
    assert.throws(() => new Client({ url }), TypeError, url);
  }
});
