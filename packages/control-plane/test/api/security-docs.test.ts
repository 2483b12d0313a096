/**
 * Sends the requests of docs/security.md and compares the answers. `→` begins an answer: its status
 * and a part of its body. Each block has a control plane of its own with the project `shop`, which
 * has the variable LEVEL and the secret API_KEY.
 */
import { readFileSync } from 'node:fs';
import { ROLES } from '@berth/wire/vocabulary';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Api, createApi, createProject, PASSWORD } from './harness.ts';

const page = readFileSync(new URL('../../../../docs/security.md', import.meta.url), 'utf8');
const blocks = [...page.matchAll(/^```http\n([^]*?)^```$/gm)].map(([, block = '']) => block);

type Exchange = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  url: string;
  headers: Record<string, string>;
  payload: string | null;
  status: number;
  answer: unknown;
};
function exchangesOf(block: string): Exchange[] {
  const exchanges: Exchange[] = [];
  for (const line of block.trimEnd().split('\n')) {
    const request = /^([A-Z]+) (\/\S*)(?: (.*))?$/.exec(line);
    const answer = /^→ (\d+)(?: (.*))?$/.exec(line);
    const header = /^([\w-]+): (.*)$/.exec(line);
    const last = exchanges.at(-1);
    if (request !== null)
      exchanges.push({
        method: request[1] as Exchange['method'],
        url: request[2] ?? '',
        headers: {},
        payload: request[3] ?? null,
        status: 0,
        answer: {},
      });
    else if (answer !== null && last !== undefined) {
      last.status = Number(answer[1]);
      last.answer = JSON.parse(answer[2] ?? '{}') as unknown;
    } else if (header !== null && last !== undefined)
      last.headers[header[1] ?? ''] = header[2] ?? '';
    else throw new Error(`not a request, a header or an answer: ${line}`);
  }
  return exchanges;
}

async function startApi(): Promise<Api> {
  const api = await createApi();
  onTestFinished(() => api.close());
  const id = await createProject(api, { env: { LEVEL: 'info' } });
  const secret = await api.call('putSecret', {
    params: { id, name: 'API_KEY' },
    body: { value: 'the value that nobody may read' },
  });
  expect(secret.status).toBe(200);
  return api;
}

describe('docs/security.md shows the answers of the API', () => {
  test('in blocks with requests', () => {
    expect(blocks.length).toBeGreaterThan(15);
  });

  test.each(blocks.map((block) => [block.split('\n')[0], block] as const))(
    '%s',
    async (_, block) => {
      const api = await startApi();
      const filled = (text: string): string =>
        ROLES.reduce(
          (all, role) => all.replaceAll(`$${role.toUpperCase()}`, api.token(role)),
          text.replaceAll('$PASSWORD', PASSWORD),
        );
      for (const { method, url, headers, payload, status, answer } of exchangesOf(block)) {
        const reply = await api.server.inject({
          method,
          url,
          headers: {
            ...(payload === null ? {} : { 'content-type': 'application/json' }),
            ...Object.fromEntries(Object.entries(headers).map(([k, v]) => [k, filled(v)])),
          },
          ...(payload === null ? {} : { payload: filled(payload) }),
        });
        expect({ status: reply.statusCode, answer: reply.json<unknown>() }).toMatchObject({
          status,
          answer,
        });
      }
    },
  );
});
