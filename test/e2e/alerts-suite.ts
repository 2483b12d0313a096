/**
 * Fires each alert of deploy/prometheus/alerts.yml once: the real Prometheus scrapes the real
 * control plane, gateway, relay, agent and Traefik, and evaluates the shipped expressions. Faults
 * are real where that takes seconds. Otherwise the state is planted in the database or in the clock
 * of a process.
 */
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, statfs, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';
import type { Project } from '@berth/wire/project';
import { type Applications, startApplications } from '@berth/testbed/applications';
import { findTraefik, repositoryRoot } from '@berth/testbed/config';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, run, startProcess } from '@berth/testbed/process';
import {
  noPrometheus,
  type Prometheus,
  startPrometheus,
  type Targets,
} from '@berth/testbed/prometheus';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const why =
  noPrometheus !== ''
    ? noPrometheus
    : process.getuid?.() !== 0 || findTraefik() === undefined
      ? ' (skipped: needs Traefik, and root for small disks)'
      : '';
const NAMES = [
  ...readFileSync(join(repositoryRoot, 'deploy/prometheus/alerts.yml'), 'utf8').matchAll(
    /- alert: (\w+)/g,
  ),
].map(([, name = '']) => name);
/** A clock that runs 30 times too fast, and an old Node.js. */
const BROKEN_CLOCK = `data:text/javascript,${encodeURIComponent(`
  const real = Date.now, from = real();
  Date.now = () => from - 30_000 + 30 * (real() - from);
  const steady = performance.now.bind(performance), start = steady();
  performance.now = () => start + 30 * (steady() - start);
  Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '24.20.0' } });
`)}`;
/** Locks the database again and again, each time for most of a second. */
const SLOW_DISK = `
  const { DatabaseSync } = require('node:sqlite');
  const database = new DatabaseSync(process.argv[1], { timeout: 10_000 });
  const hold = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  console.log('locking');
  for (;;) { database.exec('begin immediate'); hold(900); database.exec('rollback'); hold(40); }`;

/**
 * `quick`: without the rows that take half a minute each, and with the rest of the alerts in
 * `npm run test:faults`.
 */
export function describeAlerts(rows: 'quick' | 'all'): void {
  describe.skipIf(why !== '')(`alerts${why}`, () => alerts(rows));
}

function alerts(rows: 'quick' | 'all'): void {
  const stops: (() => Promise<unknown>)[] = [];
  const fired = new Map<string, string>();
  let dir = '';
  let disks = '';
  let berth: Platform;
  let prometheus: Prometheus;
  let database: DatabaseSync;
  let applications: Applications;
  let targets: Targets;
  const plant = (sql: string, ...values: (string | number | null)[]): void =>
    void database.prepare(sql).run(...values);
  const HOUR = 3_600_000;

  /**
   * Contract-only nodes by hand: they register every second while `online`, and handle tasks as
   * `handle` says.
   */
  let online = true;
  const nodes: Record<string, string> = {};
  const agent = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(berth.url + path, {
      method,
      headers: {
        'x-agent-secret': berth.agentSecret,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return response.json();
  };
  const registerAs = async (hostname: string, role: string, host_ip: string): Promise<string> => {
    const body = { hostname, role, host_ip, max_storage: 1e9, free_storage: 1e9 };
    return ((await agent('POST', '/api/agent/register', body)) as { id: string }).id;
  };
  const register = async (): Promise<void> => {
    for (const role of ['builder', 'deploy'])
      nodes[role] = await registerAs(`hand-${role}`, role, '127.0.0.1');
  };
  type Task = { id: string; kind: string; payload: { image_repository: string; project: string } };
  let handle: (task: Task) => object | null | Promise<object> = () => null;
  const work = async (): Promise<void> => {
    for (const id of Object.values(nodes))
      for (const task of (await agent('GET', `/api/agent/tasks?node_id=${id}`)) as Task[]) {
        const report = await handle(task);
        if (report !== null) await agent('POST', `/api/agent/tasks/${task.id}/complete`, report);
      }
  };
  const succeed = async ({ kind, payload }: Task): Promise<object> =>
    kind === 'build'
      ? {
          status: 'completed',
          result: 'by hand',
          image_tag: `${payload.image_repository}:${'0'.repeat(40)}`,
        }
      : { status: 'completed', host_port: await applications.portOf(payload.project) };
  const failWith =
    (code: string) =>
    (_task: Task): object => ({
      status: 'failed',
      result: { error: { code, message: 'by hand' } },
    });
  const create = (name: string): Promise<Project> =>
    berth.createProject({ name, git_url: 'https://git.example.org/app.git', domain_prefix: name });

  const berthProcess = (name: string, env: Record<string, string>): Promise<RunningProcess> =>
    startProcess([process.execPath, join(repositoryRoot, 'bin/berth'), name], {
      name,
      logFile: join(dir, 'logs', `${name}-more.log`),
      env: { LOG_FORMAT: 'json', ...env },
    });
  const smallDisk = async (name: string, megabytes: number): Promise<string> => {
    const path = join(disks, name);
    await mkdir(path, { recursive: true });
    await run(['mount', '-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', path]);
    stops.push(() => run(['umount', '-l', path]));
    return path;
  };
  const names = async (): Promise<string[]> => [
    ...new Set((await prometheus.alerts()).map(({ labels }) => labels['alertname'] ?? '')),
  ];

  /** Waits until these alerts fire. Causes that the loops of Berth repair are repeated. */
  async function fires(
    how: string,
    wanted: readonly string[],
    cause?: () => unknown,
    deadlineMs = 30_000,
  ): Promise<void> {
    await waitFor(
      `${wanted.join(', ')} fire`,
      async () => {
        await cause?.();
        const now = await names();
        return wanted.every((name) => now.includes(name));
      },
      { deadlineMs, intervalMs: 300 },
    );
    for (const name of wanted) fired.set(name, how);
  }

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'berth-alerts-'));
    stops.push(() => rm(dir, { recursive: true, force: true }));
    disks = join(dir, 'disks');
    const data = await smallDisk('control-plane', 192);
    applications = startApplications((_, response) => response.end('hello'));
    stops.push(() => applications.stop());
    berth = await startPlatform({
      dir,
      registry: { address: '127.0.0.1:5000', user: '', password: '' },
      proxy: 'traefik',
      relay: true,
      agents: [],
      gateway: {
        env: () => ({
          OIDC_ISSUER: 'http://127.0.0.1:9',
          OIDC_CLIENT_ID: 'x',
          OIDC_CLIENT_SECRET: 'x',
        }),
      },
      env: {
        PROBE_TIMEOUT: '2s',
        OFFLINE_AFTER: '5s',
        FAILOVER_AFTER: '5s',
        CERTIFICATE_CHECK_INTERVAL: '1s',
        CLAIM_TIMEOUT: '60s',
        DATABASE_URL: `sqlite:${join(data, 'berth.db')}`,
      },
    });
    stops.push(() => berth.stop());
    database = new DatabaseSync(join(data, 'berth.db'), { timeout: 10_000 });
    stops.push(async () => database.close());
    const beat = setInterval(
      () => void (online ? register().then(work) : Promise.resolve()).catch(() => undefined),
      500,
    );
    stops.push(async () => clearInterval(beat));
    await register();
    targets = {
      'berth-control-plane': [new URL(berth.url).host],
      'berth-gateway': [new URL(berth.gateway?.readyUrl ?? '').host],
      'berth-relay': [new URL(berth.relay?.readyUrl ?? '').host],
      'berth-agent': [],
      traefik: [new URL(berth.traefik?.api ?? '').host],
    };
    prometheus = await startPrometheus(join(dir, 'prometheus'), targets);
    stops.push(() => prometheus.stop());
  }, 90_000);
  afterAll(async () => {
    const failures: unknown[] = [];
    for (const stop of stops.splice(0).toReversed())
      await stop().catch((error: unknown) => failures.push(error));
    expect(failures).toEqual([]);
  }, 60_000);

  test('a healthy installation: only the missing backup, and an old Node.js, are shown', async () => {
    await fires('no backup was ever made', ['BerthNoBackup']);
    handle = succeed;
    const live = await berth.settled(await berth.deploy(await create('shop')), 30_000);
    expect(live.status).toBe('running');
    plant(
      'insert into backups (id, scheduled, target, name, bytes, error, started_at, ' +
        'finished_at) values (?, 0, ?, ?, 1, null, ?, ?)',
      'b1',
      '/backups',
      'b1',
      Date.now(),
      Date.now(),
    );
    // A machine under load has a slow event loop, Traefik's certificate is self-signed, and Node.js
    // may be old.
    const byTheMachine = ['BerthNodeVersionOld', 'BerthCertificateProblem', 'BerthEventLoopLag'];
    const others = async (): Promise<string[]> =>
      (await names()).filter((name) => !byTheMachine.includes(name));
    await waitFor('no other alert fires', async () => (await others()).length === 0, {
      deadlineMs: 30_000,
    }).catch(() => undefined);
    expect(await others()).toEqual([]);
    // Twice more, so that each rule was evaluated after all targets answered.
    expect((await prometheus.query('up == 0')).length).toBe(0);
    expect((await prometheus.query('count(up)'))[0]?.value[1]).toBe('4');
  });

  test('each expression of the dashboard returns data', async () => {
    const { panels } = JSON.parse(
      readFileSync(join(repositoryRoot, 'deploy/grafana/berth.json'), 'utf8'),
    ) as {
      panels: { title: string; targets?: { expr: string }[] }[];
    };
    const expressions = panels.flatMap(({ title, targets: all = [] }) =>
      all.map(({ expr }) => ({ title, expr })),
    );
    expect(expressions.length).toBeGreaterThan(25);
    // A rate needs some scrapes.
    const empty = async (): Promise<string[]> => {
      const found = await Promise.all(
        expressions.map(async ({ title, expr }) => {
          // This world has no agent at that time.
          if (/berth_agent_/.test(expr)) return [];
          return (await prometheus.query(expr.replaceAll('$__rate_interval', '1m'))).length === 0
            ? [`${title}: ${expr}`]
            : [];
        }),
      );
      return found.flat();
    };
    await waitFor('each expression returns data', async () => (await empty()).length === 0, {
      deadlineMs: 20_000,
    }).catch(() => undefined);
    expect(await empty()).toEqual([]);
  });

  test('real faults of processes, connections and nodes', async () => {
    const relayPort = await freePort();
    const agentPort = await freePort();
    const gatewayPort = await freePort();
    const state = await smallDisk('agent', 16);
    await fill(state);
    await mkdir(join(dir, 'gateway-cut-off/revocations'), { recursive: true });
    const ended = {
      id: 'session-1',
      email: 'ann@example.com',
      expires_at: new Date(Date.now() + HOUR).toISOString(),
    };
    await writeFile(
      join(dir, `gateway-cut-off/revocations/${Buffer.from(ended.id).toString('hex')}.json`),
      JSON.stringify(ended),
    );
    const more = await Promise.all([
      berthProcess('relay', {
        LISTEN: `127.0.0.1:${relayPort}`,
        CONTROL_PLANE_URL: berth.url,
        STATE_DIR: join(dir, 'relay-2'),
        NODE_OPTIONS: `--import=${BROKEN_CLOCK}`,
      }),
      berthProcess('agent', {
        LISTEN: `127.0.0.1:${agentPort}`,
        CONTROL_PLANE_URL: berth.url,
        NODE_ROLE: 'deploy',
        NODE_NAME: 'cut-off',
        AGENT_SECRET: 'wrong',
        DOCKER_HOST: `unix://${join(dir, 'no-engine.sock')}`,
        STATE_DIR: state,
        SVC_ROOT: join(state, 'svc'),
        PROJECT_NETWORK_POOL: 'none',
      }),
      berthProcess('gateway', {
        LISTEN: `127.0.0.1:${gatewayPort}`,
        CONTROL_PLANE_URL: 'http://127.0.0.1:9',
        GATEWAY_SECRET: 'x'.repeat(32),
        SESSION_SECRET: 'y'.repeat(32),
        BASE_DOMAIN: berth.baseDomain,
        OIDC_ISSUER: 'http://127.0.0.1:9',
        OIDC_CLIENT_ID: 'x',
        OIDC_CLIENT_SECRET: 'x',
        STATE_DIR: join(dir, 'gateway-cut-off'),
      }),
    ]);
    for (const one of more) stops.push(() => one.stop());
    await prometheus.scrape({
      ...targets,
      'berth-relay': [...targets['berth-relay'], `127.0.0.1:${relayPort}`],
      'berth-agent': [`127.0.0.1:${agentPort}`],
      'berth-gateway': [...targets['berth-gateway'], `127.0.0.1:${gatewayPort}`],
    });
    const soon = await certificate(dir);
    await writeFile(
      join(dir, 'traefik/files/soon.yml'),
      JSON.stringify({ tls: { certificates: [soon] } }),
    );
    await Promise.all([
      fires('real agent without an engine, with a wrong secret, on a full disk', [
        'BerthEngineDown',
        'BerthAgentNotRegistered',
        'BerthNodeDiskFull',
      ]),
      fires('real gateway that never reached a control plane, with a stored sign-out', [
        'BerthPolicyOld',
        'BerthRevocationsWaiting',
      ]),
      fires('real relay whose clock is too fast, as an old Node.js', [
        'BerthClockSkew',
        'BerthNodeVersionOld',
        'BerthProxyNotFetching',
      ]),
      fires('real Traefik with a certificate of one day', [
        'BerthCertificateExpiresSoon',
        ...(rows === 'all' ? ['BerthCertificateProblem'] : []),
      ]),
      fires('sign-in while the identity provider is down', ['BerthLoginProviderFails'], () =>
        fetch(`${berth.gateway?.readyUrl.replace('/readyz', '')}/_oauth/login`, {
          headers: {
            host: new URL(berth.publicUrl).host,
            'x-forwarded-proto': 'https',
            'x-forwarded-host': new URL(berth.publicUrl).host,
          },
          redirect: 'manual',
        }),
      ),
      fires('the gateway is stopped for 0.9 s (SIGSTOP)', ['BerthEventLoopLag'], async () => {
        berth.gateway?.process().kill('SIGSTOP');
        // Longer than the alert's 0.5 s, and shorter than a scrape waits: an abandoned scrape would
        // take the measurement.
        await sleep(900);
        berth.gateway?.process().kill('SIGCONT');
      }),
      fires(
        'the nodes do not register any more',
        ['BerthNodeOffline', 'BerthNoBuilder', 'BerthNoDeployNode', 'BerthFailoverBrake'],
        async () => {
          // The brake never holds the only node.
          if (online) await registerAs('hand-other', 'deploy', '127.0.0.2');
          online = false;
        },
      ),
    ]);
    for (const one of more) await one.stop();
    await fires('the agent ended', ['BerthAgentDown']);
    await prometheus.scrape(targets);
    online = true;
  });

  test.runIf(rows === 'all')('deployments that fail, wait and lose their health', async () => {
    // The control plane starts again with short time limits, a closed probe address, a missing
    // backup folder and few connections.
    await berth.controlPlane.stop();
    await berth.controlPlane.start({
      LEASE_TTL: '1s',
      ROUTE_TIMEOUT: '2s',
      PROXY_PROBE_URLS: 'http://127.0.0.1:9',
      BACKUP_TO: join(dir, 'no-such-folder'),
      MAX_CONNECTIONS: '100',
      TRUSTED_PROXIES: 'none',
    });
    await waitFor('the nodes are registered', () => register().then(() => true));
    const live = (await create('mill')).id;
    const of = (id: string) => berth.deploy({ id });
    handle = succeed;
    await of(live);
    await fires('the proxy does not serve the marker', ['BerthRouteNotConfirmed']);
    handle = failWith('registry_unreachable');
    for (let i = 0; i < 6; i++) await of((await create(`fails-${i}`)).id);
    await fires('agents report registry_unreachable', [
      'BerthPlatformFailure',
      'BerthDeploymentsFailing',
    ]);
    // A claimed task whose lease nobody renews.
    const claimed = new Set<string>();
    handle = ({ id }) => {
      if (!claimed.has(id))
        void agent('POST', `/api/agent/tasks/${id}/start`).catch(() => undefined);
      claimed.add(id);
      return null;
    };
    const waiting = (await create('waits')).id;
    for (let i = 0; i < 6; i++) await of((await create(`lost-${i}`)).id);
    await fires('the builder claims tasks and does not renew their leases', ['BerthTasksLost']);
    handle = () => null;
    await of(waiting);
    await fires(
      'a task and a deployment that are old (planted age)',
      ['BerthTasksWaiting', 'BerthDeploymentStuck'],
      () => {
        plant('update tasks set created_at = ? where finished_at is null', Date.now() - HOUR);
        plant(
          "update deployments set created_at = ? where status in ('pending', 'building')",
          Date.now() - 3 * HOUR,
        );
      },
    );
    for (const [health, alert] of [
      ['unhealthy', 'BerthProjectUnhealthy'],
      ['degraded', 'BerthProjectDegraded'],
      ['drifted', 'BerthProjectDrifted'],
    ] as const)
      await fires(`a running deployment is ${health} (planted)`, [alert], () =>
        plant("update deployments set health_status = ? where status = 'running'", health),
      );
    await fires(
      'a backup to a folder that does not exist',
      ['BerthBackupFailing'],
      undefined,
      60_000,
    );
    await fires('no good backup for a day (planted age)', ['BerthBackupTooOld'], () =>
      plant(
        "update backups set started_at = ?, finished_at = ? where id = 'b1'",
        Date.now() - 24 * HOUR,
        Date.now() - 24 * HOUR,
      ),
    );
  });

  test('state of data, secrets and pushes', async () => {
    const project = (await create('pushed')).id;
    const { id: deployment } = await berth.deploy({ id: project });
    const old = Date.now() - 24 * HOUR;
    await fires(
      'a delivery and a commit status wait (planted)',
      ['BerthHookDeliveriesStuck', 'BerthCommitStatusesStuck'],
      () => {
        insert('hooks', { project_id: project });
        insert('deliveries', {
          id: crypto.randomUUID(),
          project_id: project,
          at: old,
          event: 'push',
          branch: 'main',
        });
        plant('update deliveries set verdict = null, at = ?', old);
        insert('commit_statuses', {
          project_id: project,
          deployment_id: deployment,
          created_at: old,
        });
      },
    );
    await fires(
      'datasets are suspicious, unreachable and not scanned (planted)',
      ['BerthDatasetSuspicious', 'BerthShareUnreachable', 'BerthDatasetScanLate'],
      () => {
        for (const status of ['ok', 'suspicious', 'unreachable'])
          insert('datasets', {
            id: status,
            name: status,
            nfs_path: status,
            status,
            version: 1,
            last_scanned_at: old,
            next_scan_at: Date.now() + HOUR,
          });
      },
    );
    await fires('a job whose schedule is not valid any more (planted)', ['BerthJobLate'], () =>
      insert('jobs', {
        project_id: project,
        name: 'late',
        schedule: 'every full moon',
        timezone: 'UTC',
        command: '["true"]',
        enabled: 1,
        next_at: old,
      }),
    );
    await fires(
      'a project key is wrapped by an unknown key (planted)',
      ['BerthSecretsLocked'],
      () =>
        insert('project_keys', {
          project_id: project,
          wrapped: 'x',
          wrapped_by: 'another',
          created_at: old,
        }),
    );
    // With it, the control plane would refuse to start again.
    plant("delete from project_keys where wrapped_by = 'another'");
    await fires(
      'a notification whose deliveries fail (planted)',
      ['BerthNotificationsFailing'],
      () => insert('notifications', { id: 'n1', name: 'team', failing_since: old }),
    );
  });

  test.runIf(rows === 'all')('attacks, a full disk and a slow database', async () => {
    const attackers: Socket[] = [];
    for (let i = 0; i < 40; i++)
      attackers.push(
        connect({
          host: '127.0.0.1',
          port: Number(new URL(berth.url).port),
          localAddress: '127.0.0.9',
        }),
      );
    for (const socket of attackers) socket.on('error', () => undefined);
    await fires('40 connections from one address, of 100 in all', ['BerthConnectionsExhausted']);
    for (const socket of attackers) socket.destroy();
    const guess = (): Promise<unknown> =>
      fetch(`${berth.url}/api/auth/login`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ email: 'ann@example.com', password: 'guess' }),
      });
    await fires('wrong passwords', ['BerthPasswordGuessing'], async () => {
      for (let i = 0; i < 10; i++) await Promise.all(Array.from({ length: 10 }, guess));
    });
    const ballast = await fill(join(disks, 'control-plane'));
    await fires('the data folder is full', ['BerthControlPlaneDiskFull']);
    await rm(ballast);
    const locker = await startProcess(
      [process.execPath, '-e', SLOW_DISK, join(disks, 'control-plane/berth.db')],
      { name: 'locker' },
    );
    await waitFor('the locker runs', async () => locker.tail().includes('locking'));
    await fires('another program locks the database again and again', ['BerthDatabaseSlow']);
    await locker.stop();
  });

  test('processes that end, one after the other', async () => {
    await applications.stop();
    await fires('the application of a project is gone: 502', ['BerthProxyErrors'], () =>
      Promise.all(Array.from({ length: 10 }, () => berth.get('shop'))),
    );
    await fires('a route with an impossible address (planted)', ['BerthProjectNotRouted'], () =>
      plant("update routes set host_ip = 'no address'"),
    );
    plant('alter table routes rename to routes_away');
    await fires('the table of routes cannot be read', [
      'BerthLoopFailing',
      'BerthControlPlaneNotReady',
    ]);
    await berth.controlPlane.crash();
    await fires('kill -9 of the control plane', ['BerthControlPlaneDown', 'BerthRelayCutOff']);
    await Promise.all([berth.gateway?.crash(), berth.relay?.crash(), berth.traefik?.stop()]);
    await fires('kill -9 of the gateway, the relay and Traefik', [
      'BerthGatewayDown',
      'BerthRelayDown',
      'BerthProxyDown',
    ]);
    await prometheus.scrape({ ...targets, 'berth-control-plane': [] });
    await fires('prometheus.yml names no control plane', ['BerthNotScraped'], undefined, 60_000);
  });

  test.runIf(rows === 'all')('every alert has fired', () => {
    expect([...fired.keys()].toSorted()).toEqual(NAMES.toSorted());
  });

  /**
   * Inserts a row; columns that it leaves out get the default of their type where the table needs a
   * value.
   */
  function insert(table: string, given: Record<string, string | number | null>): void {
    const columns = database.prepare(`pragma table_info(${table})`).all() as {
      name: string;
      type: string;
      notnull: number;
      dflt_value: unknown;
      pk: number;
    }[];
    const row: Record<string, string | number | null> = { ...given };
    for (const { name, type, notnull, dflt_value: preset, pk } of columns)
      if (
        row[name] === undefined &&
        notnull === 1 &&
        preset === null &&
        !(pk === 1 && /int/i.test(type))
      )
        row[name] = /int/i.test(type) ? 0 : '';
    const names = Object.keys(row);
    plant(
      `insert or ignore into ${table} (${names.map((name) => `"${name}"`).join(', ')}) values ` +
        `(${names.map(() => '?').join(', ')})`,
      ...Object.values(row),
    );
  }
}

/** Leaves 7 % of a disk free. Returns the file. */
async function fill(folder: string): Promise<string> {
  const { blocks, bavail, bsize } = await statfs(folder);
  const file = join(folder, 'ballast');
  await writeFile(file, Buffer.alloc(Math.floor((bavail - 0.07 * blocks) * bsize)));
  return file;
}

/** A certificate of a project that ends tomorrow. */
async function certificate(dir: string): Promise<{ certFile: string; keyFile: string }> {
  const certFile = join(dir, 'soon.pem');
  const keyFile = join(dir, 'soon-key.pem');
  const key = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    keyFile,
  ];
  const names = [
    '-subj',
    '/CN=shop.berth.localhost',
    '-addext',
    'subjectAltName=DNS:shop.berth.localhost',
  ];
  await run(['openssl', 'req', '-x509', ...key, '-days', '1', ...names, '-out', certFile]);
  return { certFile, keyFile };
}
