'use strict';

const { Client, HeadgateError, UnavailableError } = require('./lib/client.js');
const { limit } = require('./lib/express.js');
const { Permit, PermitLostError } = require('./lib/permit.js');

module.exports = { Client, HeadgateError, UnavailableError, Permit, PermitLostError, limit };
