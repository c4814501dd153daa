'use strict';

const { Connections, MAX_ANSWER } = require('./connection.js');
const { Pipeline } = require('./pipeline.js');
const { HOLD, Permit, acquire } = require('./permit.js');
const { Retries, retryAfter, sleep } = require('./retry.js');

// How long an answer may take unless the client is told otherwise, in milliseconds.
const DEFAULT_TIMEOUT = 1000;

// The headers of an answer that are for the client whose request it is about, in
// every dialect.
const forClient = new Set([
  'retry-after',
  'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'x-ratelimit-warning',
  'ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset', 'ratelimit-warning',
  'ratelimit-policy', 'ratelimit',
]);

/** The service has answered that it will not do what it was asked. */
class HeadgateError extends Error {
  constructor(message, status, problem) {
    super(message);
    this.name = 'HeadgateError';
    this.status = status;
    this.problem = problem;
  }
}

/**
 * There is no decision. Either the service does not answer, or it does with 503
 * (status), because its store does not and it was told to let nothing pass then. The
 * request may have been charged: it must not be repeated blindly.
 */
class UnavailableError extends HeadgateError {
  constructor(message, status, problem, options) {
    super(message, status, problem);
    this.name = 'UnavailableError';
    this.retry_after_ms = 0;
    this.final = false;
    if (options && 'cause' in options) {
      this.cause = options.cause;
    }
  }
}

// What the client can be asked, by the names of the HTTP API. repeat says whether a call may be made
// again when it had no answer, since it takes nothing twice; once is for the others.
const always = () => true;
const once = () => false;
const withId = (request) => Boolean(request && request.id);
const CALLS = {
  check: { path: '/v1/check?status=true&at=true', repeat: withId },
  checkForOutcome: { path: '/v1/check?status=true&at=true&outcome=true', repeat: withId },
  peek: { path: '/v1/peek?status=true', repeat: always },
  refund: { path: '/v1/refund', repeat: once },
  reset: { path: '/v1/reset', repeat: always },
  explain: { path: '/v1/explain', repeat: always },
  reserve: { path: '/v1/reserve?status=true&at=true', repeat: withId },
  settle: { path: '/v1/settle', repeat: always },
  cancel: { path: '/v1/cancel', repeat: always },
};

// How long a client is told to wait when nothing could be decided, in seconds.
const UNAVAILABLE_FOR = 5;

/** The verdict without a decision. A service that answers was told itself to let nothing pass. */
function undecided(error, onNoAnswer) {
  const verdict = { allowed: true, retry_after_ms: 0, delay_ms: 0, decisions: [], status: 200, headers: {}, error };
  if (onNoAnswer === 'allow' && error.status === 0) {
    return verdict;
  }
  const wait = { retry_after_ms: UNAVAILABLE_FOR * 1000 };
  return {
    ...verdict,
    ...wait,
    allowed: false,
    status: 503,
    headers: { 'retry-after': String(UNAVAILABLE_FOR) },
    problem: {
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      title: 'Capacity is reduced for the moment',
      status: 503,
      detail: 'The rate limiter could not decide on the request.',
      ...wait,
    },
  };
}

/** A client of the HTTP API, over HTTP or over Redis's protocol. Connections are kept and used again. */
class Client {
  #base;
  #hold;
  #timeout;
  #onNoAnswer;
  #send;
  #retries;

  constructor(options = {}) {
    const { url = 'http://127.0.0.1:8080', timeout = DEFAULT_TIMEOUT, onNoAnswer = 'throw', fetch, tls, retry, ...unknown } = options;
    if (typeof options !== 'object' || Object.keys(unknown).length > 0) {
      throw new TypeError(`headgate: the options of a client are an object with url, timeout, onNoAnswer, tls, fetch and retry, and not ${typeof options === 'object' ? Object.keys(unknown).join(', ') : JSON.stringify(options)}`);
    }
    const base = new URL(url);
    const pipelined = base.protocol === 'redis:' || base.protocol === 'rediss:';
    if (!pipelined && base.protocol !== 'http:' && base.protocol !== 'https:') {
      throw new TypeError(`headgate: url begins with ${base.protocol}, must begin with http://, https://, redis:// or rediss://`);
    }
    if (pipelined && ((base.username || 'default') !== 'default' || !/^\/?$/.test(base.pathname) || base.search || base.hash || !base.hostname)) {
      throw new TypeError('headgate: url must be redis://host:port, or redis://:token@host:port');
    }
    if (!pipelined && (base.username || base.password || base.search || base.hash)) {
      throw new TypeError('headgate: url has a user, a password, a query or a fragment, must have none of them');
    }
    if (!Number.isInteger(timeout) || timeout < 1 || timeout > 60_000) {
      throw new RangeError(`headgate: timeout is ${timeout}, must be 1 to 60000 milliseconds`);
    }
    if (!['throw', 'allow', 'deny'].includes(onNoAnswer)) {
      throw new TypeError(`headgate: onNoAnswer is ${onNoAnswer}, must be throw, allow or deny`);
    }
    if (fetch !== undefined && typeof fetch !== 'function') {
      throw new TypeError('headgate: fetch is not a function');
    }
    if (fetch && pipelined) {
      throw new TypeError('headgate: fetch is for a url that begins with http:// or https://');
    }
    this.#base = pipelined ? `${base.protocol}//${base.host}` : base.href.replace(/\/+$/, '');
    // A call that is held back would hold up all others of a pipeline.
    this.#hold = pipelined ? 0 : HOLD;
    this.#timeout = timeout;
    this.#onNoAnswer = onNoAnswer;
    if (fetch) {
      this.#send = (path, body, limits) => byFetch(fetch, this.#base + path, body, limits);
    } else {
      const connections = pipelined ? new Pipeline(base, tls, timeout) : new Connections(base, tls);
      this.#send = (path, body, limits) => connections.post(path, body, limits);
    }
    this.#retries = new Retries(retry);
  }

  /**
   * Takes units, from every limit that binds the request or from none. It is repeated only
   * if it has an id. With { outcome: true }, a request is reserved if a rule that binds it charges
   * by how the work ends: the verdict has a `reservation` then, to settle with the status.
   */
  check(request, { outcome = false } = {}) {
    return this.#decide(outcome ? CALLS.checkForOutcome : CALLS.check, request);
  }

  /** Says what check would say, and takes nothing. */
  peek(request) {
    return this.#decide(CALLS.peek, request);
  }

  /** Gives back what a check took at the time that its verdict names as `at`. */
  refund(request) {
    return this.#tell(CALLS.refund, request);
  }

  /** Forgets what was used. */
  async reset(request) {
    const { body } = await this.#make(CALLS.reset, request);
    return this.#understood(Array.isArray(body.reset), body);
  }

  /** Says which rules bind a request and why. It is for people, not for the path of requests. */
  async explain(request) {
    return (await this.#make(CALLS.explain, request)).body;
  }

  /**
   * Takes units for work whose cost is an estimate. If it is allowed, the `reservation` of the
   * verdict is to be settled or cancelled.
   */
  reserve(request) {
    return this.#decide(CALLS.reserve, request);
  }

  /** Makes the units of a reservation those that the work did cost, or that its status costs. */
  settle(settlement) {
    return this.#tell(CALLS.settle, settlement);
  }

  /** Gives all units of a reservation back. */
  cancel(reservation) {
    return this.#tell(CALLS.cancel, { reservation });
  }

  /** Takes a permit of a rule that bounds what is in progress, and renews it. */
  async acquire(request) {
    const calls = async (call, fields, hold, signal) => {
      const { body } = await this.#repeat(`/v1/permits/${call}`, fields, hold, signal);
      return this.#understood(call === 'release' || ANSWERS[call](body), body);
    };
    try {
      return await acquire(calls, request, this.#hold);
    } catch (err) {
      return new Permit(calls, {}, undefined, { ...this.#undecided(err), in_use: 0, limit: 0 });
    }
  }

  async #decide(call, request) {
    try {
      return this.#verdict(await this.#make(call, request));
    } catch (err) {
      return this.#undecided(err);
    }
  }

  // undecided is the verdict after an error, if the client was told to have one then.
  #undecided(err) {
    if (this.#onNoAnswer === 'throw' || !(err instanceof UnavailableError)) {
      throw err;
    }
    return undecided(err, this.#onNoAnswer);
  }

  #verdict({ status, headers, body }) {
    this.#understood(isStanding(body) && body.allowed === (status === 200), body);
    const problem = status === 200 ? undefined : problemOf(body, status);
    // The body becomes the verdict, because a copy of it takes longer than to parse it.
    body.status = status;
    body.headers = pick(headers);
    if (problem) {
      body.problem = problem;
    }
    return body;
  }

  async #tell(call, request) {
    const { body } = await this.#make(call, request);
    return this.#understood(isStanding(body), body);
  }

  // understood is what was answered, if that is what a service answers.
  #understood(yes, body) {
    if (!yes) {
      throw new UnavailableError(`headgate: ${this.#base} cannot decide: its answer is not that of a Headgate`, 0, body);
    }
    return body;
  }

  #make({ path, repeat }, request) {
    return repeat(request) ? this.#repeat(path, request) : this.#post(path, request);
  }

  // repeat makes a call that may be made more than once, again if there is no answer.
  async #repeat(path, request, hold, signal) {
    this.#retries.call();
    for (let tried = 1, waited = 0; ; tried++) {
      try {
        return await this.#post(path, request, hold, signal);
      } catch (err) {
        const wait = err instanceof UnavailableError && !err.final ? this.#retries.next(tried, waited, err.retry_after_ms) : undefined;
        if (wait === undefined) {
          throw err;
        }
        await sleep(wait, signal);
        waited += wait;
      }
    }
  }

  // post makes one call, which the service may hold back for so many milliseconds.
  async #post(path, request, hold = 0, signal = undefined) {
    const milliseconds = this.#timeout + hold;
    const text = JSON.stringify(request);
    if (text === undefined) {
      throw new TypeError('headgate: a call needs an object such as { descriptor: { user: "ada" } }, and was given none');
    }
    let answer;
    try {
      answer = await this.#send(path, text, { milliseconds, signal, held: hold > 0 });
    } catch (cause) {
      if (signal && signal.aborted) {
        throw signal.reason;
      }
      const why = cause && cause.name === 'TimeoutError' ? `within ${milliseconds} ms` : `(${reason(cause)})`;
      throw new UnavailableError(`headgate: ${this.#base} does not answer ${why}`, 0, undefined, { cause });
    }
    const { status, headers } = answer;
    const body = parse(answer.text);
    if (body && (status === 200 || status === 403 || status === 429)) {
      return { status, headers, body };
    }
    const detail = (body && body.detail) || `status ${status}`;
    // What stands between may answer in the place of the service, which never redirects.
    const strange = !body || (status >= 300 && status < 400);
    if (strange || status === 503) {
      const err = new UnavailableError(`headgate: ${this.#base} cannot decide: ${detail}`, strange ? 0 : status, body);
      err.retry_after_ms = retryAfter(headers['retry-after']);
      err.final = headers['headgate-retry'] === 'no';
      throw err;
    }
    const errors = Array.isArray(body.errors) ? body.errors : [];
    const more = errors.filter((e) => e && e.field).map((e) => `; ${e.field} ${e.detail}`).join('');
    throw new HeadgateError(`headgate: ${detail}${more}`, status, body);
  }
}

// byFetch is Connections.post with somebody's fetch.
async function byFetch(fetch, url, body, { milliseconds, signal }) {
  const late = AbortSignal.timeout(milliseconds);
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    redirect: 'error',
    signal: signal ? AbortSignal.any([late, signal]) : late,
  });
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for await (const chunk of answer.body || []) {
    bytes += chunk.byteLength;
    if (bytes > MAX_ANSWER) {
      throw new RangeError(`its answer has more than ${MAX_ANSWER} bytes`);
    }
    text += decoder.decode(chunk, { stream: true });
  }
  return { status: answer.status, headers: Object.fromEntries(answer.headers), text: text + decoder.decode() };
}

// reason says why there is no answer. Node.js tells the cause of an error of fetch in its cause, and
// that of several addresses in their errors.
function reason(cause) {
  const err = (cause && cause.cause) || cause;
  return (err && (err.message || (err.errors && err.errors.map((e) => e.message).join('; ')) || err.code)) || String(cause);
}

function parse(text) {
  try {
    const body = JSON.parse(text);
    return body !== null && typeof body === 'object' && !Array.isArray(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

const isStanding = (body) => typeof body.allowed === 'boolean' && Number.isFinite(body.retry_after_ms) && Number.isFinite(body.delay_ms) && Array.isArray(body.decisions);
const isLease = (permit) => Boolean(permit) && Number.isFinite(permit.ttl_ms) && Number.isFinite(permit.expires_in_ms);

// Whether an answer about permits is one of a service.
const ANSWERS = {
  acquire: (body) => typeof body.allowed === 'boolean' && Number.isFinite(body.retry_after_ms) && (body.permit === undefined || isLease(body.permit)),
  renew: (body) => isLease(body.permit),
};

function pick(headers) {
  const picked = {};
  for (const name of Object.keys(headers)) {
    if (forClient.has(name)) {
      picked[name] = headers[name];
    }
  }
  return picked;
}

// problemOf is the problem document that a client is answered with: what the service
// says, without what only its caller needs.
function problemOf(body, status) {
  if (status === 403) {
    // The client is not to find its way around the list.
    return { title: 'The request is not allowed', status };
  }
  const problem = {};
  for (const name of ['type', 'title', 'status', 'detail', 'violated-policies', 'retry_after_ms']) {
    if (body[name] !== undefined) {
      problem[name] = body[name];
    }
  }
  problem.status = status;
  return problem;
}

module.exports = { Client, HeadgateError, UnavailableError, undecided };
