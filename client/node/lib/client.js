'use strict';

const { acquire } = require('./permit.js');
const { Retries, retryAfter, sleep } = require('./retry.js');

// How long an answer may take unless the client is told otherwise, in milliseconds.
// The service gives its store 15 of them if that is Redis, and up to 100 if not; the
// first call of a process, which loads what fetch needs, takes some hundreds on a busy
// machine.
const DEFAULT_TIMEOUT = 1000;

// How many bytes of an answer are read. Those of the service are far smaller.
const MAX_ANSWER = 4 << 20;

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

/** A client of the HTTP API. Connections are kept and used again. */
class Client {
  #base;
  #timeout;
  #fetch;
  #retries;

  constructor(options = {}) {
    const { url = 'http://127.0.0.1:8080', timeout = DEFAULT_TIMEOUT, fetch = globalThis.fetch, retry } = options;
    const base = new URL(url);
    if (base.protocol !== 'http:' && base.protocol !== 'https:') {
      throw new TypeError(`headgate: url is ${url}, must begin with http:// or https://`);
    }
    if (!Number.isInteger(timeout) || timeout < 1 || timeout > 60_000) {
      throw new RangeError(`headgate: timeout is ${timeout}, must be 1 to 60000 milliseconds`);
    }
    if (typeof fetch !== 'function') {
      throw new TypeError('headgate: fetch is not a function');
    }
    this.#base = base.href.replace(/\/+$/, '');
    this.#timeout = timeout;
    this.#fetch = fetch;
    this.#retries = new Retries(retry);
  }

  /**
   * Takes units, from every limit that binds the request or from none. It is repeated only
   * if it has an id.
   */
  check(request) {
    return this.#decide('/v1/check?status=true&at=true', request, Boolean(request && request.id));
  }

  /** Says what check would say, and takes nothing. */
  peek(request) {
    return this.#decide('/v1/peek?status=true', request, true);
  }

  /** Gives back what a check took at the time that its verdict names as `at`. */
  async refund(request) {
    return (await this.#post('/v1/refund', request)).body;
  }

  /** Forgets what was used. */
  async reset(request) {
    return (await this.#repeat('/v1/reset', request)).body;
  }

  /** Takes a permit of a rule that bounds what is in progress, and renews it. */
  acquire(request) {
    return acquire(async (call, fields, hold, signal) => (await this.#repeat(`/v1/permits/${call}`, fields, hold, signal)).body, request);
  }

  async #decide(path, request, repeatable) {
    const { status, headers, body } = await (repeatable ? this.#repeat(path, request) : this.#post(path, request));
    const verdict = { ...body, status, headers };
    if (status !== 200) {
      verdict.problem = problemOf(body, status);
    }
    return verdict;
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
    let answer, text;
    const timeout = this.#timeout + hold;
    const ends = new AbortController();
    const timer = setTimeout(() => ends.abort(new DOMException('the time is over', 'TimeoutError')), timeout);
    const stop = () => ends.abort(signal.reason);
    if (signal) {
      signal.addEventListener('abort', stop, { once: true });
    }
    try {
      if (signal && signal.aborted) {
        stop();
      }
      answer = await this.#fetch(this.#base + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(request),
        redirect: 'error',
        signal: ends.signal,
      });
      text = await read(answer);
    } catch (cause) {
      if (signal && signal.aborted) {
        throw signal.reason;
      }
      const late = cause && cause.name === 'TimeoutError';
      const why = late ? `within ${timeout} ms` : `(${(cause && cause.cause && cause.cause.message) || cause})`;
      throw new UnavailableError(`headgate: ${this.#base} does not answer ${why}`, 0, undefined, { cause });
    } finally {
      clearTimeout(timer);
      if (signal) {
        signal.removeEventListener('abort', stop);
      }
    }
    const body = parse(text);
    switch (answer.status) {
      case 200:
      case 403:
      case 429:
        if (body) {
          return { status: answer.status, headers: pick(answer.headers), body };
        }
    }
    const detail = (body && body.detail) || `status ${answer.status}`;
    // What stands between may answer in the place of the service.
    if (!body || answer.status === 503) {
      const err = new UnavailableError(`headgate: ${this.#base} cannot decide: ${detail}`, body ? answer.status : 0, body);
      err.retry_after_ms = retryAfter(answer.headers.get('retry-after'));
      err.final = answer.headers.get('headgate-retry') === 'no';
      throw err;
    }
    const more = (body.errors || []).map((e) => `; ${e.field} ${e.detail}`).join('');
    throw new HeadgateError(`headgate: ${detail}${more}`, answer.status, body);
  }
}

// read returns the text of an answer, which is bounded: what answers may not be the service.
async function read(answer) {
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
  return text + decoder.decode();
}

function parse(text) {
  try {
    const body = JSON.parse(text);
    return body !== null && typeof body === 'object' && !Array.isArray(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

function pick(headers) {
  const picked = {};
  headers.forEach((value, name) => {
    if (forClient.has(name)) {
      picked[name] = value;
    }
  });
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
  return problem;
}

module.exports = { Client, HeadgateError, UnavailableError, DEFAULT_TIMEOUT };
