import type { IncomingMessage, ServerResponse } from 'node:http';

/** What is asked: facts about a request, of which the policy finds the rules. */
export interface DescriptorRequest {
  descriptor: Record<string, string>;
  /** How many units the request takes: a whole number from 1. The default is 1. */
  cost?: number;
}

/** What is asked by a caller that knows the rules and the keys. All are charged, or none. */
export interface ChecksRequest {
  checks: Array<{ rule: string; key: string; cost?: number }>;
}

export type CheckRequest = DescriptorRequest | ChecksRequest;

/** What makes a check one that may be repeated. */
export interface Repeatable {
  /** The service remembers the request by it, and charges it once. */
  id?: string;
  /** For how long, in milliseconds; a minute if it is left out. */
  lifetime_ms?: number;
}

/** The state of one limit. Times are whole milliseconds, rounded up. */
export interface Decision {
  rule: string;
  limit: string;
  algorithm: string;
  allowed: boolean;
  /** The rule counts and never denies. */
  shadow?: boolean;
  /** So much of the limit is used that its rule warns. */
  soft?: boolean;
  capacity: number;
  period_ms: number;
  remaining: number;
  /** -1 if the cost can never fit. */
  retry_after_ms: number;
  reset_after_ms: number;
  /** Who decided, unless it was the store. */
  source?: string;
}

/** A problem document (RFC 9457). */
export interface Problem {
  type?: string;
  title: string;
  status: number;
  detail?: string;
  'violated-policies'?: string[];
  retry_after_ms?: number;
}

/** The outcome for a whole request. */
export interface Verdict {
  allowed: boolean;
  /** The limit that decided a denial, or the entry of the deny list. */
  denied_by?: { rule: string; limit: string } | { list: string };
  /** Until the request fits; 0 if it does, -1 if it never will. */
  retry_after_ms: number;
  /** How long to hold an admitted request, for a leaky bucket. */
  delay_ms: number;
  /** When the units were charged, for a refund: microseconds since 1970. */
  at?: number;
  decisions: Decision[];
  /** What to settle or cancel, if something was reserved. */
  reservation?: string;
  /** How long it can be settled. */
  expires_in_ms?: number;
  /** What a client is to be answered with: 200, 429, 403 for the deny list, or 503 for a denial without a decision. */
  status: 200 | 403 | 429 | 503;
  /** The headers that a client is to get, by their names in lower case. */
  headers: Record<string, string>;
  /** The body that a client is to get, unless allowed. */
  problem?: Problem;
  /** Why there is no decision, if onNoAnswer has decided. */
  error?: UnavailableError;
}

/** The end of work that was reserved: what it did cost, or the status that it ended with, or both. */
export type Settlement = { reservation: string } & ({ cost: number; status?: number } | { cost?: number; status: number });

/** Where the limits stand, after units were given back or settled. */
export type Standing = Omit<Verdict, 'status' | 'headers' | 'problem' | 'error'>;

export interface ClientOptions {
  /** Where the service is: http://host:port, https://host:port, or over Redis's protocol, which is the quickest, redis://:token@host:port, or rediss:// for TLS. The default is http://127.0.0.1:8080. */
  url?: string;
  /** How long an answer may take, in milliseconds: 1 to 60000. The default is 1000. */
  timeout?: number;
  /** What becomes of check, peek, reserve and acquire while the service does not answer: an UnavailableError (the default), or an answer without a decision. */
  onNoAnswer?: 'throw' | 'allow' | 'deny';
  /** What tls.connect is given besides, such as ca, cert and key, where the url begins with https or rediss. */
  tls?: import('node:tls').ConnectionOptions;
  /** What requests are sent with over HTTP instead of the client's own connections, which are faster: for a proxy or for tracing. */
  fetch?: typeof globalThis.fetch;
  /** How calls are repeated that may be. */
  retry?: RetryOptions;
}

/**
 * How calls without an answer are repeated. Only those are that take nothing twice: peek,
 * reset, a check with an id, and all about permits. Times are milliseconds.
 */
export interface RetryOptions {
  /** How many attempts a call has: 1 to 10. The default is 3. */
  tries?: number;
  /** The longest wait before the first retry, of which a random part is waited; it doubles with each. The default is 100. */
  backoff?: number;
  /** The longest wait before any retry, unless the service asks for more. The default is 10000. */
  maxBackoff?: number;
  /** How long a call may wait in all between its attempts. The default is 10000. */
  maxWait?: number;
  /** Retries as a share of calls, 0 to 1. The default is 0.1. */
  budget?: number;
  /** How many retries there may be besides. The default is 10. */
  floor?: number;
}

/** Which permit, and how long to wait for it. Times are milliseconds. */
export interface AcquireRequest {
  rule: string;
  /** As in a check; '' for a rule that counts all together, which is the default. */
  key?: string;
  cost?: number;
  /** For how long the permit lasts without being renewed: at most the rule's ttl, which is the default. */
  ttl?: number;
  /** How long to wait while no permit is free, if the rule has a wait: up to 600000. The default is 0. */
  wait?: number;
  /** Ends the wait. */
  signal?: AbortSignal;
  /** A name that was never used before. By default one is made up. */
  holder?: string;
}

/** A permit, which is renewed until it is released or lost; or the answer that there is none. */
export class Permit {
  /** The work may begin. */
  readonly allowed: boolean;
  /** The rule only measures: no permit was free. */
  readonly shadow: boolean;
  readonly holder: string;
  /** The fence, for resources that refuse who has lost its permit. Undefined without a permit. */
  readonly epoch?: number;
  readonly slots?: number[];
  readonly in_use: number;
  readonly limit: number;
  /** When to ask again; 0 if allowed. */
  readonly retry_after_ms: number;
  /** Ends, with a PermitLostError as its reason, when the permit is lost, before others can have it. */
  readonly signal: AbortSignal;
  /** Whether the permit was lost, by the clock. */
  readonly lost: boolean;
  /** Gives the permit back; true if the service has heard it. Otherwise the permit ends by itself. */
  release(): Promise<boolean>;
}

/** The permit was lost while the work went on. */
export class PermitLostError extends Error {
  readonly why: string;
}

/** A client of the HTTP API, over HTTP or over Redis's protocol. Connections are kept and used again. */
export class Client {
  constructor(options?: ClientOptions);
  /**
   * Takes units, from every limit that binds the request or from none. A denial is an answer,
   * not an error. It is repeated only if it has an id.
   *
   * With outcome, a request is reserved if a rule that binds it charges by how the work ends
   * (charge_on, give_back_on): then the verdict has a reservation, to settle with the status.
   */
  check(request: CheckRequest & Repeatable, options?: { outcome?: boolean }): Promise<Verdict>;
  /** Says what check would say, and takes nothing. */
  peek(request: CheckRequest): Promise<Verdict>;
  /** Gives back what a check took at the time that its verdict names as `at`. */
  refund(request: CheckRequest & { at?: number }): Promise<Standing>;
  /** Forgets what was used. */
  reset(request: CheckRequest): Promise<{ reset: string[] }>;
  /** Takes units for work whose cost is an estimate, which is to be settled or cancelled. It is repeated only if it has an id. */
  reserve(request: CheckRequest & Repeatable): Promise<Verdict>;
  /** Charges a reservation what the work did cost, or what its status is charged by the rules. */
  settle(settlement: Settlement): Promise<Standing>;
  /** Gives all of a reservation back. */
  cancel(reservation: string): Promise<Standing>;
  /** Says which rules bind a request and why, for people. */
  explain(request: DescriptorRequest): Promise<Record<string, any>>;
  /** Takes a permit of a rule that bounds what is in progress, and renews it. */
  acquire(request: AcquireRequest): Promise<Permit>;
}

/** The service has answered that it will not do what it was asked. */
export class HeadgateError extends Error {
  /** The status of the answer; 0 if there was none. */
  readonly status: number;
  readonly problem?: Problem & { errors?: Array<{ field: string; detail: string }> };
}

/**
 * There is no decision. Either the service does not answer (status 0), or it does
 * with 503, because its store does not and it was told to let nothing pass then. The
 * request may have been charged: it must not be repeated blindly.
 */
export class UnavailableError extends HeadgateError {
  /** When the service has asked to come back; 0 if it has not said. */
  readonly retry_after_ms: number;
  /** The answer was marked as one that is not to be retried. */
  readonly final: boolean;
}

/** A request of Express, or of Node.js. */
export type LimitedRequest = IncomingMessage & { ip?: string };

/** A response of Express, or of Node.js. */
export type LimitedResponse = ServerResponse & { locals?: Record<string, any> };

export interface LimitOptions<Req = any, Res = any> extends Omit<ClientOptions, 'onNoAnswer' | 'retry'> {
  /** A client that there is already, instead of url, timeout, tls and fetch. */
  client?: Client;
  /** The headers with an API key, the first that has one. In Authorization it follows the word Bearer; a request with several words behind that is answered with 400. The default is Authorization, then X-Api-Key. */
  apiKeyHeaders?: string[];
  /** The proxies that are believed when they name the client: prefixes ('10.0.0.0/8'), addresses ('::1'), or 'unix' for peers on a Unix socket. The default is what the framework says: its own setting, or else the peer. */
  trust?: string[];
  /** The header in which they name it: x-forwarded-for (the default), forwarded, or one with a single address, such as x-real-ip. */
  source?: string;
  /** More entries of the descriptor, such as the user and the tier. Undefined and '' are none. */
  entries?: (req: Req) => Entries | Promise<Entries>;
  /** The entry route. The default is the method and the pattern of the route that serves the request, "GET /items/:id". */
  route?: string | ((req: Req) => string);
  /** How many units a request takes; 0 is a request that is not limited. The default is 1. */
  cost?: number | ((req: Req) => number | Promise<number>);
  /** What becomes of requests while the service does not answer. The default is allow. */
  onNoAnswer?: 'allow' | 'deny';
  /** How long at most a request is held for a leaky bucket, in milliseconds. The default is 30000. */
  maxDelay?: number;
  /** Answers a denied request instead of the problem document. The headers are set. */
  onDenied?: (req: Req, res: Res, verdict: Verdict) => void | Promise<void>;
  /** Is told of each error: the service does not answer, or it did not understand. The default is a warning of the process, once a second at most. */
  onFailure?: (err: HeadgateError, req: Req) => void;
}

export type Entries = Record<string, string | number | boolean | null | undefined>;

/**
 * A middleware for Express, and for anything that calls one with (req, res, next), that lets through
 * what a Headgate service admits. The verdict is left in res.locals.headgate.
 */
export function limit<Req extends LimitedRequest = any, Res extends LimitedResponse = any>(
  options?: LimitOptions<Req, Res>,
): (req: Req, res: Res, next: (err?: any) => void) => void;

/** A plugin for Fastify, as app.register(fastifyLimit, options). The verdict is left in request.headgate. */
export function fastifyLimit(app: any, options: LimitOptions, done: (err?: Error) => void): void;
