// A site that express-rate-limit limits: 10 requests in 5 seconds, counted in the Redis of the second
// argument. The first one is the port.
'use strict';

const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { RedisStore } = require('rate-limit-redis');
const { createClient } = require('redis');

const [port, redis] = process.argv.slice(2);
const client = createClient({ url: redis });
client.on('error', () => {}); // It connects again.

client.connect().then(() => {
  const app = express();
  app.use(rateLimit({
    windowMs: 5000,
    limit: 10,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    keyGenerator: () => 'everyone',
    store: new RedisStore({ sendCommand: (...args) => client.sendCommand(args) }),
  }));
  app.get('/', (req, res) => res.send('ok'));
  process.on('SIGTERM', () => process.exit(0));
  app.listen(Number(port), '127.0.0.1');
});
