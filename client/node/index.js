'use strict';

const { Client, HeadgateError, UnavailableError } = require('./lib/client.js');
const { limit } = require('./lib/express.js');

module.exports = { Client, HeadgateError, UnavailableError, limit };
