import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from 'headgate';

const url = process.env.HEADGATE_URL ?? 'http://127.0.0.1:8080';

async function advance(by) {
  const headers = { authorization: `Bearer ${process.env.HEADGATE_ADMIN_TOKEN}` };
  const answer = await fetch(`${url}/v1/clock`, { method: 'POST', headers, body: JSON.stringify({ advance: by }) });
  assert.ok(answer.ok, await answer.text());
}

test('the sixth attempt is denied', async () => {
  await advance('15m'); // whatever came before is over
  const client = new Client({ url, timeout: 30_000 });
  const attempt = () => client.check({ checks: [{ rule: 'login-user', key: 'grace' }] });
  for (let i = 0; i < 5; i++) {
    assert.equal((await attempt()).allowed, true);
  }
  assert.equal((await attempt()).retry_after_ms, 15 * 60 * 1000);
  await advance('15m');
  assert.equal((await attempt()).allowed, true);
});
