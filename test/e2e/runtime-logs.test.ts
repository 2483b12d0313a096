/**
 * Runtime logs on real parts: two viewers of one container follow it over a restart of the agent,
 * of the control plane, of the container and over a redeployment. Each line arrives once, or its
 * number is among the lost ones.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ContainerExit, LostLines, RuntimeLine } from '@berth/wire/runtime';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startWorld, whyNot, type World } from './world.ts';

const BURST = 30_000;
const LOOP = `httpd -p 8080 -h /www
i=0
while [ ! -e /tmp/stop ]; do
  i=$((i+1)); echo "tick $i"; usleep 10000
  # By the same process, so that no line begins within another.
  if [ -e /tmp/burst ]; then rm /tmp/burst; seq 1 BURST | sed 's/^/burst /'; fi
done
rm /tmp/stop
echo "last words"
exit 7
`.replace('BURST', String(BURST));
const app = {
  Dockerfile:
    'FROM busybox:stable\nRUN mkdir /www\nCOPY run.sh /run.sh\nEXPOSE 8080\nCMD ["sh", ' +
    '"/run.sh"]\n',
  'run.sh': LOOP,
};
const reason = await whyNot('built-in');

describe.skipIf(reason !== undefined)(
  `runtime logs${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let token: string;
    const stop = new AbortController();
    beforeAll(async () => {
      world = await startWorld({ proxy: 'built-in' });
      token = (await world.berth.api.call('login', { body: world.berth.admin })).token;
    });
    afterAll(async () => {
      stop.abort();
      await world?.stop();
    });

    type Viewer = {
      lines: RuntimeLine[];
      lost: number;
      ticks: () => number[];
      unexplained: string[];
    };
    /**
     * Reconnects as a browser does. `unexplained`: gaps of the numbers that no \`lost\` explains.
     */
    function follow(project: string): Viewer {
      const viewer: Viewer = {
        lines: [],
        lost: 0,
        unexplained: [],
        ticks: () =>
          viewer.lines.flatMap(({ text }) =>
            /^tick \d+$/.test(text) ? [Number(text.slice(5))] : [],
          ),
      };
      let lastId = '';
      let lostSince = 0;
      const take = (event: string, data: unknown): void => {
        if (event === 'lost') {
          viewer.lost += (data as LostLines).count;
          lostSince += (data as LostLines).count;
        }
        if (event !== 'line') return;
        const line = data as RuntimeLine;
        const before = viewer.lines.at(-1);
        const numberOf = (text = ''): number =>
          text.startsWith('tick ') ? Number(text.slice(5)) : Number.NaN;
        const [from, to] = [numberOf(before?.text), numberOf(line.text)];
        if (!Number.isNaN(to - from) && to !== 1 && to - from - 1 !== lostSince)
          viewer.unexplained.push(`${from} to ${to}, ${lostSince} lost`);
        lostSince = 0;
        viewer.lines.push(line);
      };
      void (async () => {
        while (!stop.signal.aborted) {
          try {
            const headers = {
              authorization: `Bearer ${token}`,
              accept: 'text/event-stream',
              'last-event-id': lastId,
            };
            const answer = await fetch(`${world.berth.url}/api/projects/${project}/logs?tail=0`, {
              headers,
              signal: stop.signal,
            });
            let rest = '';
            for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
              const blocks = (rest + part).split('\n\n');
              rest = blocks.pop() ?? '';
              for (const block of blocks) {
                const field = (name: string): string =>
                  new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1] ?? '';
                if (field('data') !== '') take(field('event'), JSON.parse(field('data')));
                if (field('id') !== '') lastId = field('id');
              }
            }
          } catch {
            // The control plane restarts.
          }
          await sleep(100);
        }
      })();
      return viewer;
    }

    it('each line arrives once or is counted, over restarts of each part; the ends of containers are kept', async () => {
      const { berth, git, engine } = world;
      const { url } = await git.createRepo('ticker', app);
      const project = await berth.createProject({
        name: 'ticker',
        git_url: url,
        domain_prefix: 'ticker',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
      const first = await berth.settled(await berth.deploy(project));
      expect(first.status).toBe('running');
      const viewers = [follow(project.id), follow(project.id)];
      const more = (what: string, count: number): Promise<unknown> => {
        const goals = viewers.map((viewer) => viewer.lines.length + count);
        return waitFor(
          what,
          async () => viewers.every((viewer, i) => viewer.lines.length >= (goals[i] ?? 0)),
          { deadlineMs: 60_000 },
        );
      };
      await more('both viewers have lines', 50);
      const container = (
        await engine.docker([
          'ps',
          '-q',
          '--no-trunc',
          '--filter',
          `label=berth.deployment=${first.id}`,
        ])
      ).stdout.trim();
      const { stdout } = await run(['ps', '-eo', 'args']);
      expect(
        stdout
          .split('\n')
          .filter(
            (args) =>
              args.includes(' logs ') && args.includes('--follow') && args.includes(container),
          ),
      ).toHaveLength(1);

      await berth.agents['node-1']?.stop();
      await berth.agents['node-1']?.start();
      await more('lines after the restart of the agent', 50);
      await berth.controlPlane.stop();
      await berth.controlPlane.start();
      await more('lines after the restart of the control plane', 50);
      expect(viewers.map(({ unexplained }) => unexplained)).toEqual([[], []]);

      const inside = (command: string): Promise<unknown> =>
        engine.docker(['exec', container, 'sh', '-c', command]);
      const lostBefore = viewers.map(({ lost }) => lost);
      await inside('touch /tmp/burst');
      const bursts = (viewer: Viewer): number =>
        viewer.lines.filter(({ text }) => text.startsWith('burst ')).length;
      const lost = (viewer: Viewer, i: number): number => viewer.lost - (lostBefore[i] ?? 0);
      const isOver = (viewer: Viewer, i: number): boolean =>
        bursts(viewer) + lost(viewer, i) >= BURST;
      await waitFor('the burst is over', async () => viewers.every(isOver), { deadlineMs: 60_000 });
      await more('lines after the burst', 20);
      for (const [i, viewer] of viewers.entries()) {
        const ticks = viewer.ticks();
        const missing = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0) + 1 - ticks.length;
        expect(lost(viewer, i)).toBe(BURST - bursts(viewer) + missing);
      }

      const exits = async (id: string): Promise<ContainerExit[]> =>
        (await berth.api.call('deploymentExits', { params: { id } })).items;
      await inside('touch /tmp/stop');
      await waitFor(
        'the end of the container is stored',
        async () => (await exits(first.id)).length === 1,
        { deadlineMs: 60_000 },
      );
      const [crash] = await exits(first.id);
      expect(crash).toMatchObject({ exit_code: 7, truncated: true });
      expect(crash?.lines).toHaveLength(200);
      expect(crash?.lines.at(-1)?.text).toBe('last words');
      await more('lines of the container that the engine started again', 20);

      const second = await berth.settled(await berth.deploy(project));
      expect(second.status).toBe('running');
      const shown = (viewer: Viewer): boolean =>
        viewer.lines.some((line) => line.deployment_id === second.id && line.text === 'tick 1');
      await waitFor(
        'both viewers show the next deployment from its first line',
        async () => viewers.every(shown),
        { deadlineMs: 60_000 },
      );
      await waitFor(
        'the end of the first version is stored',
        async () => (await exits(first.id)).length === 2,
        { deadlineMs: 60_000 },
      );
      expect((await exits(first.id))[0]?.lines.at(-1)?.text).toMatch(/^tick \d+$/);
    });
  },
);
