'use strict';

// Express 4, Express 5 and a server that takes paths out of URLs. Each prints its name and
// its port when it serves.
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

for (const [name, handler] of [['express4', express(4, '/admin/*')], ['express5', express(5, '/admin/*rest')], ['node', plain]]) {
  const server = http.createServer(handler);
  server.listen(0, '127.0.0.1', () => console.log(name, server.address().port));
}
process.stdin.on('end', () => process.exit(0)).resume(); // until the test ends
