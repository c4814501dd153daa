'use strict';

// A site, limited by the package that CONTENDER names, by a limit that nobody reaches.

const express = require('express');

const { CONTENDER, REDIS, HEADGATE, PACKAGE } = process.env;
const app = express();

async function limiter() {
  if (CONTENDER === 'bare') {
    return (req, res, next) => next();
  }
  if (CONTENDER === 'headgate') {
    return require(PACKAGE).limit({ url: HEADGATE, timeout: 10_000, onNoAnswer: 'deny' });
  }
  const { rateLimit } = require('express-rate-limit');
  const { RedisStore } = require('rate-limit-redis');
  const client = require('redis').createClient({ url: REDIS });
  await client.connect();
  return rateLimit({
    windowMs: 3_600_000,
    limit: 1_000_000,
    keyGenerator: (req) => req.get('x-api-key'),
    store: new RedisStore({ sendCommand: (...args) => client.sendCommand(args) }),
  });
}

limiter().then((limit) => {
  app.use(limit);
  app.get('/free', (req, res) => res.send('ok'));
  app.listen(Number(process.argv[2]), '127.0.0.1');
});
process.on('SIGTERM', () => process.exit());
