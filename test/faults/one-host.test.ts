/**
 * A host never shows another project: four projects on one node, 50 requests a second to each
 * through a real Traefik, while the engine restarts, with and without its agents and the control
 * plane. Each page is the number of its project.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type HostLoad, type Hosts, loadText, underLoad } from './lib/host-load.ts';
import { pageApp, startWorld, whyNot, type World } from '../e2e/world.ts';

const HOSTS = ['p1', 'p2', 'p3', 'p4'];
const PER_SECOND = 50;
const ROUNDS = 10;

const reason = await whyNot('traefik');
describe.skipIf(reason !== undefined)('the host of a project', () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld({
      proxy: 'traefik',
      agents: (engine) => [
        { name: 'builder-1', role: 'builder', engine },
        { name: 'node-1', role: 'deploy', engine },
      ],
    });
    for (const [i, name] of HOSTS.entries()) {
      const { url } = await world.git.createRepo(name, pageApp(i + 1));
      const project = await world.berth.createProject({ name, git_url: url, domain_prefix: name });
      const d = await world.berth.settled(await world.berth.deploy(project), 180_000);
      expect(d.status, JSON.stringify(d.error)).toBe('running');
    }
  }, 600_000);
  afterAll(() => world?.stop(), 120_000);

  const hosts: Hosts = {
    pages: new Map(HOSTS.map((host, i) => [host, new RegExp(`^version ${i + 1}$`)])),
    get: (host) => world.berth.get(host, '/', { timeoutMs: 3_000 }),
  };
  const shows = async (host: string): Promise<boolean> =>
    hosts.pages.get(host)?.test((await hosts.get(host)).body.trim()) === true;
  async function seenDuring(what: string, during: () => Promise<unknown>): Promise<HostLoad> {
    const load = await underLoad(hosts, during, { perSecond: PER_SECOND });
    console.log(`${what}: ${loadText(load)}`);
    return load;
  }
  const agent = () => world.berth.agents['node-1'] ?? expect.fail('no agent');
  const restart = async (): Promise<void> => world.engine.faults?.restartDaemon('SIGTERM');

  it('shows no other project in ten restarts of the engine', { timeout: 1_200_000 }, async () => {
    const all: HostLoad[] = [];
    for (let i = 1; i <= ROUNDS; i += 1) all.push(await seenDuring(`restart ${i}`, restart));
    expect(all.flatMap(({ wrong }) => wrong)).toEqual([]);
    expect(all.every(({ right }) => right > 0)).toBe(true);
  });

  it.each<[string, () => Promise<void>]>([
    [
      'the agent starts with the engine (reboot)',
      async () => {
        await agent().stop();
        await restart();
        await agent().start();
      },
    ],
    [
      'the agent starts 8 s after the engine',
      async () => {
        await agent().stop();
        await restart();
        // The time without an agent is the fault.
        await sleep(8_000);
        await agent().start();
      },
    ],
    [
      'the control plane is down during the reboot',
      async () => {
        await world.berth.controlPlane.stop();
        await agent().stop();
        await restart();
        await waitFor('every host shows its own project without Berth', () => shows('p1'), {
          deadlineMs: 90_000,
        });
        await world.berth.controlPlane.start();
        await agent().start();
      },
    ],
    ['the power is cut', async () => world.engine.faults?.restartDaemon('power-cut')],
  ])('shows no other project when %s', { timeout: 600_000 }, async (what, during) => {
    const { wrong, right } = await seenDuring(what, during);
    expect(wrong).toEqual([]);
    expect(right).toBeGreaterThan(0);
  });
});
