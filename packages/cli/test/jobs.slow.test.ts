/** Commands for jobs, runs and processes: what they say about a wrong name, and when a change holds. */
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import { createProject, register } from '../../control-plane/test/api/harness.ts';
import { loopParts } from '../../control-plane/test/api/loop-parts.ts';
import { runs } from '@berth/control-plane/loops/runs';
import { losesAnswers, type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let who: Person;
let world: World;

beforeAll(async () => {
  who = await signedIn(served.url);
  world = await createWorld(served.api);
  await world.live(await createProject(served.api));
}, 60_000);

const words = (line: string): string[] => {
  const [given = '', command] = line.split(' -- ');
  const rest = command === undefined ? [] : ['--', ...command.split(' ')];
  return [...given.split(' '), '--project', 'shop', ...rest];
};
const berth = (line: string) => who.berth(words(line));

describe('a job that does not exist', () => {
  test('each command names those that exist', async () => {
    expect((await berth('job show reprot')).err).toContain('no job reprot; it has none');
    const schedule = ['--schedule', '0 6 * * MON', '--project', 'shop', '--', 'true'];
    expect(await who.berth(['job', 'add', 'report', ...schedule])).toMatchObject({ code: 0 });
    for (const verb of ['show', 'run', 'runs', 'edit --disable', 'delete --yes']) {
      const { code, out, err } = await berth(`job ${verb} reprot`);
      expect({ code, out }, verb).toEqual({ code: 1, out: '' });
      expect(err, verb).toContain('the project has no job reprot; its jobs are report');
    }
  });

  test('one that never ran has no runs and says when it runs, and a deleted one keeps its runs', async () => {
    const none = await berth('job runs report');
    expect(none).toMatchObject({ code: 0 });
    expect(none.out).toMatch(/^no runs yet; the next one is 20\d\d-/);
    await berth('job edit report --disable');
    expect((await berth('job runs report')).out).toBe('no runs yet; the job is disabled\n');
    await berth('job run report --detach');
    await berth('job delete report --yes');
    expect((await berth('job runs report')).out).toMatch(/^run +status/);
  });
});

test.each(['run --detach -- true', 'job run once --detach'])(
  'berth %s: a control plane that dies before its answer has one run of it',
  async (line) => {
    if (line.startsWith('job'))
      expect((await berth('job add once --schedule @daily --overlap queue -- true')).err).toBe('');
    const listed = async (): Promise<string[]> =>
      JSON.parse((await berth('runs list --json')).out).items.map(({ id }: { id: string }) => id);
    const before = await listed();
    const way = await losesAnswers(served.url, /\/runs?$/);
    onTestFinished(() => way.close());
    const other = await signedIn(way.url);
    const { code, out, err } = await other.berth(words(line));
    expect({ code, lost: way.lost() }, err).toEqual({ code: 0, lost: 1 });
    const after = await listed();
    expect(after).toHaveLength(before.length + 1);
    expect(after).toContain(out.split('\n')[0]);
  },
);

test('a run that does not exist: the next step is the list', async () => {
  for (const verb of ['show', 'logs', 'cancel']) {
    const { code, err } = await who.berth(['runs', verb, 'f8f3ec2f']);
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringContaining('no run has the id f8f3ec2f; see: berth runs list'),
    });
  }
});

describe('process set says when a change holds', () => {
  test('a new process: with the next deployment', async () => {
    expect((await berth('process set worker --count 2')).out).toMatch(
      /^worker: 2 of .*; takes effect with the next deployment: berth deploy shop/,
    );
  });

  test('another count: at once, because it is not part of a release', async () => {
    const down = await berth('process set web --count 0');
    expect(down.out).toMatch(
      /^web: 0 of .*; the count \(it was 1\) changes at once; see: berth ps/,
    );
    expect((await berth('status')).out).toContain('shop is scaled to 0');
    expect((await berth('process set web --count 1 --cpus 1')).out).toMatch(
      /\(it was 0\) changes at once, everything else with the next deployment: berth deploy shop/,
    );
    expect((await berth('process set web --count 1 --cpus 2')).out).toMatch(
      /; takes effect with the next deployment: berth deploy shop/,
    );
  });
});

test('a command that works on a node: the node names it, and a silent node makes its state unknown', async () => {
  const { api } = served;
  const CAN = { agent_version: '0.3.0', capabilities: ['runs'] };
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  const { out } = await who.berth(['run', '--project', 'shop', '--detach', '--', 'true']);
  const [id = ''] = out.split('\n');
  await runs(loopParts(api, Date.now))(new AbortController().signal);
  const node = await who.berth(['node', 'show', world.home]);
  expect(node.out).toContain(
    `run ${id} of shop, at most 3600 s after its start (a drain waits for it)`,
  );
  const tasks = (await api.call('agentTasks', { query: { node_id: world.home } }))
    .json as unknown as { id: string; payload: { run_id?: string } }[];
  const task = tasks.find(({ payload }) => payload.run_id === id);
  await api.call('agentStart', { params: { id: task?.id ?? '' } });
  expect((await who.berth(['runs', 'show', id])).out).not.toContain('offline');
  api.pass(200_000);
  const silent = await who.berth(['runs', 'show', id]);
  expect(silent.out).toMatch(
    /\nreason +node-1 is offline \(last seen .*\), so the command may have ended/,
  );
});

describe('a project that does not run', () => {
  test('another count of a project that does not run: later', async () => {
    await createProject(served.api, { name: 'fresh', domain_prefix: 'fresh' });
    const set = (project: string) =>
      who.berth(['process', 'set', 'web', '--count', '2', '--project', project]);
    expect((await set('fresh')).out).toContain('takes effect with the next deployment');
    await who.berth(['stop', 'shop']);
    expect((await set('shop')).out).toContain('changes when the project starts: berth start shop');
  });

  test('whether exec is allowed: at once, whatever the health of the project is', async () => {
    const { err } = await who.berth(['project', 'edit', 'fresh', '--allow-exec', 'no']);
    expect(err).toBe('it is in effect\n');
  });
});
