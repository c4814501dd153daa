'use strict';

// Express 4, Express 5, Koa, Polka, Fastify, Hono and a server that takes paths out of URLs.
// Each prints its name and its port when it serves.
const http = require('node:http');

function express(version, below) {
  const app = require(`express${version}`)();
  app.all('/v1/token', (req, res) => res.send('token'));
  app.all(below, (req, res) => res.send('admin'));
  app.use((req, res) => res.send('other'));
  return app;
}

function plain(req, res) {
  let path;
  try {
    path = new URL(req.url, 'http://localhost').pathname;
  } catch {
    res.statusCode = 400;
    res.end();
    return;
  }
  res.end(path === '/v1/token' ? 'token' : path.startsWith('/admin/') ? 'admin' : 'other');
}

function koa() {
  const app = new (require('koa'))();
  const router = new (require('@koa/router').Router)();
  router.all('/v1/token', (ctx) => { ctx.body = 'token'; });
  router.all('/admin/*rest', (ctx) => { ctx.body = 'admin'; });
  app.use(router.routes()).use((ctx) => { ctx.body = 'other'; });
  app.silent = true;
  return app.callback();
}

function polka() {
  const app = require('polka')({ onNoMatch: (req, res) => res.end('other') });
  for (const [path, name] of [['/v1/token', 'token'], ['/admin/*', 'admin']]) {
    for (const method of ['get', 'post']) app[method](path, (req, res) => res.end(name));
  }
  return app.handler.bind(app);
}

function routed(app, answer) {
  app.all('/v1/token', (a, b) => answer(a, b, 'token'));
  app.all('/admin/*', (a, b) => answer(a, b, 'admin'));
  return app;
}

const fastify = routed(require('fastify')(), (req, reply, name) => reply.send(name));
fastify.setNotFoundHandler((req, reply) => reply.code(200).send('other'));
const hono = routed(new (require('hono').Hono)(), (c, next, name) => c.text(name)).notFound((c) => c.text('other', 200));

fastify.listen({ port: 0, host: '127.0.0.1' }).then(() => console.log('fastify', fastify.server.address().port));
require('@hono/node-server').serve({ fetch: hono.fetch, port: 0, hostname: '127.0.0.1' }, (at) => console.log('hono', at.port));
for (const [name, handler] of [['express 4', express(4, '/admin/*')], ['express 5', express(5, '/admin/*rest')], ['koa', koa()], ['polka', polka()], ['node', plain]]) {
  const server = http.createServer(handler);
  server.listen(0, '127.0.0.1', () => console.log(name, server.address().port));
}
process.stdin.on('end', () => process.exit(0)).resume(); // until the test ends
