/** An engine in memory that speaks HTTP on a unix socket, and a client of it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDocker } from '../src/engine/create-docker.ts';
import type { Docker } from '../src/engine/docker.ts';
import { createEngineClient, type EngineClient } from '../src/engine/engine-client.ts';
import {
  createRegistryCredentials,
  type RegistryCredentials,
} from '../src/engine/registry-credentials.ts';

export type EngineRequest = {
  /** `GET /containers/json`, without the version and the query. */
  call: string;
  version: string;
  query: URLSearchParams;
  headers: IncomingMessage['headers'];
  body: unknown;
};
export type Reply = (response: ServerResponse, request: EngineRequest) => void | Promise<void>;

export type HttpEngine = {
  engine: EngineClient;
  docker: Docker;
  credentials: RegistryCredentials;
  /** Value for DOCKER_HOST. */
  host: string;
  /** All requests but those for the version of the API. */
  requests: EngineRequest[];
  /** Number of connections so far. */
  connections(): number;
  /** Ends all connections, and refuses new ones until `open`. */
  close(): Promise<void>;
  open(): Promise<void>;
  stop(): Promise<void>;
};

/** Answers with JSON. */
export const json =
  (body: unknown, status = 200): Reply =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
export const refuse = (status: number, message: string): Reply => json({ message }, status);

/**
 * `routes`: by call; `*` stands for one part of a path. A call without a route is refused.
 * `hangs`: the engine does not even answer the request for its version.
 */
export async function startHttpEngine(
  routes: Readonly<Record<string, Reply>>,
  { version = '1.44', hangs = false } = {},
): Promise<HttpEngine> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-http-engine-'));
  const path = join(dir, 'engine.sock');
  const requests: EngineRequest[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const replyTo = (call: string): Reply =>
    Object.entries(routes).find(([pattern]) => matches(pattern, call))?.[1] ??
    refuse(404, 'page not found');
  const answer = async (message: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (hangs) return;
    if (message.url === '/_ping') {
      response.setHeader('api-version', version);
      response.end('OK');
      return;
    }
    const request = await readRequest(message);
    requests.push(request);
    await replyTo(request.call)(response, request);
  };
  const server = createServer((message, response) => void answer(message, response));
  server.on('connection', (socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  const open = (): Promise<void> => new Promise((resolve) => server.listen(path, resolve));
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    });
  await open();
  const host = `unix://${path}`;
  const credentials = createRegistryCredentials({ configDir: join(dir, 'docker') });
  const engine = createEngineClient({ dockerHost: host, inherit: {}, credentials });
  return {
    engine,
    docker: createDocker({ engine, credentials }),
    credentials,
    host,
    requests,
    connections: () => connections,
    open,
    close,
    async stop() {
      if (server.listening) await close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

function matches(pattern: string, call: string): boolean {
  const [wanted, parts] = [pattern.split('/'), call.split('/')];
  return (
    wanted.length === parts.length && wanted.every((part, at) => part === '*' || part === parts[at])
  );
}

async function readRequest(message: IncomingMessage): Promise<EngineRequest> {
  const url = new URL(message.url ?? '', 'http://engine');
  const [, version = '', path = ''] = /^(?:\/v([\d.]+))?(\/.*)$/.exec(url.pathname) ?? [];
  const parts: Buffer[] = [];
  for await (const part of message as AsyncIterable<Buffer>) parts.push(part);
  const text = Buffer.concat(parts).toString('utf8');
  return {
    call: `${message.method} ${path}`,
    version,
    query: url.searchParams,
    headers: message.headers,
    body: text === '' ? undefined : (JSON.parse(text) as unknown),
  };
}

/** One frame of a container's output. */
export function frame(kind: 1 | 2 | 3, text: string): Buffer {
  const bytes = Buffer.from(text);
  const head = Buffer.alloc(8);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([head, bytes]);
}
