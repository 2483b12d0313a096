/**
 * A host never shows another project: four projects on one node, 50 requests a second to each through a real Traefik, while the engine
 * restarts, with and without its agents and the control plane. Each page is the number of its project.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, whyNot, type World } from '../e2e/world.ts';

const HOSTS = ['p1', 'p2', 'p3', 'p4'];
const PER_SECOND = 50;
const ROUNDS = 10;
const wanted = (host: string): string => `version ${HOSTS.indexOf(host) + 1}`;

type Seen = { right: number; none: number; wrong: string[] };
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

  const page = (host: string): Promise<string | null> =>
    world.berth.get(host, '/', { timeoutMs: 3_000 }).then(
      ({ status, body }) => (status === 200 ? body.trim() : null),
      () => null,
    );

  /** Requests every host while `during` runs, and until all of them show their own page again. */
  async function underLoad(during: () => Promise<void>): Promise<Seen> {
    const seen: Seen = { right: 0, none: 0, wrong: [] };
    const running = new Set<Promise<void>>();
    let isOver = false;
    async function load(host: string): Promise<void> {
      while (!isOver) {
        const request = page(host).then((body) => {
          if (body === null) seen.none += 1;
          else if (body === wanted(host)) seen.right += 1;
          else seen.wrong.push(`${host} showed ${body}`);
        });
        running.add(request);
        void request.finally(() => running.delete(request));
        await sleep(1_000 / PER_SECOND);
      }
    }
    const loads = HOSTS.map(load);
    try {
      await during();
      await waitFor(
        'every host shows its own project again',
        async () => (await Promise.all(HOSTS.map(async (host) => (await page(host)) === wanted(host)))).every(Boolean),
        { deadlineMs: 90_000 },
      );
    } finally {
      isOver = true;
      await Promise.all([...loads, ...running]);
    }
    return seen;
  }
  const agent = () => world.berth.agents['node-1'] ?? expect.fail('no agent');
  const restart = async (): Promise<void> => world.engine.faults?.restartDaemon('SIGTERM');

  it('shows no other project in ten restarts of the engine', { timeout: 1_200_000 }, async () => {
    const all: Seen[] = [];
    for (let i = 0; i < ROUNDS; i += 1) all.push(await underLoad(restart));
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
        await waitFor('every host shows its own project without Berth', async () => (await page('p1')) === wanted('p1'), {
          deadlineMs: 90_000,
        });
        await world.berth.controlPlane.start();
        await agent().start();
      },
    ],
  ])('shows no other project when %s', { timeout: 600_000 }, async (_, during) => {
    const { wrong, right } = await underLoad(during);
    expect(wrong).toEqual([]);
    expect(right).toBeGreaterThan(0);
  });
});
