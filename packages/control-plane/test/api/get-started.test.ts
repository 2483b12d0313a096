/**
 * Sends the requests of docs/get-started.md in their order. Only names, the password and ids are
 * replaced.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, createApi, PASSWORD } from './harness.ts';

const page = readFileSync(new URL('../../../../docs/get-started.md', import.meta.url), 'utf8');
const commands = page
  .replaceAll(/\\\n\s*/g, '')
  .split('\n')
  .filter((line) => line.includes('https://berth.example.com/api/'));

type Curl = {
  method: 'GET' | 'POST';
  url: string;
  headers: Record<string, string>;
  payload?: string;
};
function read(command: string): Curl {
  const payload = /-d '([^']+)'/.exec(command)?.[1];
  const headers = [...command.matchAll(/-H (['"])([^:]+): (.+?)\1/g)].map(
    ([, , name = '', value = '']) => [name.toLowerCase(), value],
  );
  return {
    method: payload !== undefined || command.includes('-X POST') ? 'POST' : 'GET',
    url: /https:\/\/berth\.example\.com(\S+)/.exec(command)?.[1] ?? '',
    headers: Object.fromEntries(headers) as Record<string, string>,
    ...(payload === undefined ? {} : { payload }),
  };
}

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

test('the requests of docs/get-started.md sign in, create a project, deploy it and follow it', async () => {
  const [login, create, deploy, log, look] = commands.map(read);
  let token = '';
  let id = '';
  const send = async (request: Curl | undefined) => {
    if (request === undefined) throw new Error('the page has fewer requests');
    const filled = (text: string): string =>
      text
        .replaceAll('ID', id)
        .replace('you@example.com', 'admin@example.com')
        .replace('…', PASSWORD)
        // Last: a token can contain the letters of another placeholder.
        .replaceAll('$TOKEN', token);
    const { method, url, headers, payload } = request;
    return api.server.inject({
      method,
      url: filled(url),
      headers: Object.fromEntries(
        Object.entries(headers).map(([name, value]) => [name, filled(value)]),
      ),
      ...(payload === undefined ? {} : { payload: filled(payload) }),
    });
  };

  const signedIn = await send(login);
  expect(signedIn.statusCode).toBe(200);
  token = signedIn.json<{ token: string }>().token;
  expect((await send(create)).json()).toMatchObject({
    name: 'shop',
    url: expect.stringContaining('//shop.') as string,
  });
  const deployment = (await send(deploy)).json<{ id: string; status: string }>();
  expect(deployment.status).toBe('pending');
  id = deployment.id;
  expect((await send(look)).json()).toMatchObject({ id, status: 'pending' });
  expect(log).toMatchObject({
    method: 'GET',
    url: '/api/deployments/ID/logs',
    headers: { accept: 'text/event-stream' },
  });
  await api.call('cancelDeployment', { params: { id } });
  expect((await send(log)).headers['content-type']).toContain('text/event-stream');
});
