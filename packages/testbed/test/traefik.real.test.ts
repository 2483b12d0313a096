import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram, findTraefik } from '../src/config.ts';
import { run } from '../src/process.ts';
import { startTraefik } from '../src/traefik.ts';
import { waitFor } from '../src/wait.ts';

// Skipped without Traefik (TRAEFIK_BIN, PATH), without openssl for its certificate, or without
// curl.
describe.skipIf(
  findTraefik() === undefined ||
    findProgram('openssl') === undefined ||
    findProgram('curl') === undefined,
)('traefik', { timeout: 30_000 }, () => {
  let folder: string;
  let backend: Server;
  let control: Server;
  const listen = (server: Server) =>
    new Promise<number>((resolve) =>
      server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
    );
  let rule = 'Host(`one.berth.localhost`)';
  let backendPort: number;
  let configPort: number;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'berth-traefik-'));
    backend = createServer((_request, response) => response.end('backend'));
    backendPort = await listen(backend);
    control = createServer((_request, response) => {
      response.setHeader('content-type', 'application/json');
      const router = { rule, service: 'x', entryPoints: ['websecure'], tls: {} };
      response.end(
        JSON.stringify({
          http: {
            routers: { x: router },
            services: {
              x: { loadBalancer: { servers: [{ url: `http://127.0.0.1:${backendPort}` }] } },
            },
          },
        }),
      );
    });
    configPort = await listen(control);
  });
  afterAll(async () => {
    for (const server of [backend, control]) {
      server.close();
      server.closeAllConnections();
    }
    await rm(folder, { recursive: true, force: true });
  });

  it('serves its configuration on websecure, follows changes, and reads the file provider', async () => {
    const files = join(folder, 'files');
    await mkdir(files);
    await writeFile(
      join(files, 'redirect.yml'),
      JSON.stringify({
        http: { middlewares: { 'redirect-to-https': { redirectScheme: { scheme: 'https' } } } },
      }),
    );
    const traefik = await startTraefik({
      dir: folder,
      configUrl: `http://127.0.0.1:${configPort}/config`,
      held: true,
      fileProviderDir: files,
    });
    try {
      const ask = async (host: string) =>
        (
          await run(['curl', '-sk', '-m', '3', '-H', `Host: ${host}`, `${traefik.websecure}/`], {
            mayFail: true,
          })
        ).stdout;
      await waitFor(
        'the route answers',
        async () => (await ask('one.berth.localhost')) === 'backend',
      );
      rule = 'Host(`two.berth.localhost`)';
      await waitFor(
        'the new route answers',
        async () => (await ask('two.berth.localhost')) === 'backend',
      );
      expect(await ask('one.berth.localhost')).toContain('404');
      expect((await traefik.routers()).map((router) => router.name)).toContain('x@http');
      const middlewares = (await (await fetch(`${traefik.api}/api/http/middlewares`)).json()) as {
        name: string;
      }[];
      expect(middlewares.map(({ name }) => name)).toContain('redirect-to-https@file');
      expect((await fetch(traefik.web)).status).toBe(404);
    } finally {
      await traefik.stop();
    }
    await expect(fetch(traefik.web)).rejects.toThrow();
  });
});
