'use strict';

// Starts a Headgate for a test, and Express apps.

const { spawn } = require('node:child_process');
const { mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const http = require('node:http');
const { tmpdir } = require('node:os');
const { join } = require('node:path');

const { token } = require('../../vectors.json');

const program = process.env.HEADGATE_PROGRAM;
if (!program) {
  throw new Error('HEADGATE_PROGRAM is not set: it must be a headgate that is built, such as bin/headgate after `make build`');
}

/** Starts `headgate serve` with a policy, until the test ends, and returns its URLs: url, and resp for Redis's protocol. */
async function serve(t, policy, ...options) {
  const dir = mkdtempSync(join(tmpdir(), 'headgate-node-'));
  const file = join(dir, 'limits.yml');
  writeFileSync(file, policy);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HEADGATE_')));
  if (options.includes('--clock')) {
    env.HEADGATE_ADMIN_TOKEN = token;
  }
  const child = spawn(program, ['serve', '--listen', '127.0.0.1:0', '--resp-listen', '127.0.0.1:0', '--config', file, '--hash-key', '0123456789abcdef', ...options], { env });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
    rmSync(dir, { recursive: true, force: true });
  };
  t.after(stop);
  let log = '';
  const urls = await new Promise((resolve, reject) => {
    child.stderr.on('data', (data) => {
      log += data;
      const url = /msg=serving address=(\S+)/.exec(log);
      const resp = /msg="serving RESP" address=(\S+)/.exec(log);
      if (url && resp) {
        resolve({ url: url[1], resp: `redis://${resp[1]}` });
      }
    });
    child.once('close', () => reject(new Error(`headgate ended:\n${log}`)));
    child.once('error', reject);
  });
  return { ...urls, stop };
}

/** Serves an Express app, or any other listener, until the test ends. */
async function listen(t, app) {
  const server = http.createServer(app);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  }));
  return `http://127.0.0.1:${server.address().port}`;
}

/** Sends a request and reads the answer to its end. */
async function ask(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const req = http.request(url, { method, headers, agent: false }, (res) => {
      let text = '';
      res.setEncoding('utf8');
      res.on('data', (part) => { text += part; });
      res.on('end', () => resolve({ status: res.statusCode, headers: res.headers, text }));
      res.on('error', reject);
    });
    req.on('error', reject);
    req.end(body);
  });
}

module.exports = { serve, listen, ask };
