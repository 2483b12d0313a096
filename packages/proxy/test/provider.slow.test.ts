import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createLogger, silentLogger } from '@berth/kit/log';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  readConfigurationFile,
  startHttpProvider,
  watchConfigurationFile,
} from '../src/provider.ts';
import { compile } from '../src/router.ts';

/**
 * Simulates the control plane: answers the first request on a connection immediately and holds
 * later ones until a change.
 */
async function controlPlane(): Promise<{
  url: string;
  publish(text: string): void;
  refuse(status: number | null): void;
  cut(): void;
  polls(): number;
  /** Number of requests that are held now. */
  held(): number;
  connections(): number;
}> {
  let text = '';
  let refusal: number | null = null;
  let polls = 0;
  const given = new Map<Socket, string>();
  const held = new Set<() => void>();
  const connections = new Set<Socket>();
  const server = http.createServer((req, res) => {
    polls += 1;
    const wait = Number(new URL(req.url ?? '', 'http://x').searchParams.get('wait'));
    const answer = (): void => {
      held.delete(answer);
      if (refusal !== null) return void res.writeHead(refusal).end('no');
      given.set(req.socket, text);
      res.end(text);
    };
    if (wait > 0 && refusal === null && given.get(req.socket) === text) {
      held.add(answer);
      res.on('close', () => held.delete(answer));
    } else answer();
  });
  server.on('connection', (socket) => {
    connections.add(socket);
    socket.on('close', () => connections.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/traefik/config`,
    publish(next) {
      text = next;
      for (const answer of held) answer();
    },
    refuse(status) {
      refusal = status;
      for (const answer of held) answer();
    },
    cut: () => server.closeAllConnections(),
    polls: () => polls,
    held: () => held.size,
    connections: () => connections.size,
  };
}

const config = (host: string): string =>
  JSON.stringify({
    http: { routers: { r: { rule: `Host(\`${host}\`)`, service: 'noop@internal' } } },
  });

function follow(url: string): { hosts: () => string[] } {
  const seen: string[] = [];
  const provider = startHttpProvider(
    url,
    (configuration) => {
      const table = compile({ http: configuration });
      seen.push(
        ['a', 'b', 'c']
          .filter((host) => table.find({ host, path: '/', headers: {} }) !== null)
          .join(),
      );
    },
    silentLogger(),
  );
  onTestFinished(() => provider.stop());
  return { hosts: () => seen };
}

describe('the HTTP provider', () => {
  test('passes on each change once, over one held connection', async () => {
    const cp = await controlPlane();
    cp.publish(config('a'));
    const { hosts } = follow(cp.url);
    await vi.waitFor(() => expect(hosts()).toEqual(['a']));
    cp.publish(config('b'));
    await vi.waitFor(() => expect(hosts()).toEqual(['a', 'b']));
    // Two answers and one held request: the provider does not poll in a loop.
    await vi.waitFor(() => expect(cp.polls()).toBe(3));
  });

  test.each([
    ['503', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.refuse(503)],
    ['404', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.refuse(404)],
    [
      'an answer that is not JSON',
      (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish('<html>'),
    ],
    [
      'half of an answer',
      (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish(config('b').slice(0, -5)),
    ],
    ['an empty answer', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish('')],
    ['{}', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish('{}')],
    ['null', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish('null')],
    [
      'an answer with a wrong structure',
      (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.publish('{"http":{"routers":[]}}'),
    ],
    ['a broken connection', (cp: Awaited<ReturnType<typeof controlPlane>>) => cp.cut()],
  ])('keeps the last configuration after %s, and recovers', async (_, fail) => {
    const cp = await controlPlane();
    cp.publish(config('a'));
    const { hosts } = follow(cp.url);
    await vi.waitFor(() => expect(cp.polls()).toBe(2));
    fail(cp);
    await vi.waitFor(() => expect(cp.polls()).toBeGreaterThan(2));
    expect(hosts()).toEqual(['a']);
    cp.refuse(null);
    cp.publish(config('c'));
    await vi.waitFor(() => expect(hosts()).toEqual(['a', 'c']), 4_000);
  });

  test('polls a server that does not hold requests about once per second', async () => {
    const polledAt: number[] = [];
    const server = http.createServer((_, res) => {
      polledAt.push(performance.now());
      res.end(config('a'));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const { hosts } = follow(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    // The first three polls come quickly: a new connection is answered immediately in any case.
    await vi.waitFor(() => expect(polledAt.length).toBeGreaterThan(4), 10_000);
    const pauses = polledAt.slice(3).map((at, i) => at - (polledAt[i + 2] ?? 0));
    expect(Math.min(...pauses)).toBeGreaterThan(900);
    expect(hosts()).toEqual(['a']);
  });

  test('stop ends a held request: the server sees the connection close', async () => {
    const cp = await controlPlane();
    cp.publish(config('a'));
    const provider = startHttpProvider(cp.url, () => undefined, silentLogger());
    await vi.waitFor(() => expect(cp.held()).toBe(1));
    await provider.stop();
    await vi.waitFor(() => expect([cp.connections(), cp.held()]).toEqual([0, 0]));
    // After the stop, a change finds no held request, and the provider sends no further one.
    cp.publish(config('b'));
    expect(cp.polls()).toBe(2);
  });
});

describe('the file provider', () => {
  const file = (text: string): string => {
    const dir = mkdtempSync(path.join(tmpdir(), 'berth-proxy-'));
    onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
    writeFileSync(path.join(dir, 'dynamic.yml'), text);
    return path.join(dir, 'dynamic.yml');
  };

  test('reads Traefik’s YAML', () => {
    const configuration = readConfigurationFile(
      file(`
http:
  middlewares:
    redirect-to-https:
      redirectScheme: { scheme: https, permanent: true }
    svc-forward-auth:
      forwardAuth:
        address: "http://127.0.0.1:4180/verify"
        trustForwardHeader: true
tls: {}
`),
    );
    expect([...configuration.middlewares.keys()]).toEqual([
      'redirect-to-https',
      'svc-forward-auth',
    ]);
    expect(configuration.middlewares.get('redirect-to-https')).toEqual({
      kind: 'redirectScheme',
      scheme: 'https',
      port: '',
      permanent: true,
    });
    expect(readConfigurationFile(file('tls: {}\n')).routers.size).toBe(0);
  });

  test.each([
    ['http: [', 'Flow sequence'],
    ['text', 'not an object'],
    ['', 'not an object'],
    ['http: 1', 'no object under'],
  ])('refuses %j', (text, message) => {
    expect(() => readConfigurationFile(file(text))).toThrow(message);
  });

  test('applies a valid change of the file and ignores an invalid one', async () => {
    const at = file('http: { routers: { a: { rule: "Host(`a`)", service: noop@internal } } }');
    const seen: number[] = [];
    const lines: string[] = [];
    const log = createLogger({
      name: 'proxy',
      level: 'error',
      format: 'json',
      destination: { write: (line) => void lines.push(line) },
    });
    const watching = watchConfigurationFile(
      at,
      (configuration) => seen.push(configuration.routers.size),
      log,
    );
    onTestFinished(() => watching.stop());
    writeFileSync(at, 'http: [');
    await vi.waitFor(
      () => expect(lines.join('')).toContain('configuration file is invalid'),
      20_000,
    );
    expect(seen).toEqual([]);
    writeFileSync(
      at,
      'http: { routers: { a: { rule: "Host(`a`)", service: noop@internal }, b: { rule: ' +
        '"Host(`b`)", service: noop@internal } } }',
    );
    await vi.waitFor(() => expect(seen).toEqual([2]), 20_000);
  }, 60_000);
});
