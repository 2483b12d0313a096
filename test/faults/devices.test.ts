/**
 * Devices on real parts: an engine that knows the Container Device Interface has two of them. An
 * instance, a new version and a command have a device each, until their container is removed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deviceEngine } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { isOpenRun, type Run } from '@berth/wire/run';
import { ENDS_AT_ONCE, pageApp, startWorld, whyNot, type World } from '../e2e/world.ts';

const KIND = 'berth.example/toy';
/** Writes the devices of the container into its page. It has no RUN step: its runc has no seccomp. */
const APP = {
  ...pageApp(1),
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    ENDS_AT_ONCE,
    'EXPOSE 8080',
    'CMD ["sh", "-c", "ls /dev | grep toy > /www/device; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
};

const reason =
  (await whyNot('built-in')) ??
  (deviceEngine() === undefined ? 'no engine with devices: npm run setup -- --devices' : undefined);

describe.skipIf(reason !== undefined)(
  `devices${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: { id: string };
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        freshEngine: true,
        devices: { a: '/dev/null', b: '/dev/zero' },
      });
      const { berth, git } = world;
      const { url } = await git.createRepo('model', APP);
      project = await berth.createProject({
        name: 'model',
        git_url: url,
        domain_prefix: 'model',
        requires: { devices: { [KIND]: 1 } },
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
    }, 300_000);
    afterAll(() => world?.stop(), 60_000);

    const page = async (): Promise<string> =>
      (await world.berth.get('model', '/device')).body.trim();
    const start = (command: string[], devices: Record<string, number>): Promise<Run> =>
      world.berth.api.call('createRun', { params: project, body: { command, devices } });
    const get = (run: Run): Promise<Run> => world.berth.api.call('getRun', { params: run });
    const ended = async (run: Run, deadlineMs = 90_000): Promise<Run> => {
      await waitFor('the run ends', async () => !isOpenRun((await get(run)).status), {
        deadlineMs,
      });
      return get(run);
    };
    const output = async (run: Run): Promise<string[]> =>
      (await world.berth.api.call('runLogs', { params: run })).lines
        .filter(({ stream }) => stream === 'stdout')
        .map(({ text }) => text);
    const deployed = async (): Promise<void> => {
      const d = await world.berth.settled(await world.berth.deploy(project), 180_000);
      expect(d.status, JSON.stringify(d.error)).toBe('running');
    };

    it('the node shows the devices that the engine knows', async () => {
      const { items } = await world.berth.api.call('listNodes', { query: {} });
      expect(items.find(({ role }) => role === 'deploy')?.devices).toEqual({ [KIND]: ['a', 'b'] });
    });

    it('an instance has one device; the new version has the other one beside it', async () => {
      await deployed();
      expect(await page()).toBe('toy-a');
      await deployed();
      expect(await page()).toBe('toy-b');
    });

    it('a command has the free device, and a second command waits and says for what', async () => {
      const first = await start(['sh', '-c', 'ls /dev | grep toy; sleep 5'], { [KIND]: 1 });
      await waitFor('the first command runs', async () => (await output(first)).length > 0, {
        deadlineMs: 60_000,
      });
      const second = await start(['sh', '-c', 'ls /dev | grep toy'], { [KIND]: 1 });
      await waitFor('the second one says why it waits', async () =>
        ((await get(second)).reason ?? '').includes(KIND),
      );
      expect(await ended(first)).toMatchObject({ status: 'succeeded' });
      expect(await output(first)).toEqual(['toy-a']);
      expect(await ended(second)).toMatchObject({ status: 'succeeded' });
      expect(await output(second)).toEqual(['toy-a']);
      expect(await page()).toBe('toy-b');
    });

    it('a further instance takes the last device, one more waits, and both are free after the scale', async () => {
      const instances = async () =>
        (await world.berth.api.call('listInstances', { query: { project_id: project.id } })).items;
      const scale = (web: number) =>
        world.berth.api.call('scaleProject', { params: project, body: { web } });
      await scale(3);
      await waitFor(
        'two serve and the third says what it lacks',
        async () => {
          const all = await instances();
          return (
            all.filter(({ state }) => state === 'serving').length === 2 &&
            all.some(({ detail }) => (detail ?? '').includes(KIND))
          );
        },
        { deadlineMs: 90_000 },
      );
      await scale(1);
      await waitFor('one is left', async () => (await instances()).length === 1, {
        deadlineMs: 90_000,
      });
      const run = await start(['sh', '-c', 'ls /dev | grep -c toy'], { [KIND]: 1 });
      expect(await ended(run)).toMatchObject({ status: 'succeeded' });
      expect(await output(run)).toEqual(['1']);
    });

    it('the device of a command whose agent was killed is free when its container is gone', async () => {
      const node = world.berth.agents['node-1'];
      if (node === undefined) throw new Error('no agent node-1');
      const run = await start(['sh', '-c', 'echo begun; sleep 600'], { [KIND]: 1 });
      await waitFor('the command runs', async () => (await output(run)).includes('begun'), {
        deadlineMs: 60_000,
      });
      await node.crash();
      await node.start();
      await world.berth.api.call('cancelRun', { params: run });
      expect(await ended(run)).toMatchObject({ status: 'cancelled' });
      const next = await start(['sh', '-c', 'ls /dev | grep -c toy'], { [KIND]: 1 });
      // The next registration by itself comes after 30 s.
      expect(await ended(next, 20_000)).toMatchObject({ status: 'succeeded' });
    });
  },
);
