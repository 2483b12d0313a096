import http, { type IncomingMessage } from 'node:http';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { ask, backend, HOST, named, project, startProxy } from './support.ts';

const merge = (
  ...parts: { routers: object; services: object; middlewares?: object }[]
): object => ({
  routers: Object.assign({}, ...parts.map((p) => p.routers)),
  services: Object.assign({}, ...parts.map((p) => p.services)),
  middlewares: Object.assign({}, ...parts.map((p) => p.middlewares ?? {})),
});
const chunks = (response: IncomingMessage): AsyncIterator<string> =>
  response.setEncoding('utf8')[Symbol.asyncIterator]() as AsyncIterator<string>;
const open = (port: number, host: string, path: string): Promise<IncomingMessage> =>
  new Promise((resolve, reject) =>
    http
      .get({ host: '127.0.0.1', port, path, agent: false, headers: { host } }, resolve)
      .on('error', reject),
  );

/** Returns a port of loopback that refuses connections. */
async function closedPort(): Promise<number> {
  const closed = net.createServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  const { port } = closed.address() as net.AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  return port;
}

describe('requests', () => {
  test('method, path, query, headers, body and answer are forwarded unchanged', async () => {
    const app = await backend((req, res) => {
      const body: Buffer[] = [];
      req.on('data', (chunk: Buffer) => body.push(chunk));
      req.on('end', () => {
        res.writeHead(201, 'Made It', {
          'set-cookie': ['a=1', 'b=2'],
          'x-app': 'yes',
          'content-type': 'application/json',
        });
        res.end(
          JSON.stringify({
            method: req.method,
            url: req.url,
            host: req.headers.host,
            x: req.headers['x-mine'],
            body: Buffer.concat(body).toString(),
          }),
        );
      });
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const got = await ask(proxy.port, HOST, '/a/../b//c%2Fd?x=1&x=2?&empty=', {
      method: 'PUT',
      body: 'hello',
      headers: { 'x-mine': 'm' },
    });
    expect(got).toMatchObject({
      status: 201,
      headers: { 'set-cookie': ['a=1', 'b=2'], 'x-app': 'yes' },
    });
    expect(JSON.parse(got.body)).toEqual({
      method: 'PUT',
      url: '/a/../b//c%2Fd?x=1&x=2?&empty=',
      host: HOST,
      x: 'm',
      body: 'hello',
    });
  });

  test('large bodies and large headers pass', async () => {
    const app = await backend((req, res) => {
      let size = 0;
      req.on('data', (chunk: Buffer) => {
        size += chunk.length;
      });
      req.on('end', () => res.end(`${size} ${req.headers['x-big']?.length}`));
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const got = await ask(proxy.port, HOST, '/', {
      method: 'POST',
      body: 'x'.repeat(5_000_000),
      headers: { 'x-big': 'y'.repeat(100_000) },
    });
    expect(got.body).toBe('5000000 100000');
  });

  test('the host matches without port, case and trailing dot; any other host gets 404', async () => {
    const app = await named('app');
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    for (const host of [HOST, `${HOST}:${proxy.port}`, HOST.toUpperCase(), `${HOST}.`])
      expect(await ask(proxy.port, host), host).toMatchObject({ status: 200, body: 'app' });
    expect(await ask(proxy.port, 'other.berth.localhost')).toMatchObject({ status: 404 });
    const page = await ask(proxy.port, 'other.berth.localhost', '/', {
      headers: { accept: 'text/html' },
    });
    expect(page.headers['content-type']).toContain('text/html');
  });

  test('an answer streams: headers before the first byte, then each part as it arrives', async () => {
    let write: (text: string) => void = () => undefined;
    const app = await backend((_, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      write = (text) => void res.write(text);
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    // The promise resolves with the headers, before the backend has written a body.
    const response = await open(proxy.port, HOST, '/events');
    expect(response.headers['content-type']).toBe('text/event-stream');
    const parts = chunks(response);
    for (const text of ['data: 1\n\n', 'data: 2\n\n']) {
      write(text);
      expect((await parts.next()).value).toBe(text);
    }
    response.destroy();
  });

  test('the backend sees when the client disconnects', async () => {
    const gone = Promise.withResolvers<void>();
    const app = await backend((_, res) => {
      res.on('close', () => gone.resolve());
      res.writeHead(200).flushHeaders();
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    (await open(proxy.port, HOST, '/')).destroy();
    await gone.promise;
  });

  test('if a backend breaks off, the client’s answer breaks off too, so that half a file does not look complete', async () => {
    const app = await backend((_, res) => {
      res.write('half');
      setImmediate(() => res.destroy());
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    await expect(ask(proxy.port, HOST)).rejects.toThrow(/aborted|reset|hang up/);
  });

  test('a backend that is down gives 502, a service without servers gives 503', async () => {
    const port = await closedPort();
    const proxy = await startProxy();
    proxy.useHttp(
      merge(project('shop', `http://127.0.0.1:${port}`), {
        routers: { none: { rule: 'Host(`none`)', service: 'none' } },
        services: { none: { loadBalancer: { servers: [] } } },
      }),
    );
    const got = await ask(proxy.port, HOST);
    expect(got.status).toBe(502);
    expect(got.body).not.toContain('127.0.0.1');
    expect(await ask(proxy.port, 'none')).toMatchObject({ status: 503 });
  });

  test('several servers take turns', async () => {
    const [a, b] = [await named('a'), await named('b')];
    const proxy = await startProxy();
    proxy.useHttp({
      routers: { r: { rule: 'Host(`x`)', service: 's' } },
      services: { s: { loadBalancer: { servers: [{ url: a.url }, { url: b.url }] } } },
    });
    const bodies = new Set([(await ask(proxy.port, 'x')).body, (await ask(proxy.port, 'x')).body]);
    expect([...bodies].sort()).toEqual(['a', 'b']);
  });

  describe('one of two servers refuses the connection', () => {
    const twoServers = async () => {
      const app = await named('alive');
      const proxy = await startProxy();
      const servers = [{ url: `http://127.0.0.1:${await closedPort()}` }, { url: app.url }];
      proxy.useHttp({
        routers: { r: { rule: 'Host(`x`)', service: 's_alive', middlewares: ['again'] } },
        services: {
          s: { loadBalancer: { servers } },
          s_alive: { failover: { service: 's', fallback: 's_all' } },
        },
        middlewares: { again: { retry: { attempts: 6 } } },
      });
      return {
        app,
        send: (method: string, body = '') => ask(proxy.port, 'x', '/', { method, body }),
      };
    };
    test('a GET goes to the other one', async () => {
      const { send } = await twoServers();
      for (let i = 0; i < 4; i += 1)
        expect(await send('GET')).toMatchObject({ status: 200, body: 'alive' });
    });
    test('a POST fails, and the other server does not get it', async () => {
      const { app, send } = await twoServers();
      const statuses = [(await send('POST', 'x')).status, (await send('POST', 'x')).status];
      expect(new Set(statuses)).toEqual(new Set([200, 502]));
      expect(app.requests).toHaveLength(1);
    });
  });

  test('a kept-alive connection that the backend has just closed causes no error', async () => {
    // Closes each connection after its first answer without an announcement, so the next request on
    // it is reset.
    let connections = 0;
    const app = net.createServer((socket) => {
      connections += 1;
      let answered = false;
      socket.on('error', () => undefined);
      socket.on('data', () => {
        if (answered) return void socket.resetAndDestroy();
        answered = true;
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok');
      });
    });
    await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void app.close());
    const proxy = await startProxy();
    proxy.useHttp(project('shop', `http://127.0.0.1:${(app.address() as net.AddressInfo).port}`));
    for (let i = 0; i < 5; i += 1)
      expect(await ask(proxy.port, HOST)).toMatchObject({ status: 200, body: 'ok' });
    // A request that cannot be repeated never uses a kept-alive connection.
    expect(await ask(proxy.port, HOST, '/', { method: 'POST', body: 'once' })).toMatchObject({
      status: 200,
    });
    expect(connections).toBeGreaterThan(2);
  });
});

describe('headers', () => {
  test('the entry point replaces its headers from the client and does not forward hop-by-hop headers', async () => {
    const app = await backend((req, res) =>
      res.writeHead(200, { 'keep-alive': 'timeout=1' }).end(JSON.stringify(req.headers)),
    );
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const forged = {
      'x-forwarded-for': '6.6.6.6',
      'x-forwarded-host': 'evil',
      'x-forwarded-proto': 'https',
      'x-forwarded-uri': '/evil',
      'x-forwarded-method': 'PUT',
      'x-real-ip': '6.6.6.6',
    };
    const got = await ask(proxy.port, `${HOST}:8000`, '/', {
      headers: {
        ...forged,
        connection: 'keep-alive, x-secret',
        'x-secret': 's',
        te: 'trailers',
        'proxy-connection': 'x',
      },
    });
    const seen = JSON.parse(got.body) as Record<string, string>;
    expect(seen).toMatchObject({
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-host': `${HOST}:8000`,
      'x-forwarded-port': '8000',
      'x-forwarded-proto': 'http',
      'x-real-ip': '127.0.0.1',
    });
    for (const name of [
      'x-forwarded-uri',
      'x-forwarded-method',
      'x-secret',
      'te',
      'proxy-connection',
    ])
      expect(seen, name).not.toHaveProperty(name);
    expect(JSON.stringify(seen)).not.toContain('6.6.6.6');
  });

  test('a header whose name is an alias of another one reaches neither the rules nor the application', async () => {
    const app = await backend((req, res) => res.end(JSON.stringify(req.headers)));
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const aliases = Object.fromEntries(
      "_.!#$%&'*+^`|~".split('').map((separator) => [`x${separator}forwarded-user`, 'mallory']),
    );
    const got = await ask(proxy.port, HOST, '/', { headers: { ...aliases, 'x-other': 'stays' } });
    expect(got.body).not.toContain('mallory');
    expect(JSON.parse(got.body)).toMatchObject({ 'x-other': 'stays' });
  });

  test('customRequestHeaders and customResponseHeaders set headers in any spelling; an empty value removes them', async () => {
    const app = await backend((req, res) =>
      res.writeHead(200, { 'x-powered-by': 'app' }).end(JSON.stringify(req.headers)),
    );
    const proxy = await startProxy();
    const strip = {
      headers: {
        customRequestHeaders: { 'X-Forwarded-User': '', X_Forwarded_User: '', 'X-Added': 'yes' },
        customResponseHeaders: { 'X-Powered-By': '', 'X-Via': 'berth' },
      },
    };
    proxy.useHttp(project('shop', app.url, { middlewares: { strip } }));
    const got = await ask(proxy.port, HOST, '/', {
      headers: { 'X-FORWARDED-user': 'admin', x_forwarded_user: 'admin', 'x-other': 'stays' },
    });
    const seen = JSON.parse(got.body) as Record<string, string>;
    expect(seen).toMatchObject({ 'x-added': 'yes', 'x-other': 'stays' });
    expect(got.body).not.toContain('admin');
    expect(got.headers).toMatchObject({ 'x-via': 'berth' });
    expect(got.headers).not.toHaveProperty('x-powered-by');
  });
});

describe('forwardAuth', () => {
  const REGEX =
    '(?i)^(x[-_]forwarded[-_]user([-_](name|avatar|provider|assertion))?|cookie|authorization)$';
  const forwardAuth = (address: string, more: object = {}): Record<string, object> => ({
    'shop-auth': {
      forwardAuth: {
        address,
        trustForwardHeader: true,
        authResponseHeaders: ['X-Forwarded-User'],
        authResponseHeadersRegex: REGEX,
        maxResponseBodySize: 1000,
        ...more,
      },
    },
  });

  test('sends GET with the request’s headers; after 2xx the request continues with the identity of the answer, not of the client', async () => {
    const app = await backend((req, res) => res.end(JSON.stringify(req.headers)));
    const auth = await backend((_, res) =>
      res
        .writeHead(200, {
          'x-forwarded-user': 'ada@example.org',
          'x-forwarded-user-name': 'Ada',
          cookie: 'app=1',
          'x-not-listed': 'no',
        })
        .end(),
    );
    const proxy = await startProxy();
    proxy.useHttp(
      project('shop', app.url, { middlewares: forwardAuth(`${auth.url}/verify?project=p1`) }),
    );
    const got = await ask(proxy.port, HOST, '/path?q=1', {
      method: 'POST',
      body: 'form',
      headers: {
        'x-forwarded-user': 'evil',
        X_Forwarded_User_Name: 'evil',
        authorization: 'Bearer berth_evil',
        cookie: 'svc_fwd_session=s; app=1',
        'x-forwarded-uri': '/evil',
      },
    });
    const asked = auth.requests[0];
    expect(asked).toMatchObject({ method: 'GET', url: '/verify?project=p1' });
    expect(asked?.headers).toMatchObject({
      'x-forwarded-method': 'POST',
      'x-forwarded-uri': '/path?q=1',
      'x-forwarded-host': HOST,
      'x-forwarded-proto': 'http',
      'x-forwarded-for': '127.0.0.1',
      cookie: 'svc_fwd_session=s; app=1',
      authorization: 'Bearer berth_evil',
      host: `127.0.0.1:${auth.port}`,
    });
    expect(asked?.headers).not.toHaveProperty('content-length');
    const seen = JSON.parse(got.body) as Record<string, string>;
    expect(seen).toMatchObject({
      'x-forwarded-user': 'ada@example.org',
      'x-forwarded-user-name': 'Ada',
      cookie: 'app=1',
      host: HOST,
    });
    expect(got.body).not.toMatch(/evil|svc_fwd_session|x-not-listed|authorization/);
  });

  test.each([
    [
      401,
      { 'content-type': 'application/problem+json', 'www-authenticate': 'Bearer' },
      '{"code":"unauthenticated"}',
    ],
    [
      302,
      {
        location: 'http://auth.berth.localhost/_oauth/login',
        'set-cookie': ['nonce=1; HttpOnly', 'b=2'],
      },
      '',
    ],
    [403, {}, 'no'],
    [503, { 'retry-after': '5' }, ''],
  ])(
    'an answer of %i goes to the client unchanged, and the application gets no request',
    async (status, headers, body) => {
      const app = await named('secret');
      const auth = await backend((_, res) => res.writeHead(status, headers).end(body));
      const proxy = await startProxy();
      proxy.useHttp(project('shop', app.url, { middlewares: forwardAuth(auth.url) }));
      expect(await ask(proxy.port, HOST)).toMatchObject({ status, headers, body });
      expect(app.requests).toHaveLength(0);
    },
  );

  test('a relative Location is resolved against the address of the authentication service, as in Traefik', async () => {
    const auth = await backend((_, res) => res.writeHead(302, { location: '/login' }).end());
    const proxy = await startProxy();
    proxy.useHttp(
      project('shop', 'http://127.0.0.1:1', { middlewares: forwardAuth(`${auth.url}/verify`) }),
    );
    expect((await ask(proxy.port, HOST)).headers.location).toBe(`${auth.url}/login`);
  });

  test('a missing, broken or too large answer never lets a request pass', async () => {
    const app = await named('secret');
    const broken = await backend((_, res) => res.socket?.destroy());
    const large = await backend((_, res) => res.end('x'.repeat(1001)));
    const proxy = await startProxy();
    for (const [address, status] of [
      ['http://127.0.0.1:1/verify', 500],
      [broken.url, 500],
      [large.url, 401],
    ] as const) {
      proxy.useHttp(project('shop', app.url, { middlewares: forwardAuth(address) }));
      expect(await ask(proxy.port, HOST), address).toMatchObject({ status });
    }
    expect(app.requests).toHaveLength(0);
  });
});

test('redirectScheme: every request at this entry point counts as https', async () => {
  const app = await named('app');
  const proxy = await startProxy();
  proxy.useHttp(
    project('shop', app.url, {
      middlewares: { r: { redirectScheme: { scheme: 'https', permanent: true } } },
    }),
  );
  expect(await ask(proxy.port, HOST)).toMatchObject({ status: 200 });
  proxy.useHttp(
    project('shop', app.url, {
      middlewares: { r: { redirectScheme: { scheme: 'http', permanent: true } } },
    }),
  );
  expect(await ask(proxy.port, `${HOST}:8000`, '/x?y')).toMatchObject({
    status: 301,
    headers: { location: `http://${HOST}/x?y` },
  });
});

describe('WebSocket', () => {
  const echo = async (): Promise<{ url: string; requests: IncomingMessage[] }> => {
    const requests: IncomingMessage[] = [];
    const app = await backend((_, res) => res.writeHead(426).end('use a WebSocket'));
    const server = new WebSocketServer({ server: app.server });
    server.on('connection', (socket, req) => {
      requests.push(req);
      socket.on('message', (data, binary) => socket.send(data, { binary }));
    });
    onTestFinished(() => {
      for (const client of server.clients) client.terminate();
    });
    return { url: app.url, requests };
  };
  const connect = (
    port: number,
    headers: Record<string, string> = {},
  ): Promise<{ socket: WebSocket; say: (text: string) => Promise<string> }> => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/chat?room=1`, {
      headers: { host: HOST, ...headers },
    });
    onTestFinished(() => socket.terminate());
    return new Promise((resolve, reject) => {
      socket.on('error', reject);
      socket.on('unexpected-response', (_, response) =>
        reject(new Error(`HTTP ${response.statusCode} ${String(response.headers['x-why'] ?? '')}`)),
      );
      socket.on('open', () =>
        resolve({
          socket,
          say: (text) =>
            new Promise((heard) => {
              socket.once('message', (data: Buffer) => heard(data.toString()));
              socket.send(text);
            }),
        }),
      );
    });
  };

  test('passes in both directions, through middlewares', async () => {
    const app = await echo();
    const proxy = await startProxy();
    proxy.useHttp(
      project('shop', app.url, {
        middlewares: { strip: { headers: { customRequestHeaders: { 'X-Forwarded-User': '' } } } },
      }),
    );
    const { say } = await connect(proxy.port, {
      'x-forwarded-user': 'evil',
      'x-forwarded-for': '6.6.6.6',
    });
    expect(await say('hello')).toBe('hello');
    expect(await say('x'.repeat(100_000))).toHaveLength(100_000);
    expect(app.requests[0]).toMatchObject({
      url: '/chat?room=1',
      headers: { host: HOST, 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'ws' },
    });
    expect(app.requests[0]?.headers).not.toHaveProperty('x-forwarded-user');
  });

  test('is stopped by forwardAuth like any other request', async () => {
    const app = await echo();
    const auth = await backend((_, res) => res.writeHead(401, { 'x-why': 'no session' }).end('{}'));
    const proxy = await startProxy();
    proxy.useHttp(
      project('shop', app.url, { middlewares: { auth: { forwardAuth: { address: auth.url } } } }),
    );
    await expect(connect(proxy.port)).rejects.toThrow('HTTP 401 no session');
    expect(app.requests).toHaveLength(0);
  });

  test('gets an HTTP answer if there is no route, the backend is down, or the backend does not support WebSocket', async () => {
    const proxy = await startProxy();
    await expect(connect(proxy.port)).rejects.toThrow('HTTP 404');
    proxy.useHttp(project('shop', 'http://127.0.0.1:1'));
    await expect(connect(proxy.port)).rejects.toThrow('HTTP 502');
    proxy.useHttp(project('shop', (await named('plain')).url));
    await expect(connect(proxy.port)).rejects.toThrow('HTTP 200');
  });

  test('stays connected to its backend when the route is switched', async () => {
    const app = await echo();
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const { say } = await connect(proxy.port);
    proxy.useHttp(project('shop', (await named('new')).url));
    expect((await ask(proxy.port, HOST)).body).toBe('new');
    expect(await say('still here')).toBe('still here');
  });

  test('an upgrade to anything except WebSocket is an ordinary request', async () => {
    const app = await named('plain');
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    expect(
      await ask(proxy.port, HOST, '/', {
        headers: { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'x' },
      }),
    ).toMatchObject({ status: 200, body: 'plain' });
  });
});

describe('a switch of routes', () => {
  test('loses no request under load, and after the marker answers no older version answers', {
    timeout: 30_000,
  }, async () => {
    const versions = await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map((n) => named(String(n))));
    const marker = (hash: string): { routers: object; services: object } => ({
      routers: {
        'berth-marker-websecure': {
          rule: `Host(\`berth.invalid\`) && Path(\`/${hash}\`)`,
          entryPoints: ['websecure'],
          service: 'noop@internal',
        },
      },
      services: {},
    });
    const proxy = await startProxy();
    const publish = (n: number): void =>
      proxy.useHttp(merge(project('shop', versions[n]?.url ?? ''), marker(`hash${n}`)));
    publish(0);

    let live = 0;
    let stop = false;
    let asked = 0;
    const agent = new http.Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    const prober = async (): Promise<string[]> => {
      const wrong: string[] = [];
      while (!stop) {
        const atLeast = live;
        const got = await ask(proxy.port, HOST, '/', { agent }).catch((error: unknown) => ({
          status: 0,
          body: String(error),
        }));
        asked += 1;
        if (got.status !== 200) wrong.push(`${got.status} ${got.body}`);
        else if (Number(got.body) < atLeast) wrong.push(`version ${got.body} after ${atLeast}`);
      }
      return wrong;
    };
    const probers = Array.from({ length: 16 }, prober);
    for (let n = 1; n < versions.length; n += 1) {
      publish(n);
      expect(await ask(proxy.port, 'berth.invalid', `/hash${n}`)).toMatchObject({ status: 418 });
      expect(await ask(proxy.port, 'berth.invalid', `/hash${n - 1}`)).toMatchObject({
        status: 404,
      });
      live = n;
      const before = asked;
      while (asked < before + 200) await pause(1);
      // The old container is removed after it has answered its earlier requests.
      versions[n - 1]?.server.close();
      versions[n - 1]?.server.closeIdleConnections();
    }
    stop = true;
    expect((await Promise.all(probers)).flat()).toEqual([]);
  });

  test('a request in progress finishes on the old backend; its connection is then closed', async () => {
    const finish = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const old = await backend((_, res) => {
      arrived.resolve();
      void finish.promise.then(() => res.end('old'));
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', old.url));
    const slow = ask(proxy.port, HOST);
    await arrived.promise;
    proxy.useHttp(project('shop', (await named('new')).url));
    expect((await ask(proxy.port, HOST)).body).toBe('new');
    finish.resolve();
    expect((await slow).body).toBe('old');
    await new Promise((resolve) => old.server.close(resolve));
  });

  test('idle connections to a backend without a route are closed immediately', async () => {
    const old = await named('old');
    const proxy = await startProxy();
    proxy.useHttp(project('shop', old.url));
    await ask(proxy.port, HOST);
    proxy.useHttp(project('shop', (await named('new')).url));
    // This returns only when no connection remains.
    await new Promise((resolve) => old.server.close(resolve));
  });
});

describe('the proxy’s own answers', () => {
  test('exist only at the address of the proxy, and /readyz is ready only with a configuration', async () => {
    const app = await named('app');
    const proxy = await startProxy();
    const own = `127.0.0.1:${proxy.port}`;
    expect(await ask(proxy.port, own, '/healthz')).toMatchObject({ status: 200 });
    expect(await ask(proxy.port, own, '/readyz')).toMatchObject({ status: 503 });
    proxy.useHttp(project('shop', app.url));
    proxy.setUnready(null);
    expect(await ask(proxy.port, own, '/readyz')).toMatchObject({ status: 200 });
    expect(await ask(proxy.port, own, '/')).toMatchObject({ status: 404 });
    expect(await ask(proxy.port, HOST, '/healthz')).toMatchObject({ status: 200, body: 'app' });
    expect(await ask(proxy.port, `${HOST}:${proxy.port}`, '/readyz')).toMatchObject({
      body: 'app',
    });
  });

  test('close lets requests finish and cuts requests that take too long', async () => {
    const finish = Promise.withResolvers<void>();
    const arrived = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
    const app = await backend((req, res) => {
      if (req.url === '/hang') return arrived[1].resolve();
      arrived[0].resolve();
      void finish.promise.then(() => res.end('done'));
    });
    const proxy = await startProxy();
    proxy.useHttp(project('shop', app.url));
    const slow = ask(proxy.port, HOST, '/slow');
    const hanging = expect(ask(proxy.port, HOST, '/hang')).rejects.toThrow(/hang up|reset/);
    await Promise.all(arrived.map((a) => a.promise));
    const closed = proxy.close(200);
    finish.resolve();
    expect(await slow).toMatchObject({ status: 200, body: 'done' });
    await hanging;
    await closed;
    await expect(ask(proxy.port, HOST)).rejects.toThrow('ECONNREFUSED');
  });
});
