'use strict';

// How many retries a budget saves up at most, beyond its floor: a service that fails after
// a long time of good answers must not be met with all that was saved since.
const HOARD = 100;

const DEFAULTS = { tries: 3, backoff: 100, maxBackoff: 10_000, maxWait: 10_000, budget: 0.1, floor: 10 };

/**
 * Retries decides whether a call is tried again, and when. Whatever happens, there are at
 * most budget × calls + floor retries.
 */
class Retries {
  #options;
  #left;
  #random;

  constructor(options = {}, random = Math.random) {
    const o = { ...DEFAULTS, ...options };
    const whole = (name, least, most) => {
      if (!Number.isInteger(o[name]) || o[name] < least || o[name] > most) {
        throw new RangeError(`headgate: retry.${name} is ${o[name]}, must be a whole number from ${least} to ${most}`);
      }
    };
    for (const name of Object.keys(options)) {
      if (!(name in DEFAULTS)) {
        throw new TypeError(`headgate: retry.${name} is not an option; there are ${Object.keys(DEFAULTS).join(', ')}`);
      }
    }
    whole('tries', 1, 10);
    whole('backoff', 1, 60_000);
    whole('maxBackoff', o.backoff, 600_000);
    whole('maxWait', 0, 600_000);
    whole('floor', 0, 1000);
    if (typeof o.budget !== 'number' || !(o.budget >= 0 && o.budget <= 1)) {
      throw new RangeError(`headgate: retry.budget is ${o.budget}, must be 0 to 1`);
    }
    this.#options = o;
    this.#left = o.floor;
    this.#random = random;
  }

  /** Notes a call, which pays its share in. */
  call() {
    const { budget, floor } = this.#options;
    this.#left = Math.min(this.#left + budget, floor + HOARD);
  }

  /**
   * The milliseconds to wait before another try, or undefined if there is to be none.
   * tried is how many there were, waited for how long the call has waited, and after what
   * the service has asked for. The budget is charged here: what waits counts already.
   */
  next(tried, waited, after) {
    const o = this.#options;
    // Shares are added up one by one: what is missing for rounding is there.
    if (tried >= o.tries || this.#left < 1 - 1e-9) {
      return undefined;
    }
    let wait = this.#random() * Math.min(o.backoff * 2 ** (tried - 1), o.maxBackoff);
    if (after > 0) {
      // Never sooner than that, and not all at once.
      wait = Math.max(wait, after * (1 + this.#random() / 10));
    }
    if (waited + wait > o.maxWait) {
      return undefined;
    }
    this.#left--;
    return wait;
  }
}

/** The milliseconds that a Retry-After asks for, from now; 0 if it says nothing. */
function retryAfter(text, now = Date.now()) {
  if (!text) {
    return 0;
  }
  if (/^\d{1,9}(\.\d{1,9})?$/.test(text.trim())) {
    return Number(text) * 1000;
  }
  const at = Date.parse(text);
  return Number.isNaN(at) ? 0 : Math.max(at - now, 0);
}

/** Waits, unless the signal ends it. */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal && signal.aborted) {
      reject(signal.reason);
      return;
    }
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      if (signal) {
        signal.removeEventListener('abort', end);
      }
      resolve();
    }, ms);
    if (signal) {
      signal.addEventListener('abort', end, { once: true });
    }
  });
}

module.exports = { Retries, retryAfter, sleep };
