/**
 * Two control planes on one PostgreSQL. Real processes, killed with -9 in turn while clients
 * request deployments of several projects from both. The agents complete their work at once, and
 * each knows one control plane. The built-in proxy runs behind a relay that uses whichever control
 * plane answers.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, type Client, createClient } from '@berth/wire/client';
import type { Deployment } from '@berth/wire/deployment';
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import type { Task } from '@berth/wire/task';
import { isSettled, LABELS } from '@berth/wire/vocabulary';
import { service, type Service } from '@berth/testbed/platform';
import { type Applications, startApplications } from '@berth/testbed/applications';
import { freePort } from '@berth/testbed/ports';
import { type Postgres, startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { silentLogger } from '@berth/kit/log';
import { waitFor } from '@berth/testbed/wait';
import { createLogReaders } from '../../packages/agent/src/logs/readers.ts';
import { createRedact } from '../../packages/agent/src/secrets/redaction.ts';
import { container } from '../../packages/agent/test/fake-engine.ts';
import {
  unexplainedGaps,
  view,
  type Viewer,
} from '../../packages/control-plane/test/api/log-viewer.ts';
import { createLogEngine } from '../log-engine.ts';
import { relayTo } from './balancer.ts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const reason = whyNoPostgres();
const SECRET = 'two-control-planes';
const ADMIN = { email: 'admin@berth.localhost', password: 'sesame-opens-nothing' };
const PROJECTS = ['ant', 'bee', 'cat', 'dog'];
const ROUNDS = 3;

/**
 * Repeats a request until there is a definite answer, as clients of a control plane that may be
 * killed have to.
 */
async function untilAnswered<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status < 500)) throw error;
      await sleep(50, undefined, { signal });
    }
  }
}

const isBroken = ({ kind, payload }: Task): boolean =>
  kind === 'build' && payload.project.startsWith('broken');

/** Completes its work at once and reports correctly; drops a task whose lease it lost. */
async function instantAgent(
  url: string,
  name: string,
  role: 'builder' | 'deploy',
  applications: Applications,
  signal: AbortSignal,
): Promise<void> {
  const client = createClient({ baseUrl: url, headers: () => ({ 'x-agent-secret': SECRET }) });
  const body = {
    hostname: name,
    role,
    host_ip: '127.0.0.1',
    max_storage: 1e12,
    max_builds: 8,
    agent_version: 'instant',
    capabilities: [LOGS_CAPABILITY],
  };
  const register = () => untilAnswered(() => client.call('agentRegister', { body }), signal);
  const { id } = await register();
  const again = setInterval(() => void register().catch(() => undefined), 1_000);
  const work = async (task: Task): Promise<void> => {
    const { lease_token } = await untilAnswered(
      () => client.call('agentStart', { params: { id: task.id } }),
      signal,
    );
    const image =
      task.kind === 'build'
        ? { image_tag: `${task.payload.image_repository}:1`, commit: 'c'.repeat(40) }
        : {};
    const container =
      task.kind === 'deploy'
        ? {
            host_port: await applications.portOf(`${name} ${task.payload.project}`),
            container_id: `${name}-${task.deployment_id}`,
          }
        : {};
    const headers = { 'x-lease-token': lease_token };
    const report = isBroken(task)
      ? { status: 'failed' as const, result: 'broken' }
      : { status: 'completed' as const, ...image, ...container };
    await untilAnswered(
      () => client.call('agentComplete', { params: { id: task.id }, body: report, headers }),
      signal,
    );
  };
  const taken = new Set<string>();
  try {
    while (!signal.aborted) {
      const tasks = await untilAnswered(
        () => client.call('agentTasks', { query: { node_id: id, wait: 5 } }),
        signal,
      );
      const fresh = tasks.filter((task) => !taken.has(task.id));
      for (const task of fresh) taken.add(task.id);
      // The report is refused: the task ended meanwhile, or another agent has it.
      await Promise.all(
        fresh.map((task) =>
          work(task).catch((error: unknown) => error instanceof ApiError || Promise.reject(error)),
        ),
      );
      if (fresh.length === 0) await sleep(20, undefined, { signal });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    clearInterval(again);
  }
}

/** Connects to the first of `ports` that accepts the connection. */
async function startRelay(ports: readonly number[]): Promise<{ port: number; stop(): void }> {
  const open = new Set<Socket>();
  const server = createServer((from) => {
    open.add(from);
    from.on('error', () => undefined).on('close', () => open.delete(from));
    relayTo(ports, from);
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    port,
    stop() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

describe.skipIf(reason !== undefined)(
  `two control planes on one PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    const stops: (() => unknown)[] = [];
    const end = new AbortController();
    let pg: Postgres;
    let planes: Service[];
    let urls: string[];
    let ports: number[];
    let token: string;
    let apis: Client[];
    let projects: { id: string; name: string }[];

    beforeAll(async () => {
      const dir = await mkdtemp(join(tmpdir(), 'berth-two-'));
      stops.push(() => rm(dir, { recursive: true, force: true }));
      pg = await startPostgres();
      stops.push(() => pg.stop());
      const proxyPort = await freePort();
      ports = [await freePort(), await freePort()];
      urls = ports.map((port) => `http://127.0.0.1:${port}`);
      const databaseUrl = await pg.createDatabase('berth');
      planes = urls.map((url, i) =>
        service(`control-plane-${i}`, dir, `${url}/readyz`, ['control-plane'], {
          LISTEN: url.slice('http://'.length),
          DATABASE_URL: databaseUrl,
          BASE_DOMAIN: 'berth.localhost',
          PUBLIC_URL: `http://berth.localhost:${proxyPort}`,
          AGENT_SECRET: SECRET,
          ADMIN_EMAILS: ADMIN.email,
          ADMIN_PASSWORD: ADMIN.password,
          REGISTRY_ADDR: 'registry.test:5000',
          PROXY_PROBE_URLS: `http://127.0.0.1:${proxyPort}`,
          STATE_DIR: join(dir, 'state'),
          ALLOWED_NOTIFY_HOSTS: '127.0.0.1',
          LEASE_TTL: '3s',
          CLAIM_TIMEOUT: '3s',
        }),
      );
      await mkdir(join(dir, 'logs'));
      // Both start at once on an empty database.
      await Promise.all(planes.map((plane) => plane.start()));
      for (const plane of planes) stops.push(() => plane.stop());
      const relay = await startRelay(ports);
      stops.push(() => relay.stop());
      const proxy = service('proxy', dir, `http://127.0.0.1:${proxyPort}/readyz`, ['proxy'], {
        LISTEN: `127.0.0.1:${proxyPort}`,
        CONFIG_URL: `http://127.0.0.1:${relay.port}/api/traefik/config`,
      });
      await proxy.start();
      stops.push(() => proxy.stop());

      // The control plane requests the project through the proxy before a switch, so a server must
      // answer at the nodes' ports.
      const applications = startApplications((_, response) => void response.end('a version'));
      stops.push(() => applications.stop());
      const agents = urls.flatMap((url, i) => [
        instantAgent(url, `builder-${i}`, 'builder', applications, end.signal),
        instantAgent(url, `node-${i}`, 'deploy', applications, end.signal),
      ]);
      stops.push(async () => {
        end.abort();
        await Promise.all(agents);
      });
      // A token of one control plane is valid at the other: the key is in the database.
      ({ token } = await createClient({ baseUrl: urls[0] ?? '' }).call('login', { body: ADMIN }));
      apis = urls.map((baseUrl) =>
        createClient({ baseUrl, headers: () => ({ authorization: `Bearer ${token}` }) }),
      );
      projects = await Promise.all(
        PROJECTS.map((name, i) => {
          const body = {
            name,
            domain_prefix: name,
            git_url: `https://git.test/${name}.git`,
            drain_seconds: 0,
          };
          return api(i).call('createProject', { body });
        }),
      );
      await waitFor(
        'all nodes are registered',
        async () => (await api(1).call('listNodes', { query: {} })).items.length === 4,
      );
    });
    afterAll(async () => {
      for (const stop of stops.splice(0).toReversed()) await stop();
    });

    const at = <T>(list: readonly T[], i: number): T => list[i % list.length] as T;
    const api = (i: number): Client => at(apis, i);
    const config = async (i: number): Promise<string> => {
      const response = await fetch(`${at(urls, i)}/api/traefik/config`);
      if (!response.ok) throw new Error(`${response.status}`);
      return response.text();
    };
    /**
     * Repeats a request at the other control plane with the same key when one is down: this creates
     * one deployment.
     */
    const request = (project: { id: string }, first: number, key: string): Promise<Deployment> => {
      let turn = first;
      const input = { params: { id: project.id }, body: {}, headers: { 'idempotency-key': key } };
      return untilAnswered(() => api(turn++).call('createDeployment', input), end.signal);
    };
    const settled = (id: string): Promise<Deployment> =>
      waitFor(
        `deployment ${id} is settled`,
        async () => {
          const deployment = await api(0).call('getDeployment', { params: { id } });
          return isSettled(deployment.status) && deployment;
        },
        { deadlineMs: 60_000 },
      );

    it('a change at one control plane wakes a held request at the other', async () => {
      const project = at(projects, 0);
      const etag = (await fetch(`${at(urls, 1)}/api/traefik/config`)).headers.get('etag') ?? '';
      const held = fetch(`${at(urls, 1)}/api/traefik/config?wait=30`, {
        headers: { 'if-none-match': etag },
      });
      const { id } = await request(project, 0, 'first');
      expect((await held).status).toBe(200);
      expect(await settled(id)).toMatchObject({ status: 'running', generation: 1 });
      expect(await config(1)).toBe(await config(0));
    });

    it('both look for problems, and a webhook hears of each once, after a try that failed', async () => {
      const heard: string[] = [];
      let asked = 0;
      const server = createHttpServer((incoming, response) => {
        void json(incoming).then((body) => {
          asked += 1;
          if (asked === 1) return void response.writeHead(500).end();
          heard.push(
            ...(body as { data: { problems: { subject: string }[] } }).data.problems.map(
              ({ subject }) => subject,
            ),
          );
          response.writeHead(204).end();
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      stops.push(() => server.close());
      const target = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      await api(0).call('createNotification', {
        body: { name: 'team', kind: 'webhook', target, on: ['failed'] },
      });
      const broken = await Promise.all(
        ['broken-1', 'broken-2', 'broken-3', 'broken-4'].map((name, i) =>
          api(i).call('createProject', {
            body: { name, domain_prefix: name, git_url: `https://git.test/${name}.git` },
          }),
        ),
      );
      for (const [i, project] of broken.entries())
        expect((await settled((await request(project, i, project.id)).id)).status).toBe('failed');
      await waitFor(
        'the webhook heard of all',
        async () => broken.every(({ id }) => heard.includes(id)),
        { deadlineMs: 30_000 },
      );
      await waitFor('no delivery waits', async () => {
        const { items } = await api(1).call('listNotificationDeliveries', {
          params: { id: 'team' },
          query: {},
        });
        return items.every(({ status }) => status === 'sent');
      });
      expect(heard.toSorted()).toEqual(broken.map(({ id }) => id).toSorted());
      await Promise.all(broken.map(({ id }) => api(0).call('deleteProject', { params: { id } })));
    });

    it.each([
      ['long after', 100],
      ['just after', 0],
    ])(
      'runtime logs: the control plane that the agent asks is killed %s the viewer at the other one came',
      async (_, count) => {
        const project = at(projects, 0);
        const { items } = await api(1).call('listDeployments', {
          query: { project_id: project.id, status: 'running' },
        });
        const { id, node_id } = at(items, 0);
        const relay = await startRelay(ports);
        const engine = createLogEngine();
        const url = `http://127.0.0.1:${relay.port}`;
        const headers = { 'x-agent-secret': SECRET };
        const printing = container({
          labels: { [LABELS.deployment]: id },
          state: 'running',
          startedAt: '2026-11-25T12:00:00Z',
        });
        const readers = createLogReaders({
          client: createClient({ baseUrl: url, headers: () => headers }),
          docker: engine,
          listContainers: async () => [printing],
          redactOf: async () => createRedact([]),
          nodeId: () => node_id,
          onRestart: () => undefined,
          log: silentLogger(),
        });
        const stop = new AbortController();
        const polling = (async () => {
          for (let etag = ''; !stop.signal.aborted; ) {
            const poll = { headers: { ...headers, 'if-none-match': etag }, signal: stop.signal };
            const answer = await fetch(
              `${url}/api/agent/tasks?node_id=${node_id}&wait=5`,
              poll,
            ).catch(() => undefined);
            if (answer?.ok !== true && answer?.status !== 304) {
              await sleep(50);
              continue;
            }
            etag = answer.headers.get('etag') ?? '';
            readers.wanted(answer.headers.get('x-logs-wanted'));
          }
        })();
        let printed = 0;
        const timer = setInterval(() => engine.print(`line ${++printed}`), 5);
        const viewers: Viewer[] = [];
        const follow = async (i: number): Promise<Viewer> => {
          const viewer = await view(at(urls, i), project.id, token, '?tail=1');
          viewers.push(viewer);
          return viewer;
        };
        try {
          // The agent's reader has sent lines before the other viewer comes.
          const dying = await follow(0);
          await waitFor('the first viewer has lines', async () => dying.of('line').length > 20, {
            deadlineMs: 30_000,
          });
          const stays = await follow(1);
          await waitFor(
            'the second viewer has lines',
            async () => stays.of('line').length > count,
            {
              deadlineMs: 30_000,
            },
          );
          await at(planes, 0).crash();
          const goal = `line ${printed + 200}`;
          await waitFor(
            'lines after the kill',
            async () => stays.of('line').some(({ text }) => text === goal),
            { deadlineMs: 30_000 },
          );
          expect(viewers.map((viewer) => unexplainedGaps(viewer))).toEqual([[], []]);
        } finally {
          clearInterval(timer);
          for (const viewer of viewers) viewer.close();
          stop.abort();
          await readers.stop();
          await polling;
          relay.stop();
          await at(planes, 0).start();
        }
      },
    );

    const ENDS = { timeout: 120_000 };
    /**
     * Time for one request with its repetitions. A control plane that was killed during it holds
     * its Idempotency-Key for 3 s.
     */
    const ANSWERED_MS = 20_000;
    it(
      'kills of either during requests to both: every deployment ends, generations are unique, one runs, both agree',
      ENDS,
      async () => {
        const accepted: string[] = [];
        let slowest = 0;
        for (let round = 0; round < ROUNDS; round++) {
          const victim = at(planes, round);
          const asked = Array.from({ length: 8 }, async (_, i) => {
            await sleep(i * 40);
            const began = performance.now();
            accepted.push((await request(at(projects, i), round + i, `round-${round}-${i}`)).id);
            slowest = Math.max(slowest, performance.now() - began);
          });
          await sleep(60 + round * 90);
          await victim.crash();
          await sleep(300);
          await victim.start();
          await Promise.all(asked);
        }
        expect(new Set(accepted).size).toBe(ROUNDS * 8);
        expect(slowest).toBeLessThan(ANSWERED_MS);
        const ended = await Promise.all(accepted.map(settled));
        const states = Object.groupBy(ended, (d) => d.status);
        console.log(
          `two control planes: ${Object.entries(states)
            .map(([state, list]) => `${list.length} ${state}`)
            .join(', ')}`,
        );
        // One control plane was killed each time. A lost task is repeated, so no deployment fails
        // for it.
        expect(states.failed ?? []).toEqual([]);

        for (const { id, name } of projects) {
          const all = (
            await api(1).call('listDeployments', { query: { project_id: id, limit: 100 } })
          ).items;
          const generations = all.map((d) => d.generation).sort((a, b) => a - b);
          // Each request created one deployment, also when a kill came before the answer.
          expect(generations, name).toEqual(
            Array.from({ length: name === 'ant' ? 7 : 6 }, (_, i) => i + 1),
          );
          expect(
            all.filter((d) => d.status === 'running').map((d) => d.generation),
            name,
          ).toEqual([generations.at(-1)]);
        }
        await waitFor(
          'both return the same configuration',
          async () => (await config(0)) === (await config(1)),
          { deadlineMs: 5_000 },
        );
        const routes = await pg.query(
          'select r.deployment_id from routes r join deployments d on d.id = r.deployment_id ' +
            "where d.status = 'running'",
          'berth',
        );
        expect(routes.split('\n')).toHaveLength(PROJECTS.length);
        expect(
          await pg.query(
            'select count(*) from tasks where finished_at is null and kind <> $$retire$$',
            'berth',
          ),
        ).toBe('0');
      },
    );
  },
);
