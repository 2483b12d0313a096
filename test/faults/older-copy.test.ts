/**
 * Another machine takes over with a copy that is older than the containers. The control plane of
 * the copy answers at the old address; agents, engine and containers stay. `npm run test:faults`.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Client, createClient } from '@berth/wire/client';
import { repositoryRoot } from '@berth/testbed/config';
import { type Service, service } from '@berth/testbed/platform';
import { freePort } from '@berth/testbed/ports';
import { startProber } from '@berth/testbed/prober';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { LABELS } from '@berth/wire/vocabulary';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../e2e/world.ts';

const reason = await whyNot();
const SECRETS_KEY = Buffer.alloc(32, 3).toString('base64');

describe.skipIf(reason !== undefined)(
  `an older copy takes over${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    const planes: Service[] = [];
    let place: string;
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        env: { SECRETS_KEY, LEASE_TTL: '5s', CLAIM_TIMEOUT: '6s', OFFLINE_AFTER: '20s' },
      });
    });
    afterAll(async () => {
      for (const plane of planes) await plane.stop();
      await world?.stop();
    });

    const project = async (name: string): Promise<{ id: string }> => {
      const { url } = await world.git.createRepo(name, pageApp(1));
      return world.berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
    };
    const release = async (one: { id: string }, api: Client = world.berth.api): Promise<string> => {
      const { id } = await api.call('createDeployment', { params: { id: one.id }, body: {} });
      const isOver = async () => {
        const now = await api.call('getDeployment', { params: { id } });
        return ['running', 'failed'].includes(now.status) && now;
      };
      expect(await waitFor(`deployment ${id} ends`, isOver, { deadlineMs: 90_000 })).toMatchObject({
        status: 'running',
      });
      return id;
    };
    const containers = async (): Promise<Record<string, string>> => {
      const format = `{{.Label "${LABELS.deployment}"}} {{.Names}} {{.State}}`;
      const { stdout } = await world.engine.docker([
        'ps',
        '-a',
        '--filter',
        `label=${LABELS.deployment}`,
        '--format',
        format,
      ]);
      return Object.fromEntries(
        stdout
          .trim()
          .split('\n')
          .map((line) => [line.split(' ')[0] ?? '', line.split(' ').slice(1).join(' ')]),
      );
    };
    const body = async (prefix: string): Promise<number | string> => {
      const { status, body: text } = await world.berth.get(prefix);
      return status === 200 ? versionOf(text) : status;
    };

    it('what the copy does not know runs on in quarantine, unrouted; what it knows keeps serving; people deploy again and remove', {
      timeout: 400_000,
    }, async () => {
      const { berth, git, dir } = world;
      const [keep, grow] = [await project('keep'), await project('grow')];
      await release(keep);
      const grown = await release(grow);
      const backups = join(dir, 'backups');
      await mkdir(backups);
      const env = { PATH: process.env['PATH'] ?? '', SECRETS_KEY };
      const command = (args: string[], database: string) =>
        run([process.execPath, join(repositoryRoot, 'bin', 'berth'), ...args], {
          env: { ...env, DATABASE_URL: `sqlite:${database}` },
        });
      const at =
        (await command(['backup', '--to', backups], join(dir, 'berth.db'))).stdout.split('\n')[0] ??
        '';

      await git.commit('grow', pageApp(2), 'version 2');
      const newer = await release(grow);
      const fresh = await project('fresh');
      const unknown = await release(fresh);
      await waitFor(
        'the old version is removed',
        async () => !Object.hasOwn(await containers(), grown),
      );
      const prober = startProber({
        entry: berth.entry,
        host: `keep.${berth.baseDomain}`,
        perSecond: 20,
        versionOf,
      });

      // The new machine takes over the address.
      await berth.controlPlane.stop();
      place = join(dir, 'next');
      await mkdir(place);
      await command(['restore', at, '--as-new'], join(place, 'berth.db'));
      const settings = {
        LISTEN: berth.url.slice('http://'.length),
        BASE_DOMAIN: berth.baseDomain,
        PUBLIC_URL: berth.publicUrl,
        AGENT_SECRET: berth.agentSecret,
        ADMIN_EMAILS: berth.admin.email,
        REGISTRY_ADDR: world.registry.address,
        REGISTRY_USER: world.registry.user ?? '',
        REGISTRY_PASSWORD: world.registry.password ?? '',
        PROXY_PROBE_URLS: `http://127.0.0.1:${berth.entry.port}`,
        SECRETS_KEY,
        PROBE_TIMEOUT: '20s',
        LEASE_TTL: '5s',
        CLAIM_TIMEOUT: '6s',
        OFFLINE_AFTER: '20s',
      };
      const next = service('next', dir, `${berth.url}/readyz`, ['control-plane'], {
        ...settings,
        DATABASE_URL: `sqlite:${join(place, 'berth.db')}`,
      });
      const oldUrl = `http://127.0.0.1:${await freePort()}`;
      const old = service('old', dir, `${oldUrl}/readyz`, ['control-plane'], {
        ...settings,
        LISTEN: oldUrl.slice('http://'.length),
        DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      });
      await next.start();
      planes.push(next);
      const { token } = await createClient({ baseUrl: berth.url }).call('login', {
        body: berth.admin,
      });
      const api = createClient({
        baseUrl: berth.url,
        headers: () => ({ authorization: `Bearer ${token}` }),
      });

      const quarantined = async (): Promise<readonly string[]> =>
        (await api.call('listNodes', { query: {} })).items
          .flatMap((node) => node.quarantined ?? [])
          .toSorted();
      await waitFor(
        'the node page names both containers',
        async () => (await quarantined()).join() === 'svc-fresh,svc-grow',
        {
          deadlineMs: 60_000,
        },
      );
      await waitFor('the log names them', async () =>
        /they are quarantined/.test(await readFile(next.logFile, 'utf8')),
      );
      expect(await containers()).toMatchObject({
        [newer]: 'svc-grow running',
        [unknown]: 'svc-fresh running',
      });
      await waitFor(
        'the proxy has the routes of the copy',
        async () => (await body('fresh')) === 404,
        { deadlineMs: 60_000 },
      );
      expect([await body('keep'), await body('grow')]).toEqual([1, 502]);
      // The version that the copy knows was removed meanwhile: its health says so, and it is not
      // created again beside the newer one that Berth does not know.
      await waitFor(
        'its health says that its container is missing',
        async () => {
          const { health } = await api.call('getDeployment', { params: { id: grown } });
          return health?.detail?.includes('its container is missing on its node') === true;
        },
        { deadlineMs: 90_000 },
      );
      expect(await containers()).toMatchObject({ [newer]: 'svc-grow running' });
      expect(await containers()).not.toHaveProperty(grown);
      const { notes } = (await (await fetch(`${berth.url}/readyz`)).json()) as { notes: string[] };
      expect(notes).toContainEqual(
        expect.stringMatching(/^restored on .*: Berth does not know what was deployed after that$/),
      );
      expect(notes).toContainEqual(
        expect.stringMatching(/^containers of unknown deployments are in quarantine on 1 node: /),
      );
      const cli = {
        env: { ...env, BERTH_URL: berth.url, BERTH_TOKEN: token, HOME: dir },
        mayFail: true,
      };
      const status = await run(
        [process.execPath, join(repositoryRoot, 'bin', 'berth'), 'status'],
        cli,
      );
      expect(status.stdout).toContain('containers of unknown deployments: svc-fresh, svc-grow');

      // The operator deploys again, and removes the containers in quarantine.
      await git.commit('grow', pageApp(3), 'version 3');
      const again = await release(grow, api);
      expect(await body('grow')).toBe(3);
      const { url } = await git.createRepo('fresh-again', pageApp(7));
      const created = await api.call('createProject', {
        body: { name: 'fresh', git_url: url, domain_prefix: 'fresh', drain_seconds: 0 },
      });
      await release(created, api);
      expect(await body('fresh')).toBe(7);
      expect((await api.call('getDeployment', { params: { id: again } })).health).toMatchObject({
        status: 'drifted',
      });
      expect(await quarantined()).toEqual(['svc-fresh', 'svc-grow']);

      // The old control plane runs beside the new one, and an agent goes to it and back, as with an
      // old entry of DNS.
      const before = await containers();
      await old.start();
      planes.push(old);
      const agent = berth.agents['node-1'];
      await agent?.stop();
      await agent?.start({ CONTROL_PLANE_URL: oldUrl });
      await waitFor(
        'the old one has the node in quarantine',
        async () => /they are quarantined/.test(await readFile(old.logFile, 'utf8')),
        {
          deadlineMs: 60_000,
        },
      );
      await agent?.stop();
      await agent?.start();
      expect(await containers()).toEqual(before);
      expect([await body('keep'), await body('grow'), await body('fresh')]).toEqual([1, 3, 7]);

      await world.engine.docker(['rm', '--force', 'svc-grow', 'svc-fresh']);
      await waitFor('nothing is in quarantine', async () => (await quarantined()).length === 0, {
        deadlineMs: 60_000,
      });
      await waitFor(
        'the containers have their names',
        async () =>
          Object.values(await containers())
            .toSorted()
            .join() === 'svc-fresh running,svc-grow running,svc-keep running',
        { deadlineMs: 60_000 },
      );
      const report = await prober.stop();
      expect(report).toMatchObject({ failed: 0, failures: [] });
      console.log(`keep: ${report.sent} requests`);
    });
  },
);
