/**
 * The most important promise: no request of a client fails because of a deployment, however many
 * there are.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

/** `npm run soak -- --redeploys 100` makes more. */
const REDEPLOYS = 10;
const reason = await whyNot('traefik');

describe.skipIf(reason !== undefined)(
  `redeploys through the real Traefik${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    beforeAll(async () => {
      world = await startWorld({ proxy: 'traefik' });
    });
    afterAll(() => world?.stop());

    it(`${REDEPLOYS} redeploys under 50 requests/s: 0 failed, 0 stale`, async () => {
      const { berth, git } = world;
      const { url } = await git.createRepo('busy', pageApp(1));
      const project = await berth.createProject({
        name: 'busy',
        git_url: url,
        domain_prefix: 'busy',
        drain_seconds: 1,
        stop_grace_seconds: 1,
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      const prober = startProber({
        entry: berth.entry,
        host: `busy.${berth.baseDomain}`,
        perSecond: 50,
        versionOf,
      });
      for (let version = 2; version <= REDEPLOYS + 1; version++) {
        await git.commit('busy', pageApp(version), `version ${version}`);
        expect(await berth.settled(await berth.deploy(project))).toMatchObject({
          status: 'running',
          generation: version,
        });
        await waitFor(`a client receives version ${version}`, () => prober.latest() === version);
      }
      const report = await prober.stop();
      console.log(
        `${REDEPLOYS} redeploys: ${report.sent} requests, ${report.failed} failed, ` +
          `${report.stale} from an older version after a newer one; p50 ${report.p50.toFixed(1)} ` +
          `ms, p99 ${report.p99.toFixed(1)} ms`,
      );
      expect(report).toMatchObject({ failures: [], failed: 0, stale: 0 });
      expect(report.versions).toEqual(Array.from({ length: REDEPLOYS + 1 }, (_, i) => i + 1));
    });
  },
);
