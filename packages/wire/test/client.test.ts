import http, { type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ApiError, createClient, pathOf, UnreachableError } from '../src/client.ts';
import { ROUTES } from '../src/routes.ts';

type Seen = { req: IncomingMessage; body: string };
async function server(listener: RequestListener): Promise<{ url: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const s = http.createServer((req, res) => {
    let body = '';
    req.setEncoding('utf8').on('data', (text: string) => (body += text));
    req.on('end', () => {
      seen.push({ req, body });
      listener(req, res);
    });
  });
  await new Promise<void>((resolve) => s.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    s.closeAllConnections();
    await new Promise((resolve) => s.close(resolve));
  });
  return { url: `http://127.0.0.1:${(s.address() as AddressInfo).port}`, seen };
}
const answering = (
  status: number,
  body: string,
  headers: Record<string, string> = {},
): ReturnType<typeof server> => server((_, res) => res.writeHead(status, headers).end(body));
const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error,
  );

describe('pathOf', () => {
  test('escapes params and query, and omits undefined values', () => {
    expect(pathOf(ROUTES.getProject, { id: 'a/b?c' })).toBe('/api/projects/a%2Fb%3Fc');
    expect(
      pathOf(ROUTES.listDeployments, {}, { project_id: 'p 1', status: undefined, limit: 5 }),
    ).toBe('/api/deployments?project_id=p+1&limit=5');
    expect(pathOf(ROUTES.deleteNode, { id: 'n' }, { force: false })).toBe(
      '/api/nodes/n?force=false',
    );
  });
});

describe('call', () => {
  test('sends method, path, headers and body, and returns the answer', async () => {
    const { url, seen } = await answering(201, '{"id":"d1"}');
    const client = createClient({
      baseUrl: `${url}/`,
      headers: () => ({ authorization: 'Bearer x' }),
    });
    const answer = await client.call('createDeployment', {
      params: { id: 'p1' },
      body: { note: 'ä' },
      headers: { 'idempotency-key': 'k' },
    });
    expect(answer).toEqual({ id: 'd1' });
    expect(seen[0]?.req).toMatchObject({ method: 'POST', url: '/api/projects/p1/deployments' });
    expect(seen[0]?.req.headers).toMatchObject({
      authorization: 'Bearer x',
      'idempotency-key': 'k',
      'content-type': 'application/json',
      accept: 'application/json',
    });
    expect(seen[0]?.body).toBe('{"note":"ä"}');
  });

  test('sends no content-type without a body', async () => {
    const { url, seen } = await answering(200, '{}');
    await createClient({ baseUrl: url }).call('me', {});
    expect(seen[0]?.req.headers).not.toHaveProperty('content-type');
  });

  test('exchange returns status and ETag; a 304 has no answer', async () => {
    const { url } = await server((req, res) =>
      req.headers['if-none-match'] === '"1"'
        ? res.writeHead(304, { etag: '"1"' }).end()
        : res.writeHead(200, { etag: '"1"' }).end('[]'),
    );
    const client = createClient({ baseUrl: url });
    const input = { query: { node_id: 'n', wait: 1 } };
    expect(await client.exchange('agentTasks', input)).toMatchObject({
      status: 200,
      etag: '"1"',
      answer: [],
    });
    expect(
      await client.exchange('agentTasks', { ...input, headers: { 'if-none-match': '"1"' } }),
    ).toMatchObject({
      status: 304,
      etag: '"1"',
      answer: null,
    });
  });
});

describe('errors', () => {
  const problem = {
    type: 'about:blank',
    title: 'Some fields are invalid',
    status: 422,
    detail: 'name is no label',
    code: 'validation',
    errors: [{ field: 'name', rule: 'pattern', message: 'x' }],
  };

  test('ApiError has the code and the detail of the problem document', async () => {
    const { url } = await answering(422, JSON.stringify(problem), {
      'content-type': 'application/problem+json',
    });
    const error = await failureOf(createClient({ baseUrl: url }).call('me', {}));
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({
      status: 422,
      code: 'validation',
      message: 'name is no label',
      problem,
    });
  });

  test.each([
    ['a page of a proxy', 502, '<html>Bad Gateway</html>', '<html>Bad Gateway</html>'],
    ['JSON without a code', 401, '{"error":"no"}', '{"error":"no"}'],
    ['JSON that is not an object', 400, 'null', 'null'],
    ['JSON with a code that is not text', 500, '{"code":7}', '{"code":7}'],
    ['an empty body', 503, '', 'HTTP 503'],
    ['a very long body', 500, 'x'.repeat(10_000), 'x'.repeat(300)],
  ])(
    'ApiError has the HTTP status if the body is no problem document: %s',
    async (_, status, body, message) => {
      const { url } = await answering(status, body);
      expect(await failureOf(createClient({ baseUrl: url }).call('me', {}))).toMatchObject({
        name: 'ApiError',
        status,
        code: `http_${status}`,
        message,
        problem: null,
      });
    },
  );

  test('uses the title of a problem document that has no detail', async () => {
    const { url } = await answering(409, JSON.stringify({ code: 'wrong_state', title: 'Not now' }));
    const error = (await failureOf(createClient({ baseUrl: url }).call('me', {}))) as ApiError;
    expect([error.code, error.message]).toEqual(['wrong_state', 'Not now']);
  });

  test.each([
    ['closed port', 'http://127.0.0.1:1', /ECONNREFUSED|bad port/],
    ['unknown host', 'http://berth.invalid', /ENOTFOUND|EAI_AGAIN/],
  ])('throws UnreachableError with the cause: %s', async (_, baseUrl, why) => {
    const error = await failureOf(createClient({ baseUrl }).call('me', {}));
    expect(error).toBeInstanceOf(UnreachableError);
    expect((error as Error).message).toMatch(why);
    expect((error as Error).message).toContain(`GET ${baseUrl}/api/auth/me`);
  });

  test('throws UnreachableError if the connection breaks during the headers or the body', async () => {
    const early = await server((_, res) => res.socket?.destroy());
    const late = await server((_, res) => {
      res.writeHead(200, { 'content-length': '100' }).write('{');
      setImmediate(() => res.socket?.destroy());
    });
    for (const { url } of [early, late])
      expect(await failureOf(createClient({ baseUrl: url }).call('me', {}))).toBeInstanceOf(
        UnreachableError,
      );
  });

  test('throws UnreachableError if a 200 is not JSON', async () => {
    const { url } = await answering(200, '<html>');
    const error = await failureOf(createClient({ baseUrl: url }).call('me', {}));
    expect(error).toBeInstanceOf(UnreachableError);
    expect((error as Error).message).toContain('not JSON');
  });

  test('throws UnreachableError if headers or body do not arrive in time', async () => {
    const mute = await server(() => undefined);
    const slow = await server((_, res) => void res.writeHead(200).write('{'));
    for (const { url } of [mute, slow]) {
      const error = await failureOf(createClient({ baseUrl: url }).call('me', { timeoutMs: 50 }));
      expect(error).toBeInstanceOf(UnreachableError);
      expect((error as Error).message).toMatch(/timeout|timed out/i);
    }
  });

  test('an abort before or during the call throws the reason of the caller', async () => {
    const { url } = await server(() => undefined);
    const client = createClient({ baseUrl: url });
    const reason = new Error('shutting down');
    expect(await failureOf(client.call('me', { signal: AbortSignal.abort(reason) }))).toBe(reason);
    const abort = new AbortController();
    const failed = failureOf(client.call('me', { signal: abort.signal }));
    abort.abort(reason);
    expect(await failed).toBe(reason);
  });
});
