/**
 * Runtime logs on real parts: two viewers of one container follow it over a restart of the agent,
 * of the control plane, of the container and over a redeployment. Without a burst each line arrives
 * once. In a burst no line comes twice, all are in order, and each gap is marked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ContainerExit, RuntimeLine } from '@berth/wire/runtime';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type EngineShim, startEngineShim } from '../faults/lib/engine-shim.ts';
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
    let shim: EngineShim;
    let token: string;
    const stop = new AbortController();
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        agents: (engine) => {
          shim = startEngineShim(engine.host);
          return [
            { name: 'builder-1', role: 'builder', engine },
            { name: 'node-1', role: 'deploy', engine, env: shim.env },
          ];
        },
      });
      token = (await world.berth.api.call('login', { body: world.berth.admin })).token;
    });
    afterAll(async () => {
      stop.abort();
      await world?.stop();
      await shim?.stop();
    });

    type Viewer = {
      lines: RuntimeLine[];
      /** Gap marks. */
      marks: number;
      /** Lines of one deployment that come twice, not in order, or after a gap without a mark. */
      unexplained: string[];
    };
    /** Each line of a container has a number: ticks count on, and a burst counts from 1 to its end. */
    const numberOf = (text: string): { kind: string; number: number } | null => {
      const [, kind, number] = /^(tick|burst) (\d+)$/.exec(text) ?? [];
      return kind === undefined ? null : { kind, number: Number(number) };
    };
    /** Reconnects as a browser does. */
    function follow(project: string): Viewer {
      const viewer: Viewer = { lines: [], marks: 0, unexplained: [] };
      const newest = new Map<string, number>();
      let lastId = '';
      /** Kinds of lines that the last mark can explain. */
      const marked = new Set<string>();
      const take = (event: string, data: unknown): void => {
        if (event === 'lost') {
          viewer.marks += 1;
          marked.add('tick').add('burst');
        }
        if (event !== 'line') return;
        const line = data as RuntimeLine;
        viewer.lines.push(line);
        const at = numberOf(line.text);
        if (at === null) return;
        const key = `${line.deployment_id} ${at.kind}`;
        const before = newest.get(key);
        newest.set(key, at.number);
        // A new run of the container counts from 1, and so does a burst.
        const isNext = before === undefined || at.number === before + 1 || at.number === 1;
        if (!isNext && !(marked.has(at.kind) && at.number > before))
          viewer.unexplained.push(`${at.kind} ${before} to ${at.number}`);
        marked.delete(at.kind);
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

    it('each line arrives once, or a gap is marked, over restarts of each part; the ends of containers are kept', async () => {
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
      expect(
        shim.inProgress(new RegExp(`^GET /containers/${container}/logs\\?.*follow=true`)),
      ).toBe(1);

      await berth.agents['node-1']?.stop();
      await berth.agents['node-1']?.start();
      await more('lines after the restart of the agent', 50);
      await berth.controlPlane.stop();
      await berth.controlPlane.start();
      await more('lines after the restart of the control plane', 50);
      // A restart loses no line.
      expect(viewers.map(({ unexplained, marks }) => [unexplained, marks])).toEqual([
        [[], 0],
        [[], 0],
      ]);

      const inside = (command: string): Promise<unknown> =>
        engine.docker(['exec', container, 'sh', '-c', command]);
      await inside('touch /tmp/burst');
      const burstOf = (viewer: Viewer): number[] =>
        viewer.lines.flatMap(({ text }) => {
          const at = numberOf(text);
          return at?.kind === 'burst' ? [at.number] : [];
        });
      const lastTick = (viewer: Viewer): number => {
        const at = numberOf(viewer.lines.at(-1)?.text ?? '');
        return at?.kind === 'tick' ? at.number : 0;
      };
      const ticksBefore = Math.max(...viewers.map(lastTick));
      await waitFor(
        'the burst is over',
        async () => viewers.every((v) => burstOf(v).length > 0 && lastTick(v) > ticksBefore),
        { deadlineMs: 60_000 },
      );
      await more('lines after the burst', 20);
      for (const viewer of viewers) {
        expect(new Set(burstOf(viewer)).size).toBe(burstOf(viewer).length);
        if (burstOf(viewer).length < BURST) expect(viewer.marks).toBeGreaterThan(0);
      }
      expect(viewers.map(({ unexplained }) => unexplained)).toEqual([[], []]);

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
      expect(viewers.map(({ unexplained }) => unexplained)).toEqual([[], []]);
    });
  },
);
