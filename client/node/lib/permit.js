'use strict';

const { randomUUID } = require('node:crypto');
const { hostname } = require('node:os');

const { sleep } = require('./retry.js');

// For how long one call may be held back by the service, and for how long a place in line
// is kept until the next one, in milliseconds.
const HOLD = 20_000;
const KEEP = 2_000;

// A permit counts as lost this part of its time before its lease ends: for what the work
// needs to stop.
const MARGIN = 1 / 10;

/** The permit was lost while the work went on: others may have it soon. */
class PermitLostError extends Error {
  constructor(why) {
    super(`headgate: the permit was lost: ${why}`);
    this.name = 'PermitLostError';
    this.why = why;
  }
}

/** A permit, which is renewed until it is released or lost; or the answer that there is none. */
class Permit {
  #calls;
  #who;
  #ttl;
  #lease;
  #ends = Infinity;
  #controller = new AbortController();
  #renewal;
  #end;
  #released;

  constructor(calls, who, ttl, answer, began) {
    this.#calls = calls;
    this.#who = who;
    this.#ttl = ttl;
    this.allowed = answer.allowed;
    this.shadow = answer.shadow === true;
    this.holder = who.holder;
    this.in_use = answer.in_use;
    this.limit = answer.limit;
    this.retry_after_ms = answer.retry_after_ms;
    if (answer.permit) {
      this.epoch = answer.permit.epoch;
      this.slots = answer.permit.slots;
      this.#keep(answer.permit, began, 1 / 6);
    }
  }

  /** Ends, with a PermitLostError as its reason, when the permit is lost, before its lease ends. */
  get signal() {
    return this.#controller.signal;
  }

  /** Whether the permit was lost. It looks at the clock, as for a process that was stopped. */
  get lost() {
    if (performance.now() >= this.#ends) {
      this.#lose('its time has passed');
    }
    return this.#controller.signal.aborted;
  }

  /**
   * Gives the permit back, and says whether the service has heard it. Otherwise the permit
   * ends by itself. Releasing again does nothing.
   */
  release() {
    this.#released ??= this.#giveBack();
    return this.#released;
  }

  async #giveBack() {
    this.#stop();
    if (!this.#lease) {
      return true;
    }
    try {
      await this.#calls('release', { ...this.#who, epoch: this.epoch });
      return true;
    } catch {
      return false;
    }
  }

  // keep has the permit renewed after a part of its time, which is counted from before the
  // call that it was answered to.
  #keep(lease, began, part) {
    this.#lease = lease;
    this.#ends = began + lease.expires_in_ms - lease.ttl_ms * MARGIN;
    this.#stop();
    const left = this.#ends - performance.now();
    this.#end = setTimeout(() => this.#lose('it could not be renewed in time'), Math.max(left, 0));
    this.#renewal = setTimeout(() => this.#renew(), Math.min(lease.ttl_ms * part * (1 - Math.random() / 8), Math.max(left / 2, 0)));
    // A permit that was forgotten does not keep the process alive.
    this.#end.unref();
    this.#renewal.unref();
  }

  async #renew() {
    const began = performance.now();
    try {
      const { permit } = await this.#calls('renew', { ...this.#who, epoch: this.epoch, ttl_ms: this.#ttl });
      if (!this.#released && !this.lost) {
        this.#keep(permit, began, 1 / 3);
      }
    } catch (err) {
      if (this.#released || this.lost) {
        return;
      }
      if (err.status === 410) {
        this.#lose(err.problem && err.problem.revoked ? 'it was revoked' : 'the service knows no such permit');
        return;
      }
      // The end comes by its own timer.
      const pause = Math.min(Math.max(this.#lease.ttl_ms / 20, 10), 1000);
      this.#renewal = setTimeout(() => this.#renew(), pause / 2 + Math.random() * pause);
      this.#renewal.unref();
    }
  }

  #lose(why) {
    this.#stop();
    this.#controller.abort(new PermitLostError(why));
  }

  #stop() {
    clearTimeout(this.#renewal);
    clearTimeout(this.#end);
  }
}

// checked returns what acquire was given, with what was left out, or throws what is wrong with it.
function checked(request) {
  if (request === null || typeof request !== 'object') {
    throw new TypeError(`headgate: acquire needs an object such as { rule: 'report', key: 'acme' }, and was given ${request === null ? 'null' : typeof request}`);
  }
  const { rule, key = '', cost, ttl, wait = 0, signal, holder = `${hostname().slice(0, 64)}/${process.pid}/${randomUUID()}` } = request;
  for (const [name, value] of Object.entries({ rule, key, holder })) {
    if (typeof value !== 'string') {
      throw new TypeError(`headgate: ${name} is ${value === null ? 'null' : typeof value}, must be a string`);
    }
  }
  if (rule === '') {
    throw new RangeError('headgate: rule is empty, must be the name of a rule');
  }
  for (const [name, value, most] of [['cost', cost, 1e9], ['ttl', ttl, Number.MAX_SAFE_INTEGER]]) {
    if (value !== undefined && (!Number.isInteger(value) || value < 1 || value > most)) {
      throw new RangeError(`headgate: ${name} is ${String(value)}, must be a whole number of 1 or more`);
    }
  }
  if (!Number.isInteger(wait) || wait < 0 || wait > 600_000) {
    throw new RangeError(`headgate: wait is ${String(wait)}, must be 0 to 600000 milliseconds`);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError('headgate: signal is not an AbortSignal');
  }
  return { rule, key, cost, ttl, wait, signal, holder };
}

/**
 * Acquires a permit. calls makes one call about permits, with the fields of its body, the
 * milliseconds that the service may hold it, of which there are at most so many, and a signal.
 */
async function acquire(calls, request, most) {
  const { rule, key, cost, ttl, wait, signal, holder } = checked(request);
  const who = { rule, key, holder };
  const until = performance.now() + wait;
  try {
    for (;;) {
      const began = performance.now();
      const left = Math.max(Math.ceil(until - began), 0);
      const hold = Math.min(left, most);
      const answer = await calls('acquire', { ...who, cost, ttl_ms: ttl, wait_ms: hold, keep_ms: left > hold ? KEEP : 0 }, hold, signal);
      if (answer.allowed || !answer.waiting) {
        return new Permit(calls, who, ttl, answer, began);
      }
      await sleep(Math.min(answer.retry_after_ms, Math.max(until - performance.now(), 0)), signal);
    }
  } catch (err) {
    // The service may have granted it, or keep a place in line.
    if (err.status === undefined || err.status === 0 || err.status === 503) {
      calls('release', who).catch(() => {});
    }
    throw err;
  }
}

module.exports = { HOLD, acquire, Permit, PermitLostError };
