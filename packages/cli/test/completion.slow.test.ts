/** `berth __complete`: what may follow, with names of the real control plane. */
import { beforeAll, describe, expect, test } from 'vitest';
import { createWorld } from '../../control-plane/test/api/deployed.ts';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { sourceOf } from '../src/completion/names.ts';
import { COMMANDS } from '../src/commands/table.ts';
import { ADMIN, type Person, person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let who: Person;
beforeAll(async () => {
  who = await signedIn(served.url);
  const world = await createWorld(served.api);
  const warehouse = await createProject(served.api, {
    name: 'warehouse',
    domain_prefix: 'warehouse',
  });
  await createProject(served.api, { name: 'web', domain_prefix: 'web' });
  await world.live(warehouse);
  await world.live(warehouse);
}, 60_000);

/** The words that may follow `line`, whose last word is at the cursor. */
async function after(
  line: string,
  given: Parameters<Person['berth']>[1] & { by?: Person } = {},
): Promise<string[]> {
  const { code, out, err } = await (given.by ?? who).berth(
    ['__complete', ...line.split(' ')],
    given,
  );
  expect({ code, err }, line).toEqual({ code: 0, err: '' });
  return out
    .split('\n')
    .filter((text) => text !== '')
    .map((text) => text.split('\t')[0] ?? '');
}

describe('words of the command table', () => {
  test.each([
    ['dep', ['deploy', 'deployment', 'deploy-key']],
    ['deployment ', ['list', 'show', 'watch']],
    ['node join-token ', ['list', 'delete']],
    ['node join-token --ro', ['--role']],
    ['node join-token --role ', ['builder', 'deploy']],
    ['hook create --forge=gi', ['--forge=github', '--forge=gitlab', '--forge=gitea']],
    ['project edit --submodules ', ['yes', 'no', 'warehouse', 'web']],
    [
      'deploy --commit abc --',
      ['--note', '--detach', '--project', '--context', '--json', '--help'],
    ],
    ['project create x --dataset a --datas', ['--dataset']],
    ['completion ', ['bash', 'zsh', 'fish']],
    ['doctor ag', ['agent']],
    ['doctor agent ', []],
    ['backup v', ['verify']],
    ['backup verify x --id', ['--identity']],
    ['resto', ['restore']],
    ['whoami ', []],
    ['nonsense ', []],
    ['deploy --commit ', []],
  ])('berth %s', async (line, expected) => {
    expect(await after(line)).toEqual(expected);
  });

  test('every noun is offered, with what it is', async () => {
    const { out } = await who.berth(['__complete', '']);
    const nouns = new Set(COMMANDS.map((command) => command.name.split(' ')[0]));
    const offered = new Map(
      out
        .trimEnd()
        .split('\n')
        .map((line) => line.split('\t') as [string, string]),
    );
    for (const noun of nouns) expect(offered.get(noun ?? ''), noun).toMatch(/\S/);
  });
});

describe('names of the server', () => {
  test.each([
    ['deploy ', ['warehouse', 'web']],
    ['status ware', ['warehouse']],
    ['deploy --project w', ['warehouse', 'web']],
    ['rollback warehouse --to ', ['2', '1']],
    ['node cordon n', ['node-1']],
    ['user show ', [ADMIN]],
  ])('berth %s', async (line, expected) => {
    const offered = await after(line);
    expect(offered).toEqual(expect.arrayContaining(expected));
    expect(offered.length).toBeGreaterThanOrEqual(expected.length);
  });

  test('every argument that names something has a source, except values of the person', () => {
    const own = [
      'url',
      'NAME',
      'fingerprint',
      'email',
      'shell',
      'name',
      'domain',
      'label',
      'process=count',
      'from',
      'to',
      'file',
      'path',
      'command',
      'local-port',
    ];
    const without = COMMANDS.flatMap((command) =>
      (command.args ?? [])
        .filter(
          ({ name }) => sourceOf({ command, value: name }) === undefined && !own.includes(name),
        )
        .map(({ name }) => `${command.name}: ${name}`),
    );
    expect(without).toEqual([]);
  });

  test('says nothing when nobody is signed in, nobody answers, or the token is refused', async () => {
    expect(await after('deploy ', { by: person() })).toEqual([]);
    for (const BERTH_URL of ['http://127.0.0.1:9', served.url])
      expect(await after('deploy ', { env: { BERTH_URL, BERTH_TOKEN: 'berthpat_x' } })).toEqual([]);
    expect(await after('context use nowhere')).toEqual([]);
  });

  test('a name that a shell would interpret is not offered: the shell inserts it as it is', async () => {
    const { createServer } = await import('node:http');
    const items = ['$(reboot)', 'a;b', 'two words', '`x`', '-rf', 'good', 'bell\u0007'].map(
      (name) => ({ name, url: 'x\u001b[2J\ty' }),
    );
    const liar = createServer((_, reply) =>
      reply.end(JSON.stringify({ items, next_cursor: null })),
    );
    await new Promise<void>((resolve) => liar.listen(0, '127.0.0.1', resolve));
    const env = {
      BERTH_URL: `http://127.0.0.1:${(liar.address() as { port: number }).port}`,
      BERTH_TOKEN: 'berthpat_x',
    };
    const { out } = await person().berth(['__complete', 'deploy', ''], { env });
    liar.close();
    expect(out).toBe('good\tx y\n');
  });

  test('a server that does not answer does not hold the shell', async () => {
    const { createServer } = await import('node:net');
    const silent = createServer(() => undefined);
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const env = {
      BERTH_URL: `http://127.0.0.1:${(silent.address() as { port: number }).port}`,
      BERTH_TOKEN: 'berthpat_x',
    };
    // The time limit of this test is the assertion: requests of other commands wait for 30 s.
    expect(await after('deploy ', { env })).toEqual([]);
    silent.close();
  });
});
