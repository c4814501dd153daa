'use strict';

// Reads what a server of Redis's protocol (RESP2) answers: texts, errors, whole numbers, strings, and
// arrays of these.

// How many bytes one answer may have, in all and in a line, and how many members an array. Those of the
// service are far smaller.
const MAX_ANSWER = 4 << 20;
const MAX_LINE = 8 << 10;
const MAX_MEMBERS = 256;
const MAX_DEPTH = 3;

const [CR, LF] = [13, 10];

/** An answer that is an error. */
class ReplyError extends Error {}

/** Puts answers together from what arrives. What is not RESP2, or too large, throws. */
class Replies {
  #parts = []; // of an answer that is not complete
  #size = 0; // of these together
  #need = 0; // the size that it has at least
  #bytes;
  #at;

  /** Reads a chunk, whose memory is used again for the next one, and calls each for every answer that is complete. */
  add(chunk, each) {
    this.#size += chunk.length;
    if (this.#size < this.#need) {
      this.#parts.push(Buffer.from(chunk));
      return;
    }
    this.#bytes = this.#parts.length === 0 ? chunk : Buffer.concat([...this.#parts, chunk]);
    let read = 0;
    while (read < this.#bytes.length) {
      this.#at = read;
      this.#need = 0;
      const reply = this.#value(1);
      if (reply === undefined) {
        break;
      }
      read = this.#at;
      each(reply);
    }
    const rest = this.#bytes.subarray(read);
    this.#need = Math.max(this.#need - read, 0);
    if (this.#need > MAX_ANSWER || rest.length > MAX_ANSWER) {
      throw new RangeError(`its answer has more than ${MAX_ANSWER} bytes`);
    }
    this.#parts = rest.length > 0 ? [Buffer.from(rest)] : [];
    this.#size = rest.length;
    this.#bytes = undefined;
  }

  // value reads the value at #at and moves behind it. It is undefined if not all of it has arrived.
  #value(depth) {
    switch (this.#bytes[this.#at]) {
      case 0x2b: // +
        return this.#line();
      case 0x2d: // -
        return this.#line((text) => new ReplyError(text));
      case 0x3a: // :
        return this.#number(Number.MAX_SAFE_INTEGER);
      case 0x24: // $
        return this.#string();
      case 0x2a: // *
        if (depth < MAX_DEPTH) {
          return this.#array(depth);
        }
    }
    if (this.#at === this.#bytes.length) {
      return undefined;
    }
    throw new Error("its answer is not in Redis's protocol, as Headgate speaks it");
  }

  #line(make = String) {
    const end = this.#bytes.indexOf(CR, this.#at);
    if ((end < 0 ? this.#bytes.length : end) - this.#at > MAX_LINE) {
      throw new RangeError(`its answer has a line of more than ${MAX_LINE} bytes`);
    }
    if (end < 0 || !this.#ends(end)) {
      return undefined;
    }
    const text = this.#bytes.utf8Slice(this.#at + 1, end);
    this.#at = end + 2;
    return make(text);
  }

  // ends reports whether the end of a line at a place has arrived.
  #ends(at) {
    if (at + 1 < this.#bytes.length && !(this.#bytes[at] === CR && this.#bytes[at + 1] === LF)) {
      throw new Error('its answer has a line without an end');
    }
    return at + 1 < this.#bytes.length;
  }

  #number(most) {
    const bytes = this.#bytes;
    let at = this.#at + 1;
    let n = 0;
    for (; at < bytes.length && bytes[at] !== CR; at++) {
      n = 10 * n + bytes[at] - 0x30;
      if (!(bytes[at] >= 0x30 && bytes[at] <= 0x39) || n > most) {
        throw new RangeError(`its answer has a number or a length that is none, or is above ${most}`);
      }
    }
    if (at === bytes.length || !this.#ends(at)) {
      return undefined;
    }
    if (at === this.#at + 1) {
      throw new RangeError('its answer has a number without digits');
    }
    this.#at = at + 2;
    return n;
  }

  #string() {
    const length = this.#number(MAX_ANSWER);
    if (length === undefined) {
      return undefined;
    }
    const end = this.#at + length;
    if (end + 2 > this.#bytes.length) {
      this.#need = end + 2;
      return undefined;
    }
    this.#ends(end);
    const text = this.#bytes.utf8Slice(this.#at, end);
    this.#at = end + 2;
    return text;
  }

  #array(depth) {
    const length = this.#number(MAX_MEMBERS);
    if (length === undefined) {
      return undefined;
    }
    const values = [];
    for (let i = 0; i < length; i++) {
      const value = this.#at < this.#bytes.length ? this.#value(depth + 1) : undefined;
      if (value === undefined) {
        return undefined;
      }
      values.push(value);
    }
    return values;
  }
}

module.exports = { MAX_ANSWER, Replies, ReplyError };
