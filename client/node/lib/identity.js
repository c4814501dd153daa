'use strict';

// Who a request is from: the same rules as in Headgate's other middlewares. client/vectors.json has the cases.

const net = require('node:net');

// How many trusted entries of a forwarded list are walked, so that a long forged list costs little.
const MAX_HOPS = 64;

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const FOR_VALUE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z:[\]]+/;
const PORT = /^:[0-9]{1,5}$/;

/** Servers read the request in different ways. Its message says why, to the client. */
class Unclear extends Error {}

const trim = (text) => text.replace(/^[ \t]+|[ \t]+$/g, '');

/** An address in its one spelling, that of IPv4 within IPv6 as IPv4; undefined if the text is none. */
function canonical(text) {
  if (net.isIPv4(text)) {
    return text;
  }
  if (!net.isIPv6(text)) {
    return undefined;
  }
  const whole = new URL(`http://[${text}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(whole);
  if (!mapped) {
    return whole;
  }
  const [high, low] = [parseInt(mapped[1], 16), parseInt(mapped[2], 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** The address with or without a port; undefined if it is none. Without brackets, all of an IPv6 text is the address. */
function node(text) {
  let host = text;
  if (text === '' || text.length > 128) {
    return undefined;
  }
  if (text.startsWith('[')) {
    const end = text.indexOf(']');
    host = text.slice(1, end);
    if (end < 0 || (end + 1 < text.length && !PORT.test(text.slice(end + 1))) || !host.includes(':')) {
      return undefined;
    }
  } else if (text.indexOf(':') >= 0 && text.indexOf(':') === text.lastIndexOf(':')) {
    host = text.slice(0, text.indexOf(':'));
    if (!PORT.test(text.slice(host.length))) {
      return undefined;
    }
  }
  const address = canonical(host.split('%')[0]);
  return address === '0.0.0.0' || address === '::' ? undefined : address;
}

/**
 * A function that finds a client's address by the peer of its connection and the lines of the header
 * `source`: `x-forwarded-for`, `forwarded`, or one with a single address. Trusted are prefixes
 * (10.0.0.0/8), addresses (::1), and `unix` for peers on a Unix socket.
 */
function proxies(trusted, source) {
  if (!TOKEN.test(source)) {
    throw new TypeError(`headgate: the source of client addresses is ${JSON.stringify(source)}, must be a header's name`);
  }
  const networks = new net.BlockList();
  const socket = trusted.includes('unix');
  for (const text of trusted.filter((each) => each !== 'unix')) {
    const [host, bits, ...more] = text.split('/');
    const address = canonical(host);
    const most = net.isIPv4(address || '') ? 32 : 128;
    const prefix = bits === undefined ? most : /^[0-9]{1,3}$/.test(bits) ? Number(bits) : -1;
    if (prefix === 0) {
      throw new TypeError(`headgate: trusted proxy ${JSON.stringify(text)} is every address: any client could forge its own`);
    }
    if (!address || more.length > 0 || prefix < 0 || prefix > most) {
      throw new TypeError(`headgate: trusted proxy ${JSON.stringify(text)} is not an address or a prefix such as 10.0.0.0/8`);
    }
    networks.addSubnet(address, prefix, most === 32 ? 'ipv4' : 'ipv6');
  }
  const trusts = (address) => networks.check(address, net.isIPv4(address) ? 'ipv4' : 'ipv6');
  const name = source.toLowerCase();
  const cut = { 'x-forwarded-for': listed, forwarded }[name];

  // The lines are one list, which is read from its right end: there the nearest proxy has written.
  const walk = (nearest, lines) => {
    let last = nearest;
    let hops = 0;
    for (const line of [...lines].reverse()) {
      let rest = line;
      while (rest !== undefined) {
        let address;
        [address, rest] = cut(rest);
        if (address === undefined || hops === MAX_HOPS) {
          return last;
        }
        if (!trusts(address)) {
          return address;
        }
        last = address;
        hops++;
      }
    }
    return last;
  };

  return (peer, lines) => {
    const address = node(peer || '');
    if (address === undefined && !(socket && !peer)) {
      return undefined;
    }
    if (address !== undefined && !trusts(address)) {
      return address;
    }
    if (cut) {
      return walk(address, lines);
    }
    return (lines.length === 1 && node(trim(lines[0]))) || address;
  };
}

// Both cut the last entry off a list: its address, if it has one, and the list before it.

function listed(text) {
  const comma = text.lastIndexOf(',');
  return [node(trim(text.slice(comma + 1))), comma < 0 ? undefined : text.slice(0, comma)];
}

// It is read from the right end: an open quote that a client has written on the left must not swallow
// what the proxies have added.
function forwarded(text) {
  let quoted = false;
  let at = text.length - 1;
  for (; at >= 0; at--) {
    if (text[at] === '"' && !(quoted && /(^|[^\\])(\\\\)*\\$/.test(text.slice(0, at)))) {
      quoted = !quoted;
    } else if (text[at] === ',' && !quoted) {
      break;
    }
  }
  return [forwardedFor(trim(text.slice(at + 1))), at < 0 ? undefined : text.slice(0, at)];
}

// The address of an element's parameter for. One that breaks the grammar has none.
function forwardedFor(element) {
  let found;
  for (let rest = element; ;) {
    const equals = rest.indexOf('=');
    const name = rest.slice(0, equals).replace(/^[ \t]+/, '');
    if (equals < 0 || !TOKEN.test(name)) {
      return undefined;
    }
    rest = rest.slice(equals + 1);
    const value = rest.startsWith('"') ? /^"((?:[^"\\]|\\[^])*)"/.exec(rest) : FOR_VALUE.exec(rest);
    if (!value) {
      return undefined;
    }
    rest = rest.slice(value[0].length);
    if (name.toLowerCase() === 'for') {
      if (found !== undefined) {
        return undefined;
      }
      found = node(value[1] === undefined ? value[0] : value[1]); // An address needs no escapes.
      if (found === undefined) {
        return undefined;
      }
    }
    rest = rest.replace(/^[ \t]+/, '');
    if (rest === '') {
      return found;
    }
    if (!rest.startsWith(';')) {
      return undefined;
    }
    rest = rest.slice(1);
  }
}

/** The lines of a header among the rawHeaders of Node's request, each by itself. */
function linesOf(rawHeaders, name) {
  const lines = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i].length === name.length && rawHeaders[i].toLowerCase() === name) {
      lines.push(rawHeaders[i + 1]);
    }
  }
  return lines;
}

/**
 * The API key in the first header of `names` that has one: in Authorization behind Bearer. Several lines
 * are several keys, of which servers take one or another.
 */
function apiKey(rawHeaders, names) {
  const all = names.map((name) => linesOf(rawHeaders, name));
  names.forEach((name, i) => {
    if (all[i].length > 1) {
      throw new Unclear(`${name} is there ${all[i].length} times. Send it once.`);
    }
  });
  const keys = names.map((name, i) => (all[i].length === 0 ? '' : name === 'authorization' ? bearer(all[i][0]) : trim(all[i][0])));
  return keys.find((key) => key !== '') || '';
}

// The key is one word of visible ASCII, with spaces before it. Servers do not agree on which part of
// anything else is the key, so a client that knows one could pass for as many as it likes.
function bearer(line) {
  const [, before, scheme, rest] = /^([^!-~]*)([!-~]*)([^]*)$/.exec(line.replace(/[ \t]+$/, ''));
  if (scheme.toLowerCase() !== 'bearer' || rest === '') {
    return '';
  }
  const key = rest.replace(/^ +/, '');
  if (trim(before) !== '' || !/^[!-~]*$/.test(key)) {
    throw new Unclear('Authorization has more than one word behind its scheme, or something else than spaces before it.');
  }
  return key;
}

/** The host without its port, in one spelling. */
function hostname(text) {
  if (text === '') {
    return '';
  }
  const name = /^([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?(?::[0-9]*)?$/.exec(text);
  if (name) {
    return name[1].toLowerCase();
  }
  const literal = /^\[([0-9A-Fa-f:.]+)\](?::[0-9]*)?$/.exec(text);
  if (literal && net.isIPv6(literal[1])) {
    const address = canonical(literal[1]);
    return `[${net.isIPv4(address) ? `::ffff:${address}` : address}]`;
  }
  throw new Unclear('Its host is not a name or an address, with or without a port.');
}

module.exports = { Unclear, apiKey, hostname, linesOf, node, proxies };
