/**
 * From the last landed release to this version and back, under load: real processes and Traefik,
 * contract-only agents. With containers and agents of Berth: test/install/upgrade.test.ts.
 */
import { repositoryRoot } from '@berth/testbed/config';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { type Prober, startProber } from '@berth/testbed/prober';
import { provideRelease, type Release, whyNoRelease } from '@berth/testbed/release';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  signIn,
  type SignedInWorld,
  startSignedInWorld,
  whyNoSignIn,
} from '../e2e/signed-in-world.ts';

const reason = whyNoSignIn('traefik') ?? (await whyNoRelease());

describe.skipIf(reason !== undefined)(
  `upgrade and way back under load${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let release: Release;
    let world: SignedInWorld;
    const clients: Prober[] = [];
    beforeAll(async () => {
      release = await provideRelease();
      world = await startSignedInWorld({
        proxy: 'traefik',
        twoGateways: true,
        release: release.root,
      });
      const visitor = new PlainBrowser();
      expect((await signIn(visitor, world, world.berth.address('alpha'))).status).toBe(200);
      const cookie = visitor
        .cookies(`alpha.${world.berth.baseDomain}`)
        .map(({ name, value }) => `${name}=${value}`)
        .join('; ');
      for (const [prefix, headers] of [['open'], ['alpha', { cookie }]] as const)
        clients.push(client(prefix, headers));
    });
    afterAll(async () => {
      for (const client of clients) await client.stop();
      await world?.stop();
      await release?.remove();
    });
    const client = (prefix: string, headers: Record<string, string> = {}): Prober =>
      startProber({
        entry: world.berth.entry,
        host: `${prefix}.${world.berth.baseDomain}`,
        headers,
        perSecond: 25,
        versionOf: (body) => (body.includes(`"app":"${prefix}"`) ? 1 : Number.NaN),
      });
    const deploy = async (): Promise<void> => {
      const done = await world.berth.settled(
        await world.berth.deploy({ id: world.projectId('open') }),
        40_000,
      );
      expect([done.status, done.error]).toEqual(['running', null]);
    };
    /** The control plane first, then one gateway after the other. The way back is reversed. */
    const replace = async (root: string, back: boolean): Promise<void> => {
      const { controlPlane, gateways, traefik } = world.berth;
      const order = [controlPlane, ...gateways];
      for (const service of back ? order.toReversed() : order) {
        service.use(root);
        const gateway = gateways.indexOf(service);
        if (gateway !== -1) await traefik?.useGateways([gateway === 0 ? 1 : 0]);
        expect(await service.stop()).toBe(0);
        await service.start();
        if (gateway !== -1) await traefik?.useGateways([0, 1]);
        if (service === controlPlane) await deploy();
      }
      await deploy();
    };
    const state = async (): Promise<unknown> => {
      const { api } = world.berth;
      return [
        (await api.call('listProjects', { query: {} })).items.map(({ id, name, env }) => ({
          id,
          name,
          env,
        })),
        (await api.call('listUsers', { query: {} })).items.map(({ id, email, role }) => ({
          id,
          email,
          role,
        })),
        (await api.call('listDeployments', { query: { limit: 100 } })).items
          .map(({ id, status }) => ({ id, status }))
          .toReversed(),
      ];
    };

    it('the new version takes over, one process after the other', () =>
      replace(repositoryRoot, false));

    it('the previous version takes over again on the same database, and finds everything', async () => {
      const before = await state();
      await replace(release.root, true);
      const [projects, users, deployments] = (await state()) as unknown[][];
      const [projectsBefore, usersBefore, deploymentsBefore] = before as unknown[][];
      expect([projects, users]).toEqual([projectsBefore, usersBefore]);
      // The newest of them was replaced by a later deployment.
      expect(deployments?.slice(0, (deploymentsBefore?.length ?? 0) - 1)).toEqual(
        deploymentsBefore?.slice(0, -1),
      );
    });

    it('no request at a running project failed', async () => {
      const reports = await Promise.all(clients.map((client) => client.stop()));
      for (const { sent, failed, failures, slowest } of reports) {
        console.log(
          `upgrade: ${sent} requests, ${failed} failed, slowest ${Math.round(slowest)} ms ` +
            failures.join('; '),
        );
        expect({ failed, failures }).toEqual({ failed: 0, failures: [] });
        expect(sent).toBeGreaterThan(100);
      }
    });
  },
);
