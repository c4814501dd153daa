'use strict';

const { Client, UnavailableError, undecided } = require('./client.js');
const { Unclear, apiKey, hostname, linesOf, node, proxies } = require('./identity.js');
const { UNMATCHED, routeOf } = require('./route.js');

const DEFAULT_MAX_DELAY = 30_000;

// For how long an answer is held until the service knows its status, in milliseconds.
const HELD = 1000;

// How long a value may be for the service to count by it, in bytes.
const MAX_VALUE = 8192;

/**
 * A middleware for Express, and for anything that calls one with (req, res, next), that lets through what
 * a Headgate service admits.
 */
function limit(options = {}) {
  return limiter(options, {
    raw: (each) => each,
    // Express computes these anew each time that they are looked at.
    ip: (req) => {
      const { ip } = req;
      return ip === undefined ? req.socket.remoteAddress : ip;
    },
    path: (req) => {
      const { baseUrl = '', path = req.url.split('?')[0] } = req;
      return baseUrl + path;
    },
    route: routeOf,
    note: (req, res, verdict) => {
      (res.locals ||= {}).headgate = verdict;
    },
    refusing: () => {},
  });
}

/** A plugin for Fastify that lets through what a Headgate service admits. */
function fastifyLimit(app, options, done) {
  app.decorateRequest('headgate', null);
  app.addHook('onRequest', limiter(options, {
    raw: (each) => each.raw,
    ip: (request) => request.ip,
    path: (request) => request.raw.url.split('?')[0],
    route: (request) => (request.is404 ? UNMATCHED : `${request.method === 'HEAD' ? 'GET' : request.method} ${request.routeOptions.url}`),
    note: (request, reply, verdict) => {
      request.headgate = verdict;
    },
    refusing: (reply) => reply.hijack(),
  }));
  done();
}
// It is for the whole app, as what fastify-plugin makes.
fastifyLimit[Symbol.for('skip-override')] = true;
fastifyLimit[Symbol.for('fastify.display-name')] = 'headgate';

/** The middleware. The door knows where a framework has what is asked for. */
function limiter(options, door) {
  const {
    client,
    url,
    timeout,
    fetch,
    tls,
    apiKeyHeaders = ['authorization', 'x-api-key'],
    trust,
    source = 'x-forwarded-for',
    entries,
    route,
    cost = 1,
    onNoAnswer = 'allow',
    maxDelay = DEFAULT_MAX_DELAY,
    onDenied,
    onFailure = warner(),
    ...unknown
  } = options;
  const strange = Object.keys(unknown);
  if (strange.length > 0) {
    throw new TypeError(`headgate: ${strange.join(', ')} is not an option of limit`);
  }
  if (client && [url, timeout, fetch, tls].some((option) => option !== undefined)) {
    throw new TypeError('headgate: give a client, or url, timeout, tls and fetch for a new one, and not both');
  }
  if (onNoAnswer !== 'allow' && onNoAnswer !== 'deny') {
    throw new TypeError(`headgate: onNoAnswer is ${onNoAnswer}, must be allow or deny`);
  }
  if (!Number.isInteger(maxDelay) || maxDelay < 0 || maxDelay > 2 ** 31 - 1) {
    throw new RangeError(`headgate: maxDelay is ${maxDelay}, must be a whole number of milliseconds`);
  }
  for (const [name, value, kind] of [['entries', entries, 'function'], ['onDenied', onDenied, 'function'], ['onFailure', onFailure, 'function']]) {
    if (value !== undefined && typeof value !== kind) {
      throw new TypeError(`headgate: ${name} is not a ${kind}`);
    }
  }
  const keyHeaders = apiKeyHeaders.map((name) => name.toLowerCase());
  const proxied = trust && proxies(trust, source);
  const header = proxied && source.toLowerCase();
  const asked = client || new Client({ url, timeout, fetch, tls });

  function describe(req) {
    const raw = door.raw(req);
    // Express gives each request another prototype, after which every look at one of its properties is slow.
    const { method, headers, rawHeaders } = raw;
    const path = door.path(req);
    const descriptor = {};
    add(descriptor, 'api_key', apiKey(rawHeaders, keyHeaders));
    add(descriptor, 'ip', proxied ? proxied(raw.socket.remoteAddress, linesOf(rawHeaders, header)) : node(door.ip(req) || ''));
    add(descriptor, 'route', route === undefined ? door.route(req, path) : typeof route === 'function' ? route(req) : route);
    add(descriptor, 'method', method);
    add(descriptor, 'host', hostname(headers.host || ''));
    add(descriptor, 'path', decoded(path));
    return descriptor;
  }

  // decide reports whether the request may go on. If not, it has been answered. The framework's request
  // and response are for the options, and res is Node's.
  async function decide(req, response) {
    const res = door.raw(response);
    const units = typeof cost === 'function' ? await cost(req) : cost;
    if (units === 0) {
      return true;
    }
    const failed = (err) => onFailure(err, req);
    let request, verdict;
    try {
      const descriptor = describe(req);
      for (const [name, value] of entries ? Object.entries((await entries(req)) || {}) : []) {
        delete descriptor[name];
        add(descriptor, name, value);
      }
      request = { descriptor, cost: units };
      const long = Object.keys(request.descriptor).find((name) => isLong(request.descriptor[name]));
      if (long) {
        if (!res.headersSent) {
          refuse(req, response, { title: 'The request is too large', status: 431, detail: `What it gives as its ${long} is too long.` });
        }
        return false;
      }
      verdict = await asked.check(request, { outcome: true });
    } catch (err) {
      if (err instanceof Unclear) {
        if (!res.headersSent) {
          refuse(req, response, { title: 'The request can be read in two ways', status: 400, detail: err.message });
        }
        return false;
      }
      if (!(err instanceof UnavailableError)) {
        failed(err);
        if (!res.headersSent) {
          refuse(req, response, { title: 'The request could not be handled', status: 500 });
        }
        return false;
      }
      verdict = undecided(err, onNoAnswer);
    }
    if (verdict.error) {
      failed(verdict.error);
    }
    if (verdict.allowed && verdict.delay_ms > 0 && !(await hold(asked, request, verdict, res, maxDelay, failed))) {
      return false;
    }
    if (verdict.allowed && verdict.reservation !== undefined) {
      atEnd(res, (status) => asked.settle({ reservation: verdict.reservation, status }).catch(failed));
    }
    if (res.headersSent) {
      return false; // Somebody else has answered meanwhile, such as a timeout.
    }
    for (const name of Object.keys(verdict.headers)) {
      res.setHeader(name, verdict.headers[name]);
    }
    door.note(req, response, verdict);
    if (verdict.allowed) {
      return true;
    }
    res.setHeader('cache-control', 'no-store');
    if (onDenied && verdict.status === 429) {
      await onDenied(req, response, verdict);
    } else {
      refuse(req, response, verdict.problem);
    }
    return false;
  }

  function refuse(req, response, problem) {
    door.refusing(response);
    send(req, door.raw(response), problem);
  }

  return function headgate(req, res, next) {
    decide(req, res).then((passes) => {
      if (passes) {
        next();
      }
    }, next);
  };
}

// A character of UTF-16 takes up to three bytes of UTF-8.
const isLong = (value) => value.length > MAX_VALUE / 3 && Buffer.byteLength(value) > MAX_VALUE;

function add(descriptor, name, value) {
  if (value !== undefined && value !== null && value !== '') {
    descriptor[name] = String(value);
  }
}

// warner tells those of failures who have not said whom to tell, once a second at most.
function warner() {
  let next = 0;
  return (err) => {
    const now = Date.now();
    if (now >= next) {
      next = now + 1000;
      process.emitWarning(err.message, 'HeadgateWarning');
    }
  };
}

/**
 * Waits for the delay of a leaky bucket. One that is too long becomes a denial, and
 * what the request took is given back, as it is when the client goes away: then the
 * answer is false.
 */
async function hold(client, request, verdict, res, most, failed) {
  const { delay_ms: delay, at, reservation } = verdict;
  const giveBack = () => (reservation === undefined ? client.refund({ ...request, at }) : client.cancel(reservation)).catch(failed);
  if (delay > most) {
    await giveBack();
    const wait = delay - most;
    verdict.allowed = false;
    verdict.status = 429;
    verdict.headers['retry-after'] = String(Math.ceil(wait / 1000));
    verdict.problem = {
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'The assigned quota is exceeded',
      status: 429,
      detail: `The request would have to wait for ${delay} ms; it may wait for ${most}.`,
      retry_after_ms: wait,
    };
    return true;
  }
  const gone = res.destroyed || await new Promise((resolve) => {
    const left = () => {
      clearTimeout(timer);
      resolve(true);
    };
    const timer = setTimeout(() => {
      res.off('close', left);
      resolve(false);
    }, delay);
    res.once('close', left);
  });
  if (gone) {
    await giveBack();
  }
  return !gone;
}

/**
 * Calls settle once, with the status that the request ends with, and holds the answer back until that is done,
 * so that the next request of the same client meets the new state. A handler may go on when its client has
 * gone, and its status counts.
 */
function atEnd(res, settle) {
  const { end, writeHead } = res;
  let settled;
  let done = false;
  let ended = false;
  const begin = () => {
    settled ||= within(HELD, settle(res.statusCode)).then(() => { done = true; });
    return settled;
  };
  if (res.writableEnded) {
    begin(); // Somebody else has answered meanwhile.
    return;
  }
  res.writeHead = function (...args) {
    writeHead.apply(this, args);
    // Streams of HTTP/2 share a socket, which others need.
    const socket = !done && !(res.req.httpVersionMajor > 1) && res.socket;
    if (socket) {
      socket.cork();
    }
    begin().then(() => socket && socket.uncork());
    return this;
  };
  res.end = function (...args) {
    if (!res.headersSent) {
      // What is ended is not to be changed any more, as if it were not held.
      writeHeadOf(res, args);
    }
    if (done) {
      return end.apply(this, args);
    }
    if (!ended) {
      ended = true;
      begin().then(() => end.apply(this, args));
    }
    return this;
  };
}

// writeHeadOf does what end does for an answer that was not begun: the whole body is known.
function writeHeadOf(res, [chunk, encoding]) {
  const bodiless = res.req.method === 'HEAD' || res.statusCode === 204 || res.statusCode === 304;
  if (!bodiless && !['content-length', 'transfer-encoding', 'trailer'].some((name) => res.hasHeader(name))) {
    const body = typeof chunk === 'string' || chunk instanceof Uint8Array ? chunk : '';
    res.setHeader('content-length', Buffer.byteLength(body, typeof encoding === 'string' ? encoding : 'utf8'));
  }
  res.writeHead(res.statusCode);
}

/** Waits for the promise, but no longer than for so many milliseconds. */
async function within(milliseconds, promise) {
  let timer;
  await Promise.race([promise, new Promise((resolve) => { timer = setTimeout(resolve, milliseconds); })]);
  clearTimeout(timer);
}

function send(req, res, problem) {
  const body = JSON.stringify(problem) + '\n';
  res.statusCode = problem.status;
  res.setHeader('content-type', 'application/problem+json');
  res.setHeader('content-length', Buffer.byteLength(body));
  res.setHeader('cache-control', 'no-store');
  res.setHeader('x-content-type-options', 'nosniff');
  res.end(req.method === 'HEAD' ? undefined : body);
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

module.exports = { fastifyLimit, limit };
