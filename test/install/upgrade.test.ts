/**
 * From the last landed release to this version and back, under load, with containers, agents,
 * relay, two gateways and Traefik. Each process is replaced in the documented order
 * (docs/upgrade.md) while a deployment is in progress.
 */
import { repositoryRoot } from '@berth/testbed/config';
import { type IdentityProvider, startIdentityProvider } from '@berth/testbed/identity-provider';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import type { Service } from '@berth/testbed/platform';
import { type Prober, startProber } from '@berth/testbed/prober';
import { provideRelease, type Release, whyNoRelease } from '@berth/testbed/release';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ADA, whyNoSignIn } from '../e2e/signed-in-world.ts';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../e2e/world.ts';

const reason = (await whyNot('traefik')) ?? whyNoSignIn('traefik') ?? (await whyNoRelease());

describe.skipIf(reason !== undefined)(
  `upgrade and way back${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let release: Release;
    let idp: IdentityProvider;
    let world: World;
    let app: Project;
    let version = 1;
    const clients: Prober[] = [];

    beforeAll(async () => {
      release = await provideRelease();
      idp = await startIdentityProvider({ accounts: [ADA] });
      world = await startWorld({
        proxy: 'traefik',
        relay: true,
        release: release.root,
        // A task of an agent that stopped is given away after this time.
        env: { LEASE_TTL: '10s' },
        gateway: {
          two: true,
          env: (publicUrl) => {
            idp.allowRedirect(`${publicUrl}/_oauth/callback/oidc`);
            return {
              OIDC_ISSUER: idp.issuer,
              OIDC_CLIENT_ID: idp.clientId,
              OIDC_CLIENT_SECRET: idp.clientSecret,
            };
          },
        },
      });
      const { berth } = world;
      app = await create('app', false);
      await create('private', true);
      await berth.api.call('putSecret', {
        params: { id: app.id, name: 'TOKEN' },
        body: { value: 'a secret of the old version' },
      });
      const visitor = new PlainBrowser();
      const page = await idp.signIn(visitor, await visitor.open(berth.address('private')), ADA);
      expect([page.status, versionOf(page.body)]).toEqual([200, 1]);
      const cookie = visitor
        .cookies(`private.${berth.baseDomain}`)
        .map(({ name, value }) => `${name}=${value}`)
        .join('; ');
      for (const [prefix, headers] of [
        ['app', {}],
        ['private', { cookie }],
      ] as const)
        clients.push(
          startProber({
            entry: berth.entry,
            host: `${prefix}.${berth.baseDomain}`,
            headers,
            perSecond: 50,
            versionOf,
          }),
        );
    }, 300_000);
    afterAll(async () => {
      for (const client of clients) await client.stop();
      await world?.stop();
      await idp?.stop();
      await release?.remove();
    }, 120_000);

    const running = async (asked: { id: string }): Promise<void> => {
      const done = await world.berth.settled(asked, 180_000);
      expect([done.status, done.error]).toEqual(['running', null]);
    };
    async function create(name: string, auth_required: boolean): Promise<Project> {
      const { url } = await world.git.createRepo(name, pageApp(1));
      const project = await world.berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        auth_required,
        drain_seconds: 1,
      });
      await running(await world.berth.deploy(project));
      return project;
    }
    const inOrder = (): Service[] => {
      const { controlPlane, gateways, relay, agents } = world.berth;
      return [
        controlPlane,
        ...gateways,
        ...(relay === undefined ? [] : [relay]),
        ...Object.values(agents),
      ];
    };
    const replace = async (service: Service, root: string): Promise<void> => {
      const gateway = world.berth.gateways.indexOf(service);
      if (gateway !== -1) await world.berth.traefik?.useGateways([gateway === 0 ? 1 : 0]);
      version++;
      await world.git.commit('app', pageApp(version), `version ${version}`);
      const asked = await world.berth.deploy(app);
      service.use(root);
      const code = await service.stop();
      await service.start();
      if (gateway !== -1) await world.berth.traefik?.useGateways([0, 1]);
      await running(asked);
      expect(code, `exit code of ${service.name}`).toBe(0);
      expect(versionOf((await world.berth.get('app')).body)).toBe(version);
    };
    const state = async (): Promise<Record<string, unknown>> => {
      const { api } = world.berth;
      return {
        projects: (await api.call('listProjects', { query: {} })).items.map(({ id, name }) => ({
          id,
          name,
        })),
        users: (await api.call('listUsers', { query: {} })).items.map(({ id, email, role }) => ({
          id,
          email,
          role,
        })),
        secrets: (await api.call('listSecrets', { params: { id: app.id } })).items.map(
          ({ name }) => name,
        ),
        nodes: (await api.call('listNodes', { query: {} })).items.map(
          ({ id, hostname, status }) => ({ id, hostname, status }),
        ),
        deployments: (
          await api.call('listDeployments', { query: { project_id: app.id, limit: 100 } })
        ).items.length,
      };
    };

    it('each process is replaced by the new version while a deployment is in progress', async () => {
      for (const service of inOrder()) await replace(service, repositoryRoot);
    });

    it('the way back: each process is replaced by the old version, on the same database', async () => {
      const before = await state();
      const order = inOrder().toReversed();
      for (const service of order) await replace(service, release.root);
      const { deployments, ...after } = await state();
      expect({ ...after, deployments: Number(deployments) - order.length }).toEqual(before);
    });

    it('no request at a running project failed, and none got an older version', async () => {
      const reports = await Promise.all(clients.map((client) => client.stop()));
      for (const { sent, failed, stale, p99, slowest } of reports)
        console.log(
          `${sent} requests, ${failed} failed, ${stale} stale, p99 ${Math.round(p99)} ms, ` +
            `slowest ${Math.round(slowest)} ms`,
        );
      for (const { failed, failures, stale } of reports)
        expect({ failed, failures, stale }).toEqual({ failed: 0, failures: [], stale: 0 });
    });
  },
);
