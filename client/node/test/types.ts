// What programs in TypeScript write. It is compiled, not run.
import { createServer } from 'node:http';
import express, { type Request } from 'express';
import fastify, { type FastifyRequest } from 'fastify';
import { Client, PermitLostError, UnavailableError, fastifyLimit, limit, type LimitOptions, type Verdict } from '..';

interface User {
  id: string;
  tier?: 'free' | 'pro';
}

const app = express();
const client = new Client({ url: 'http://127.0.0.1:8080', timeout: 100 });

app.use(limit());
app.use(limit({ url: 'http://127.0.0.1:8080', onNoAnswer: 'deny' }));
app.post(
  '/token/:id',
  limit({
    client,
    cost: (req: Request) => (req.method === 'POST' ? 2 : 1),
    entries: async (req: Request & { user?: User }) => ({ user: req.user?.id, tier: req.user?.tier }),
    onDenied: (_req, res, verdict) => {
      res.status(429).send(verdict.problem?.detail);
    },
    onFailure: (err) => console.error(err.status, err.message),
  }),
  (_req, res) => {
    const verdict: Verdict = res.locals.headgate;
    res.json(verdict.decisions.map((d) => d.remaining));
  },
);

const options: LimitOptions<FastifyRequest> = { client, trust: ['10.0.0.0/8'], source: 'forwarded', entries: (request) => ({ tenant: request.hostname }) };
fastify().register(fastifyLimit, options);

const limited = limit({ client, route: (req) => `${req.method} ${req.url}` });
createServer((req, res) => limited(req, res, () => res.end('ok')));

export async function once(): Promise<number | undefined> {
  try {
    const verdict = await client.check({ checks: [{ rule: 'mail', key: 'user42' }] });
    if (verdict.denied_by && 'rule' in verdict.denied_by) {
      return verdict.denied_by.rule.length;
    }
    await client.refund({ checks: [{ rule: 'mail', key: 'user42' }], at: verdict.at });
    return verdict.retry_after_ms;
  } catch (err) {
    if (err instanceof UnavailableError) {
      return err.status;
    }
    throw err;
  }
}

export async function report(): Promise<boolean> {
  const patient = new Client({ onNoAnswer: 'allow', retry: { tries: 5, budget: 0.2 } });
  await patient.check({ checks: [{ rule: 'mail', key: 'user42' }], id: 'order-8812' });
  const permit = await patient.acquire({ rule: 'report', key: 'tenant7', wait: 5000, signal: AbortSignal.timeout(9000) });
  if (!permit.allowed) {
    return permit.retry_after_ms > 0;
  }
  try {
    await fetch('http://127.0.0.1:1/', { signal: permit.signal });
  } finally {
    await permit.release();
  }
  return permit.lost || permit.signal.reason instanceof PermitLostError;
}

// @ts-expect-error a permit is of a rule
client.acquire({ key: 'tenant7' });
// @ts-expect-error a word that is no option
limit({ limits: 5 });
// @ts-expect-error calls of a middleware are not repeated
limit({ retry: { tries: 5 } });
// @ts-expect-error a middleware answers every request
limit({ onNoAnswer: 'throw' });
// @ts-expect-error there is no such way to fail
limit({ onNoAnswer: 'open' });
// @ts-expect-error neither a descriptor nor checks
client.check({});

export async function answer(words: () => Promise<number>): Promise<number> {
  const { allowed, reservation, retry_after_ms } = await client.reserve({ descriptor: { user: 'ada' }, cost: 800, id: 'order-8812', lifetime_ms: 60_000 });
  if (!allowed || reservation === undefined) {
    return retry_after_ms;
  }
  try {
    const standing = await client.settle({ reservation, cost: await words() });
    return standing.decisions.length;
  } catch (err) {
    await client.cancel(reservation);
    throw err;
  }
}

// @ts-expect-error neither a cost nor a status
client.settle({ reservation: 'r' });
