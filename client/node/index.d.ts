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
  /** What a client is to be answered with: 200, 429, or 403 for the deny list. */
  status: 200 | 403 | 429;
  /** The headers that a client is to get, by their names in lower case. */
  headers: Record<string, string>;
  /** The body that a client is to get, unless allowed. */
  problem?: Problem;
}

export interface ClientOptions {
  /** Where the service is. The default is http://127.0.0.1:8080. */
  url?: string;
  /** How long an answer may take, in milliseconds: 1 to 60000. The default is 1000. */
  timeout?: number;
  /** What requests are sent with. The default is the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** A client of the HTTP API. Connections are kept and used again. */
export class Client {
  constructor(options?: ClientOptions);
  /** Takes units, from every limit that binds the request or from none. A denial is an answer, not an error. */
  check(request: CheckRequest): Promise<Verdict>;
  /** Says what check would say, and takes nothing. */
  peek(request: CheckRequest): Promise<Verdict>;
  /** Gives back what a check took at the time that its verdict names as `at`. */
  refund(request: CheckRequest & { at?: number }): Promise<Omit<Verdict, 'status' | 'headers' | 'problem'>>;
  /** Forgets what was used. */
  reset(request: CheckRequest): Promise<{ reset: string[] }>;
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
export class UnavailableError extends HeadgateError {}

/** What the middleware needs of a request of Express. */
export interface LimitedRequest extends IncomingMessage {
  path: string;
  baseUrl: string;
  ip?: string;
}

/** What the middleware needs of a response of Express. */
export interface LimitedResponse extends ServerResponse {
  locals: Record<string, any>;
}

export interface LimitOptions<Req extends LimitedRequest = any, Res extends LimitedResponse = any> extends ClientOptions {
  /** A client that there is already, instead of url, timeout and fetch. */
  client?: Client;
  /** The headers with an API key, the first that has one. In Authorization it follows the word Bearer; a request with several words behind that is answered with 400. The default is Authorization, then X-Api-Key. */
  apiKeyHeaders?: string[];
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
  /** Is told of each error: the service does not answer, or it did not understand. */
  onFailure?: (err: HeadgateError, req: Req) => void;
}

export type Entries = Record<string, string | number | boolean | null | undefined>;

/**
 * An Express middleware that lets through what a Headgate service admits. The
 * verdict is left in res.locals.headgate.
 */
export function limit<Req extends LimitedRequest = any, Res extends LimitedResponse = any>(
  options?: LimitOptions<Req, Res>,
): (req: Req, res: Res, next: (err?: any) => void) => void;
