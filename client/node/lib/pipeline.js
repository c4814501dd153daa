'use strict';

// Calls of the HTTP API over Redis's protocol, as HG.POST. All share one connection: what is asked at
// about the same time is sent together and answered together, so that a call costs a fraction of one
// over HTTP.

const net = require('node:net');
const tls = require('node:tls');

const { MAX_ANSWER, Replies, ReplyError } = require('./replies.js');

// How many calls may wait for an answer on a connection, and how many besides for being sent. A call
// that is not sent yet takes nothing if its time is over.
const MOST_SENT = 1024;
const MOST_WAITING = 65_536;

// How many bytes are sent at a time, and how large a command may be.
const BATCH = 256 << 10;
const MAX_COMMAND = 64 << 10;

// How long the connection is kept without a call, in milliseconds.
const KEEP = 30_000;

// After how long, to twice that, another connection takes its place, in milliseconds: behind a load
// balancer, new instances get their share.
const AGE = 60_000;

// After two connections in a row that brought no answer, and more, the next is tried after up to so many
// milliseconds. Calls fail at once until then.
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 100;

const TOO_LARGE = {
  status: 413,
  headers: {},
  text: JSON.stringify({ title: 'Request Entity Too Large', status: 413, detail: `the call is too large; over Redis's protocol it may have ${MAX_COMMAND} bytes in all` }),
};

/** Makes calls to one address, over one connection. Each may take so many milliseconds. */
class Pipeline {
  #open;
  #line;
  #milliseconds;
  #timer; // One for all calls: to make and clear one for each takes a tenth of a call's time.
  #calls = new Queue(); // all that have not ended, with some that have, in the order in which their time ends
  #waiting = new Queue();
  #scheduled = false;
  #failures = 0;
  #paused = 0;
  #why;

  constructor(url, tlsOptions, milliseconds) {
    this.#milliseconds = milliseconds;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const secure = url.protocol === 'rediss:';
    const options = { host, port: Number(url.port) || 6379, autoSelectFamily: true, noDelay: true };
    if (secure) {
      Object.assign(options, net.isIP(host) ? {} : { servername: host }, tlsOptions);
    }
    const token = decodeURIComponent(url.password);
    const events = {
      flush: () => this.#flush(),
      lost: (line, why) => this.#lost(line, why),
      answered: () => {
        this.#failures = 0;
      },
    };
    this.#open = () => new Line((more) => (secure ? tls : net).connect({ ...options, ...more }), token, events);
  }

  /**
   * Posts a body of JSON, and resolves to the status, the headers by their names in lower case, and
   * the text of the answer. The call ends when its time is over, or by the signal if there is one.
   */
  post(path, body, { signal }) {
    return new Promise((resolve, reject) => {
      const size = Buffer.byteLength(body);
      const command = `*3\r\n$7\r\nHG.POST\r\n$${path.length}\r\n${path}\r\n$${size}\r\n${body}\r\n`;
      if (command.length + size - body.length > MAX_COMMAND) {
        resolve(TOO_LARGE);
        return;
      }
      if (signal && signal.aborted) {
        reject(signal.reason);
        return;
      }
      if (this.#waiting.length >= MOST_WAITING) {
        reject(new Error(`${MOST_WAITING} calls are waiting already`));
        return;
      }
      const call = new Call(command, size === body.length, performance.now() + this.#milliseconds, signal, resolve, reject);
      while (this.#calls.length > 0 && this.#calls.first.ended) {
        this.#calls.shift();
      }
      this.#calls.push(call);
      this.#timer ||= setTimeout(() => this.#late(), this.#milliseconds).unref(); // The socket keeps the process alive.
      this.#waiting.push(call);
      if (this.#line && this.#line.free) {
        this.#flush();
      } else {
        this.#schedule();
      }
    });
  }

  // late ends the calls whose time is over, and waits for the next one.
  #late() {
    this.#timer = undefined;
    for (const now = performance.now(); this.#calls.length > 0; this.#calls.shift()) {
      const { ended, until } = this.#calls.first;
      if (!ended && until > now) {
        this.#timer = setTimeout(() => this.#late(), Math.ceil(until - now)).unref();
        return;
      }
      this.#calls.first.late();
    }
  }

  // schedule has calls sent in this turn of the loop, together with those that other sockets bring in it.
  #schedule() {
    if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => this.#flush());
    }
  }

  #flush() {
    this.#scheduled = false;
    let line = this.#line;
    while (this.#waiting.length > 0 && !(line && line.full)) {
      if (!line && performance.now() < this.#paused) {
        this.#waiting.shift().fail(this.#why);
        continue;
      }
      try {
        line = this.#line ||= this.#open();
      } catch (err) { // What tls was given is wrong.
        this.#waiting.shift().fail(err);
        continue;
      }
      line.send(this.#waiting);
    }
  }

  // lost forgets a connection, and says how long there is to be none if it was of no use.
  #lost(line, why) {
    if (this.#line !== line) {
      return;
    }
    this.#line = undefined;
    if (!line.useful) {
      // The first failure in a row may be one of its time only.
      const pause = this.#failures === 0 ? 0 : Math.min(FIRST_PAUSE * 2 ** (this.#failures - 1), LONGEST_PAUSE);
      this.#failures++;
      this.#paused = performance.now() + pause / 2 + Math.random() * pause / 2;
      this.#why = why;
    }
    // Not at once: the time of what waits may be over as well.
    this.#schedule();
  }
}

/** A call. It ends once: by an answer, by an error, in time or by its signal. */
class Call {
  ended = false;
  line;
  heard; // how often the line had heard something when the call was sent
  #signal;
  #stop;
  #resolve;
  #reject;

  constructor(command, ascii, until, signal, resolve, reject) {
    this.command = command;
    this.ascii = ascii;
    this.until = until;
    this.#resolve = resolve;
    this.#reject = reject;
    if (signal) {
      this.#signal = signal;
      this.#stop = () => this.fail(signal.reason);
      signal.addEventListener('abort', this.#stop, { once: true });
    }
  }

  answer(reply) {
    this.#end();
    this.#resolve(reply);
  }

  fail(err) {
    if (this.ended) {
      return;
    }
    this.#end();
    this.#reject(err);
  }

  /** Its time is over. */
  late() {
    const { ended, line } = this;
    this.fail(new DOMException('the time is over', 'TimeoutError'));
    // Nothing was heard in all of its time: the connection may be dead.
    if (!ended && line && line.heard === this.heard) {
      line.retire(new Error('it did not answer in time'));
    }
  }

  #end() {
    this.ended = true;
    this.command = undefined;
    if (this.#signal) {
      this.#signal.removeEventListener('abort', this.#stop);
    }
    if (this.line) {
      this.line.ended();
    }
  }
}

/** One connection, and the calls that were sent over it, which are answered in their order. */
class Line {
  /** It has had an answer. */
  useful = false;
  /** How often something has arrived. */
  heard = 0;
  #socket;
  #events;
  #sent = new Queue();
  #live = 0; // calls that were sent and have not ended
  #blocked = false;
  #retired = false;
  #until = performance.now() + AGE * (1 + Math.random());
  #replies = new Replies();

  constructor(connect, token, events) {
    this.#events = events;
    // With one buffer for all that is read, nothing is left for the garbage collector.
    const onread = {
      buffer: Buffer.allocUnsafeSlow(64 << 10),
      callback: (size, buffer) => {
        this.#read(buffer.subarray(0, size));
        return true;
      },
    };
    this.#socket = connect({ onread });
    this.#socket.setTimeout(KEEP, () => {
      if (this.#live === 0) {
        this.fail();
      }
    });
    this.#socket.on('drain', () => {
      this.#blocked = false;
      this.#events.flush();
    });
    this.#socket.on('error', (err) => this.fail(err));
    for (const end of ['end', 'close']) {
      this.#socket.on(end, () => this.fail(new Error('the connection was closed before the answer')));
    }
    if (token) {
      this.#sent.push(undefined);
      this.#socket.write(`*2\r\n$4\r\nAUTH\r\n$${Buffer.byteLength(token)}\r\n${token}\r\n`);
    }
  }

  /** No more is to be sent for now. */
  get full() {
    return this.#blocked || this.#sent.length >= MOST_SENT;
  }

  /** Nothing is on its way, so that nothing is gained by waiting for other calls. */
  get free() {
    return this.#live === 0 && !this.#blocked;
  }

  /** Sends calls that wait, as many as there may be at once. */
  send(waiting) {
    let text = '';
    let ascii = true;
    while (waiting.length > 0 && this.#sent.length < MOST_SENT && text.length < BATCH) {
      const call = waiting.shift();
      if (call.ended) {
        continue;
      }
      text += call.command;
      ascii &&= call.ascii;
      call.command = undefined;
      call.line = this;
      call.heard = this.heard;
      this.#sent.push(call);
      if (this.#live++ === 0) {
        this.#socket.ref();
      }
    }
    if (text !== '') {
      this.#blocked = !this.#socket.write(text, ascii ? 'latin1' : 'utf8');
    }
  }

  /** A call has ended. Without one, the connection does not keep the process alive. */
  ended() {
    if (--this.#live > 0) {
      return;
    }
    if (this.#retired) {
      this.fail();
    } else {
      this.#socket.unref();
    }
  }

  /** Takes no more calls, and is closed when those that it has have ended. */
  retire(why) {
    if (this.#retired) {
      return;
    }
    this.#retired = true;
    this.#events.lost(this, why);
    if (this.#live === 0) {
      this.fail();
    }
  }

  /** Closes the connection. Its calls fail: whether they were carried out is not known. */
  fail(err = new Error('the connection was closed')) {
    this.#retired = true;
    this.#socket.destroy();
    this.#events.lost(this, err);
    while (this.#sent.length > 0) {
      const call = this.#sent.shift();
      if (call) {
        call.fail(err);
      }
    }
  }

  #read(chunk) {
    this.heard++;
    try {
      this.#replies.add(chunk, (reply) => this.#answered(reply));
    } catch (err) {
      this.fail(err);
      return;
    }
    this.#events.flush();
  }

  #answered(reply) {
    if (this.#sent.length === 0) {
      throw new Error(reply instanceof ReplyError ? reply.message : 'it has answered what nobody had asked');
    }
    const call = this.#sent.shift();
    if (call === undefined) { // AUTH
      if (reply !== 'OK') {
        throw reply instanceof ReplyError ? reply : new Error('its answer to AUTH is not that of a Headgate');
      }
      return;
    }
    if (reply instanceof ReplyError) {
      call.fail(reply);
      return;
    }
    const answer = answerOf(reply);
    if (!answer) {
      const err = new Error('its answer is not that of a Headgate');
      call.fail(err);
      throw err;
    }
    if (!this.useful) {
      this.useful = true;
      this.#events.answered();
    }
    // One whose time is over has its answer still, and nobody else.
    if (!call.ended) {
      call.answer(answer);
    }
    if (answer.headers.connection === 'close' || performance.now() > this.#until) {
      this.retire();
    }
  }
}

// answerOf is the answer that HG.POST has: the status, the names and values of headers, and the body. It
// is undefined if that is no such answer.
function answerOf(reply) {
  if (!Array.isArray(reply) || reply.length !== 3 || !Number.isInteger(reply[0]) || !Array.isArray(reply[1]) || typeof reply[2] !== 'string') {
    return undefined;
  }
  const headers = new HeaderMap();
  for (let i = 0; i + 1 < reply[1].length; i += 2) {
    headers[String(reply[1][i]).toLowerCase()] = String(reply[1][i + 1]);
  }
  return { status: reply[0], headers, text: reply[2] };
}

// What a constructor makes is quicker than what Object.create(null) does, and inherits as little.
function HeaderMap() {}
HeaderMap.prototype = Object.create(null);

/** A list that is added to at its end and taken from at its beginning, in constant time. */
class Queue {
  #items = [];
  #from = 0;

  get length() {
    return this.#items.length - this.#from;
  }

  get first() {
    return this.#items[this.#from];
  }

  push(item) {
    this.#items.push(item);
  }

  shift() {
    const item = this.#items[this.#from];
    this.#items[this.#from++] = undefined;
    if (this.#from === this.#items.length) {
      this.#items.length = this.#from = 0;
    } else if (this.#from === 4096) {
      this.#items = this.#items.slice(this.#from);
      this.#from = 0;
    }
    return item;
  }
}

module.exports = { Pipeline, MAX_ANSWER };
