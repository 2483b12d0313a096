/**
 * The real Traefik, the real gateway and a node behind a firewall (iptables in a network
 * namespace). A deployment fails when the proxy cannot reach its node, and the previous version
 * keeps serving.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram, findTraefik } from '@berth/testbed/config';
import { startHandAgent } from '@berth/testbed/hand-agent';
import { type Namespace, startNamespace } from '@berth/testbed/namespace';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { type Argv, run, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';

const missing =
  process.getuid?.() !== 0 ||
  findTraefik() === undefined ||
  ['iptables', 'ip', 'unshare', 'nsenter'].some((p) => findProgram(p) === undefined);
/** Versions on one node, each at its own port: two projects never have one address. */
const PORTS = [8001, 8002, 8003, 8004, 8011, 8012, 8013];
const SERVER = `
  for (const port of ${JSON.stringify(PORTS)}) require('node:http').createServer((q, r) => {
    const seen = Object.keys(q.headers).filter((n) => /^(x-forwarded-user|authorization)/.test(n));
    console.log(JSON.stringify({ port, url: q.url, agent: q.headers['user-agent'], seen }));
    r.end('version at ' + port);
  }).listen(port)`;

describe.skipIf(missing)(
  `the proxy and a node’s firewall${missing ? ' (skipped: needs root, iptables and Traefik)' : ''}`,
  () => {
    const stops: (() => Promise<unknown>)[] = [];
    const ports: Record<string, number> = {};
    const projects: Record<string, Project> = {};
    let node: Namespace;
    let berth: Platform;
    let application: { tail(): string };
    const firewall = (...rule: string[]): Promise<unknown> =>
      run([...node.enter(), 'iptables', ...rule] as unknown as Argv);

    beforeAll(async () => {
      const dir = await mkdtemp(join(tmpdir(), 'berth-reach-'));
      stops.push(() => rm(dir, { recursive: true, force: true }));
      node = await startNamespace({
        log: () => undefined,
        logFile: join(dir, 'namespace.log'),
        preferredNetwork: 207,
      });
      stops.push(() => node.stop());
      const server = await startProcess(
        [...node.enter(), process.execPath, '-e', SERVER] as unknown as Argv,
        { name: 'application' },
      );
      application = server;
      stops.push(() => server.stop());
      await waitFor('the node serves', async () => (await fetch(`http://${node.hostIp}:8004/`)).ok);
      berth = await startPlatform({
        dir,
        registry: { address: '127.0.0.1:5000', user: '', password: '' },
        proxy: 'traefik',
        agents: [],
        // The test does not sign in: the gateway only needs a provider to start.
        gateway: {
          env: () => ({
            OIDC_ISSUER: 'http://127.0.0.1:9',
            OIDC_CLIENT_ID: 'x',
            OIDC_CLIENT_SECRET: 'x',
          }),
        },
        // A contract-only agent does not probe. Its deployment must be confirmed within this time.
        env: { PROBE_TIMEOUT: '2s' },
      });
      stops.push(() => berth.stop());
      const agent = await startHandAgent({
        url: berth.url,
        secret: berth.agentSecret,
        hostIp: node.hostIp,
        ports,
      });
      stops.push(() => agent.stop());
      for (const name of ['open', 'shut', 'first'])
        projects[name] = await berth.createProject({
          name,
          git_url: 'https://git.example.org/app.git',
          domain_prefix: name,
          auth_required: name === 'shut',
          health_path: '/up?from=berth',
        });
    }, 60_000);
    afterAll(async () => {
      for (const stop of stops.splice(0).toReversed()) await stop();
    });

    async function release(name: string, port: number) {
      ports[name] = port;
      // One probe through the proxy takes 10 s.
      return berth.settled(await berth.deploy(projects[name] as Project), 20_000);
    }
    const requests = (): { port: number; url: string; agent: string; seen: string[] }[] =>
      application
        .tail()
        .split('\n')
        .flatMap((line) =>
          line.startsWith('{')
            ? [JSON.parse(line) as { port: number; url: string; agent: string; seen: string[] }]
            : [],
        );

    it.each([
      ['open', 8001],
      ['shut', 8011],
    ])(
      '%s: live after a request to the project’s host through Traefik succeeded',
      async (name, first) => {
        expect(await release(name, first)).toMatchObject({ status: 'running' });
        // The probe passed the login of the protected project without an identity, and the
        // application did not see the secret.
        const checks = requests().filter(
          (r) => r.port === first && r.agent === 'berth-control-plane',
        );
        expect(checks.at(-1)).toEqual({
          port: first,
          url: '/up?from=berth',
          agent: 'berth-control-plane',
          seen: [],
        });
        expect(checks.length).toBeGreaterThanOrEqual(1);
      },
    );

    it.each([
      ['open', 'DROP', 8002],
      ['open', 'REJECT', 8003],
      ['shut', 'DROP', 8012],
      ['shut', 'REJECT', 8013],
      ['first', 'REJECT', 8004],
    ])(
      '%s: a firewall with %s fails the deployment, and the host leads nowhere',
      async (name, verdict, port) => {
        const before = ports[name];
        await firewall('-A', 'INPUT', '-p', 'tcp', '--dport', String(port), '-j', verdict);
        const failed = await release(name, port);
        expect(failed).toMatchObject({
          status: 'failed',
          error: { code: 'proxy_cannot_reach_node' },
        });
        expect(failed.error?.message).toContain(`${node.hostIp}:${port}`);
        expect(failed.error?.message).toContain(`${berth.traefik?.websecure}`);
        // A contract-only agent removed the earlier container before it started the new one.
        await waitFor(
          'the host is unknown again',
          async () => (await berth.get(name)).status === 404,
        );
        await firewall('-D', 'INPUT', '-p', 'tcp', '--dport', String(port), '-j', verdict);
        if (before !== undefined)
          expect(await release(name, before)).toMatchObject({ status: 'running' });
      },
    );

    it('the login stays required for all other requests meanwhile', async () => {
      expect((await berth.get('shut', '/up?from=berth')).status).toBe(401);
    });
  },
);
