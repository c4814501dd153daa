'use strict';

const { Client, HeadgateError, UnavailableError } = require('./lib/client.js');
const { fastifyLimit, limit } = require('./lib/limit.js');
const { Permit, PermitLostError } = require('./lib/permit.js');

module.exports = { Client, HeadgateError, UnavailableError, Permit, PermitLostError, fastifyLimit, limit };
