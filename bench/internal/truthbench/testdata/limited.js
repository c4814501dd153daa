// A site that Headgate's middleware for Express limits, by the service at the second argument. The first
// one is the port, and the third one where the package is.
'use strict';

const express = require('express');

const [port, service, headgate] = process.argv.slice(2);
const { limit } = require(headgate);
const app = express();
app.use(limit({ url: 'http://' + service, timeout: 10_000, onNoAnswer: 'deny' }));
app.get('/', (req, res) => res.send('ok'));
process.on('SIGTERM', () => process.exit(0));
app.listen(Number(port), '127.0.0.1');
