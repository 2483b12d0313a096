/**
 * Runtime logs on real parts: two viewers of one container follow it over a restart of the agent,
 * of the control plane, of the container and over a redeployment. Without a burst each line arrives
 * once. In a burst no line comes twice, all are in order, and each gap is marked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { readFrames } from '@berth/testbed/event-stream';
import type { ContainerExit, RuntimeLine } from '@berth/wire/runtime';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastLines } from '../../packages/agent/src/engine/container-logs.ts';
import { createEngineClient } from '../../packages/agent/src/engine/engine-client.ts';
import { createRegistryCredentials } from '../../packages/agent/src/engine/registry-credentials.ts';
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
/** Prints the numbers to 6,000, the even ones to stderr. */
const BOTH = `httpd -p 8080 -h /www
while [ ! -e /tmp/begin ]; do usleep 10000; done
i=0
while [ $i -lt 6000 ]; do
  echo "$((i+1))"; echo "$((i+2))" >&2; i=$((i+2))
  [ $((i % 20)) -ne 0 ] || usleep 10000
done
sleep 1000
`;
/** Prints its host name and a number. */
const PAIR = `httpd -p 8080 -h /www
me=$(hostname)
i=0
while true; do i=$((i+1)); echo "$me $i"; usleep 20000; done
`;
const appOf = (script: string) => ({
  Dockerfile:
    'FROM busybox:stable\nRUN mkdir /www\nCOPY run.sh /run.sh\nEXPOSE 8080\nCMD ["sh", ' +
    '"/run.sh"]\n',
  'run.sh': script,
});
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
      /** Breaks the connection. The viewer resumes after its last line. */
      disconnect(): void;
    };
    /** Each line of a container has a number: ticks count on, and a burst counts from 1 to its end. */
    const numberOf = (text: string): { kind: string; number: number } | null => {
      const [, kind, number] = /^(tick|burst) (\d+)$/.exec(text) ?? [];
      return kind === undefined ? null : { kind, number: Number(number) };
    };
    /** Reconnects as a browser does. */
    function follow(project: string): Viewer {
      let connection = new AbortController();
      const viewer: Viewer = {
        lines: [],
        marks: 0,
        unexplained: [],
        disconnect: () => connection.abort(),
      };
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
            connection = new AbortController();
            const answer = await fetch(`${world.berth.url}/api/projects/${project}/logs?tail=0`, {
              headers: {
                authorization: `Bearer ${token}`,
                accept: 'text/event-stream',
                'last-event-id': lastId,
              },
              signal: AbortSignal.any([stop.signal, connection.signal]),
            });
            for await (const { event, id, data } of readFrames(answer)) {
              take(event, JSON.parse(data));
              lastId = id ?? lastId;
            }
          } catch {
            // The control plane restarts, or the viewer disconnects.
          }
          await sleep(100);
        }
      })();
      return viewer;
    }

    async function createProject(name: string, script: string, count = 1) {
      const { url } = await world.git.createRepo(name, appOf(script));
      return world.berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        drain_seconds: 0,
        stop_grace_seconds: 1,
        processes: [{ name: 'web', count }],
      });
    }
    const containerOf = async (deployment: string): Promise<string> => {
      const filter = `label=berth.deployment=${deployment}`;
      const { stdout } = await world.engine.docker(['ps', '-q', '--no-trunc', '--filter', filter]);
      return stdout.trim();
    };
    /** Number of readers that follow the log of a container. */
    const followsOf = (container: string): number =>
      shim.inProgress(new RegExp(`^GET /containers/${container}/logs\\?.*follow=true`));

    it('stdout and stderr arrive in the order of the engine, each line once, also if the viewer resumes in the middle', async () => {
      const { berth, engine } = world;
      const project = await createProject('both', BOTH);
      const deployment = await berth.settled(await berth.deploy(project));
      const container = await containerOf(deployment.id);
      const viewer = follow(project.id);
      await waitFor('the log is followed', async () => followsOf(container) === 1);
      await engine.docker(['exec', container, 'touch', '/tmp/begin']);
      for (const count of [1_000, 2_500, 4_000]) {
        await waitFor(`${count} lines`, async () => viewer.lines.length >= count);
        viewer.disconnect();
      }
      await waitFor('all lines', async () => viewer.lines.length >= 6_000, { deadlineMs: 60_000 });
      const credentials = createRegistryCredentials({ configDir: engine.dockerConfigDir });
      const client = createEngineClient({ dockerHost: engine.host, inherit: {}, credentials });
      const printed = await lastLines(client, container, 10_000);
      const shown = viewer.lines.map(({ stream, text }) => ({ stream, text }));
      expect(shown).toEqual(printed);
      const numbersOf = (stream: string) =>
        shown.flatMap((line) => (line.stream === stream ? [Number(line.text)] : []));
      for (const [stream, first] of [
        ['stdout', 1],
        ['stderr', 2],
      ] as const)
        expect(numbersOf(stream)).toEqual(Array.from({ length: 3_000 }, (_, i) => first + 2 * i));
      expect(viewer.marks).toBe(0);
    });

    it('two containers of a deployment on one node: each line has its instance, merged by time, and a resumed stream repeats and misses none', async () => {
      const { berth, engine } = world;
      const project = await createProject('pair', PAIR, 2);
      const deployment = await berth.settled(await berth.deploy(project));
      expect(deployment.status).toBe('running');
      const containers = (await containerOf(deployment.id)).split('\n');
      expect(containers).toHaveLength(2);
      /** The number of the instance by the name that its container prints. */
      const numbers = new Map<string, number>();
      for (const container of containers) {
        const [name, label] = await Promise.all([
          engine.docker(['exec', container, 'hostname']),
          engine.docker([
            'inspect',
            '--format',
            '{{ index .Config.Labels "berth.number" }}',
            container,
          ]),
        ]);
        numbers.set(name.stdout.trim(), Number(label.stdout.trim() || '1'));
      }
      expect(new Set(numbers.values())).toEqual(new Set([1, 2]));

      const viewer = follow(project.id);
      for (const count of [200, 400, 600]) {
        await waitFor(`${count} lines`, async () => viewer.lines.length >= count, {
          deadlineMs: 60_000,
        });
        viewer.disconnect();
      }
      await waitFor('further lines', async () => viewer.lines.length >= 800, {
        deadlineMs: 60_000,
      });
      const shown = viewer.lines.slice();
      expect(viewer.marks).toBe(0);
      for (const [name, number] of numbers) {
        const own = shown.filter(({ text }) => text.startsWith(`${name} `));
        expect(new Set(own.map(({ process, instance }) => `${process} ${instance}`))).toEqual(
          new Set([`web ${number}`]),
        );
        const counted = own.map(({ text }) => Number(text.split(' ')[1]));
        const [first = 0] = counted;
        expect(counted).toEqual(counted.map((_, i) => first + i));
      }
      const times = shown.map(({ at }) => Date.parse(at));
      const back = times.map((time, i) => Math.max(0, (times[i - 1] ?? time) - time));
      expect(Math.max(...back)).toBeLessThan(1_000);

      const params = { id: project.id };
      const query = { instance: 2, tail: 50 };
      const page = await berth.api.call('projectLogs', { params, query });
      expect(page.lines).toHaveLength(50);
      expect(new Set(page.lines.map(({ text }) => numbers.get(text.split(' ')[0] ?? '')))).toEqual(
        new Set([2]),
      );
    });

    it('each line arrives once, or a gap is marked, over restarts of each part; the ends of containers are kept', async () => {
      const { berth, engine } = world;
      const project = await createProject('ticker', LOOP);
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
      const container = await containerOf(first.id);
      expect(followsOf(container)).toBe(1);

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
