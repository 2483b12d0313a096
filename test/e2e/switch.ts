/**
 * Requests in progress at a switch end normally, also when the application dies at once on SIGTERM.
 * For `drain_seconds` the old version finishes its requests and gets no new ones. A request that is
 * open after `drain_seconds` and `stop_grace_seconds` is cut (docs/status.md,
 * "What a switch does to open connections").
 */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Project } from '@berth/wire/project';
import type { ProxyKind } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startWorld, whyNot, type World } from './world.ts';

/**
 * An application that answers at once, after 4 s, as a stream of 5 s, and as an open WebSocket. A
 * header shows its version.
 */
const app = (version: number, onSigterm: 'dies' | 'ignores'): Record<string, string> => ({
  Dockerfile: 'FROM node:24-slim\nCOPY app.mjs /app.mjs\nEXPOSE 8080\nCMD ["node", "/app.mjs"]\n',
  'app.mjs': `
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
process.on('SIGTERM', () => ${onSigterm === 'dies' ? 'process.exit(0)' : 'undefined'});
const server = createServer((request, response) => {
  response.setHeader('x-version', '${version}');
  if (request.url === '/slow') return void setTimeout(() => response.end('slow and complete'), 4000);
  if (request.url !== '/stream') return void response.end('at once');
  response.setHeader('content-type', 'text/event-stream');
  let tick = 0;
  const timer = setInterval(() => {
    response.write('data: ' + ++tick + '\\n\\n');
    if (tick === 20) { clearInterval(timer); response.end('data: end\\n\\n'); }
  }, 250);
  request.on('close', () => clearInterval(timer));
});
server.on('upgrade', (request, socket) => {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.on('error', () => undefined);
  socket.write(['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade', 'X-Version: ${version}', 'Sec-WebSocket-Accept: ' + accept, '', ''].join('\\r\\n'));
});
server.listen(8080);
`,
});

type Seen = {
  path: string;
  from: number;
  to: number;
  version: number;
  body: string;
  problem: string | null;
};

function ask({ berth }: World, prefix: string, path: string): Promise<Seen> {
  const host = `${prefix}.${berth.baseDomain}`;
  const from = Date.now();
  const { entry } = berth;
  return new Promise((resolve) => {
    let [version, body] = [Number.NaN, ''];
    const end = (problem: string | null): void =>
      resolve({ path, from, to: Date.now(), version, body, problem });
    const options = {
      host: entry.host,
      port: entry.port,
      path,
      headers: { host },
      agent: false as const,
      timeout: 15_000,
      ...(entry.secure ? { servername: host, rejectUnauthorized: false } : {}),
    };
    const sent = (entry.secure ? httpsRequest : httpRequest)(options, (response) => {
      version = Number(response.headers['x-version']);
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (body += chunk));
      response.on('error', (error) => end(error.message));
      response.on('end', () =>
        end(response.statusCode === 200 ? null : `status ${response.statusCode}`),
      );
    });
    sent.on('timeout', () => sent.destroy(new Error('no data for 15 s')));
    sent.on('error', (error) => end(error.message));
    sent.end();
  });
}

type Line = { socket: WebSocket; version: () => number; closed: () => number | null };
async function openSocket({ berth }: World, prefix: string): Promise<Line> {
  const { entry } = berth;
  const socket = new WebSocket(
    `${entry.secure ? 'wss' : 'ws'}://${entry.host}:${entry.port}/socket`,
    {
      headers: { host: `${prefix}.${berth.baseDomain}` },
      rejectUnauthorized: false,
    },
  );
  let [version, closed] = [Number.NaN, null as number | null];
  socket.on('upgrade', (response) => (version = Number(response.headers['x-version'])));
  socket.on('close', () => (closed = Date.now()));
  socket.on('error', () => undefined);
  await waitFor('the socket is open', () => socket.readyState === WebSocket.OPEN);
  return { socket, version: () => version, closed: () => closed };
}

/** Declares the tests of a switch through one proxy. */
export async function testSwitchThrough(proxy: ProxyKind): Promise<void> {
  const reason = await whyNot(proxy);
  describe.skipIf(reason !== undefined)(
    `a switch through ${proxy}${reason === undefined ? '' : ` (skipped: ${reason})`}`,
    () => {
      let world: World;
      beforeAll(async () => {
        world = await startWorld({ proxy, images: ['busybox:stable', 'node:24-slim'] });
      });
      afterAll(() => world?.stop());

      async function live(
        name: string,
        onSigterm: 'dies' | 'ignores',
        times: { drain_seconds: number; stop_grace_seconds: number },
      ) {
        const { url } = await world.git.createRepo(name, app(1, onSigterm));
        const project = await world.berth.createProject({
          name,
          git_url: url,
          domain_prefix: name,
          ...times,
        });
        expect(await world.berth.settled(await world.berth.deploy(project))).toMatchObject({
          status: 'running',
        });
        return project;
      }
      /**
       * Redeploys and returns the time of the route switch, from the story: the old version gets no
       * new request from then on.
       */
      async function redeploy(project: Project, onSigterm: 'dies' | 'ignores'): Promise<number> {
        await world.git.commit(project.name, app(2, onSigterm), 'version 2');
        const done = await world.berth.settled(await world.berth.deploy(project));
        expect(done).toMatchObject({ status: 'running', error: null });
        return Date.parse(done.events.find((e) => e.kind === 'running')?.at ?? '');
      }

      it('slow answers and streams that began before it are complete, although the application dies on SIGTERM', async () => {
        const project = await live('hasty', 'dies', { drain_seconds: 7, stop_grace_seconds: 1 });
        const all: Promise<Seen>[] = [];
        let asking = true;
        const visitors = (async () => {
          while (asking) {
            for (const path of ['/', '/slow', '/stream']) all.push(ask(world, 'hasty', path));
            await sleep(200);
          }
        })();
        const switched = await redeploy(project, 'dies');
        await sleep(500);
        asking = false;
        await visitors;
        const seen = await Promise.all(all);
        expect(seen.filter((s) => s.problem !== null)).toEqual([]);
        expect(new Set(seen.filter((s) => s.path === '/slow').map((s) => s.body))).toEqual(
          new Set(['slow and complete']),
        );
        expect(
          seen.filter((s) => s.path === '/stream' && !s.body.endsWith('data: 20\n\ndata: end\n\n')),
        ).toEqual([]);
        // The old version answered after the switch (otherwise the test proves nothing) and got no
        // new request.
        const acrossOf = (path: string) =>
          seen.filter(
            (s) =>
              s.path === path && s.version === 1 && s.from < switched && s.to > switched + 1000,
          );
        expect(acrossOf('/slow').length).toBeGreaterThan(0);
        expect(acrossOf('/stream').length).toBeGreaterThan(0);
        expect(seen.filter((s) => s.from > switched + 50 && s.version !== 2)).toEqual([]);
      });

      it('a WebSocket stays open during the drain and is then cut; new ones go to the new version', async () => {
        const times = { drain_seconds: 3, stop_grace_seconds: 2 };
        // One application dies on SIGTERM, the other must be killed: the first is cut after the
        // drain, the other after both periods.
        const hasty = await live('hasty-socket', 'dies', times);
        const stubborn = await live('stubborn', 'ignores', times);
        for (const [project, mode, cutAfter] of [
          [hasty, 'dies', 3],
          [stubborn, 'ignores', 5],
        ] as const) {
          const old = await openSocket(world, project.domain_prefix);
          const switched = await redeploy(project, mode);
          expect(old.version()).toBe(1);
          expect(old.closed()).toBeNull();
          const next = await openSocket(world, project.domain_prefix);
          expect(next.version()).toBe(2);
          const cut = await waitFor('the old socket is cut', () => old.closed(), {
            deadlineMs: 20_000,
          });
          expect(cut - switched).toBeGreaterThanOrEqual(cutAfter * 1000 - 50);
          expect(cut - switched).toBeLessThan(cutAfter * 1000 + 4000);
          expect(next.socket.readyState).toBe(WebSocket.OPEN);
          next.socket.terminate();
        }
      });
    },
  );
}
