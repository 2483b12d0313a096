/** Values of environment variables and secrets, custom domains, and lists of many projects. */
import { startDnsServer } from '@berth/testbed/dns-server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

const dns = await startDnsServer({
  'www.shop.example': { a: ['192.0.2.1'] },
  'old.shop.example': { a: ['198.51.100.7'] },
});
afterAll(() => dns.stop());
const served = serveOnce({
  env: {
    AUTH_SERVICE_URL: 'http://127.0.0.1:9',
    PUBLIC_IPS: '192.0.2.1',
    DNS_SERVERS: dns.address,
  },
});
let who: Person;
const VALUE = 'hunter2-of-the-tests';

beforeAll(async () => {
  who = await signedIn(served.url);
  await createProject(served.api);
}, 60_000);

describe('env', () => {
  test('set reads standard input and removes one newline; list shows it; unset removes it', async () => {
    expect(
      await who.berth(['env', 'set', 'MODE', '--project', 'shop'], { stdin: 'two\nlines\n\n' }),
    ).toMatchObject({
      code: 0,
      out: 'set MODE of shop\n',
    });
    expect(JSON.parse((await who.berth(['env', 'list', 'shop', '--json'])).out)).toMatchObject({
      env: { MODE: 'two\nlines\n' },
    });
    expect((await who.berth(['env', 'unset', 'MODE', '--project', 'shop'])).code).toBe(0);
    expect((await who.berth(['env', 'list', 'shop'])).out).toContain('no variables');
  });
});

describe('env files', () => {
  const shown = async (): Promise<Record<string, string>> =>
    (
      JSON.parse((await who.berth(['env', 'list', 'shop', '--json'])).out) as {
        env: Record<string, string>;
      }
    ).env;

  test('set takes several NAME=value at once, in one change', async () => {
    expect(
      await who.berth(['env', 'set', 'A=1', 'B=x=y z', 'C=', '--project', 'shop']),
    ).toMatchObject({
      code: 0,
      out: 'set A, B, C of shop\n',
    });
    expect(await shown()).toEqual({ A: '1', B: 'x=y z', C: '' });
    for (const [argv, said] of [
      [['A=1', 'B'], /argument 2 \(B\) has no value/],
      [['=secret'], /argument 1 has no name/],
      [['A=secret', 'A=secret'], /A is given twice/],
      [
        ['B', '=secret', 'A=secret', 'A=secret'],
        /argument 1 \(B\) has no value; argument 2 has no name; A is given twice/,
      ],
    ] as const) {
      const { code, out, err } = await who.berth(['env', 'set', ...argv, '--project', 'shop']);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toMatch(said);
      expect(err).not.toContain('secret');
    }
    expect(
      (await who.berth(['env', 'set', `1X=${VALUE}`, 'B=2', '--project', 'shop'])).err,
    ).not.toContain(VALUE);
    expect(await shown()).toEqual({ A: '1', B: 'x=y z', C: '' });
  });

  test('import shows what changes, changes it at once, and prints no value', async () => {
    const stdin = `\u{FEFF}# comment\r\nexport A=1\r\nB="two\r\nlines" # end\r\nKEY='${VALUE}#"'\r\n\r\n`;
    const dry = await who.berth(['env', 'import', '-', '--dry-run', '--project', 'shop'], {
      stdin,
    });
    expect(dry).toMatchObject({ code: 0, out: 'would add: KEY\nwould change: B\nunchanged: A\n' });
    expect(await shown()).toEqual({ A: '1', B: 'x=y z', C: '' });
    const done = await who.berth(['env', 'import', '-', '--project', 'shop', '--json'], { stdin });
    expect(JSON.parse(done.out)).toEqual({
      project: 'shop',
      dry_run: false,
      added: ['KEY'],
      changed: ['B'],
      unchanged: ['A'],
    });
    expect(done.out + done.err + dry.out + dry.err).not.toContain(VALUE);
    expect(await shown()).toEqual({ A: '1', B: 'two\nlines', C: '', KEY: `${VALUE}#"` });
    expect(
      (await who.berth(['env', 'import', '/no/such/file', '--project', 'shop'])).err,
    ).toContain('there is no file /no/such/file');
    expect((await who.berth(['env', 'import', '/', '--project', 'shop'])).code).toBe(2);
    expect(
      (await who.berth(['env', 'import', '-', '--project', 'shop'], { stdin: '# nothing\n' })).err,
    ).toContain('has no variables');
    for (const name of ['A', 'B', 'C', 'KEY'])
      await who.berth(['env', 'unset', name, '--project', 'shop']);
  });

  test('invalid lines are named, none with its text, and nothing is changed', async () => {
    const stdin = [
      'GOOD=1',
      `no assignment ${VALUE}`,
      `2X=${VALUE}`,
      `A="${VALUE}\\"x"`,
      `B="a" ${VALUE}`,
      `C=${VALUE}#x`,
      'GOOD=2',
      `D="${VALUE}`,
      'x',
    ].join('\n');
    const { code, out, err } = await who.berth(['env', 'import', '-', '--project', 'shop'], {
      stdin,
    });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    for (const said of [
      'line 2 is not NAME=value',
      'line 3 has an invalid name',
      'line 4 has',
      'line 5 has text after',
      'line 6 has a “#”',
      'line 7 sets GOOD again; line 1',
      'line 8 begins a value',
    ])
      expect(err).toContain(said);
    expect(err).not.toContain(VALUE);
    expect(await shown()).toEqual({});
  });

  test('secret import --file sets each entry as a secret; NAME moves a variable; both or none is wrong usage', async () => {
    const stdin = `FROM_FILE=${VALUE}\nOTHER='x y z'\n`;
    const importing = (...argv: string[]) =>
      who.berth(['secret', 'import', ...argv, '--project', 'shop'], { stdin });
    expect(await importing('--file', '-', '--dry-run')).toMatchObject({
      code: 0,
      out: 'would add: FROM_FILE, OTHER\n',
    });
    expect((await who.berth(['secret', 'list', 'shop'])).out).not.toContain('FROM_FILE');
    const done = await importing('--file', '-', '--scope', 'build');
    expect(done).toMatchObject({ code: 0, out: 'added: FROM_FILE, OTHER\n' });
    expect(done.out + done.err).not.toContain(VALUE);
    expect(await importing('--file', '-')).toMatchObject({ out: 'replaced: FROM_FILE, OTHER\n' });
    for (const argv of [[], ['NAME', '--file', '-'], ['NAME', '--dry-run']])
      expect((await importing(...argv)).code).toBe(2);
    expect(
      (await who.berth(['secret', 'import', '--file', '-', '--project', 'shop'], { stdin: 'E=\n' }))
        .err,
    ).toContain('may be empty: E');
    for (const name of ['FROM_FILE', 'OTHER'])
      await who.berth(['secret', 'unset', name, '--yes', '--project', 'shop']);
  });
});

test('an unknown project: the names that are near', async () => {
  for (const [name, near] of [
    ['shpo', 'shop'],
    ['Shop1', 'shop'],
    ['sho', 'shop'],
    ['warehouse', null],
  ] as const) {
    const { code, err } = await who.berth(['project', 'show', name]);
    expect(code).toBe(1);
    expect(err).toContain(
      near === null ? 'next: berth project list' : `did you mean ${near}? All: berth project list`,
    );
  }
});

describe('domain', () => {
  const domain = (...argv: string[]) => who.berth(['domain', ...argv]);

  test('add, check and remove take any spelling of the name, and check fails while one leads elsewhere', async () => {
    expect(await domain('add', 'WWW.Shop.example.', '--project', 'shop')).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^www\.shop\.example +ok +not published yet +192\.0\.2\.1$/m),
      err: '',
    });
    expect((await domain('check', 'shop')).code).toBe(0);
    expect(await domain('add', 'old.shop.example', '--project', 'shop')).toMatchObject({
      code: 0,
      err: expect.stringContaining(
        'old.shop.example leads to 198.51.100.7, not to 192.0.2.1 (PUBLIC_IPS)',
      ),
    });
    expect(await domain('check', 'shop')).toMatchObject({
      code: 1,
      err: expect.stringContaining('1 of 2 domains of shop have a problem: old.shop.example'),
    });
    expect((await domain('remove', 'OLD.shop.example', '--yes', '--project', 'shop')).code).toBe(0);
    expect((await domain('list', 'shop')).out).not.toContain('old.shop.example');
  });

  test('free says whether the host is in use or not kept', async () => {
    for (const [host, why] of [
      ['old.shop.example', 'old.shop.example is not kept for a project'],
      ['shop', 'another project already has this domain prefix'],
    ] as const)
      expect(await domain('free', host, '--yes')).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining(why),
      });
  });

  test.each([
    ['*.shop.example', 'has a wildcard'],
    ['127.1', 'is an IP address'],
    ['https://www.shop.example/', 'is not a host name like www.example.com'],
    ['berth.localhost', 'is reserved for the platform'],
    ['blog.berth.localhost', 'is under berth.localhost'],
    ['www.shop.example', 'another project already has www.shop.example'],
  ])('%s is refused, and the message names field and rule', async (name, rule) => {
    if (name === 'www.shop.example')
      await createProject(served.api, { name: 'second', domain_prefix: 'second' });
    const project = name === 'www.shop.example' ? 'second' : 'shop';
    const { code, out, err } = await domain('add', name, '--project', project);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/domains\[\d\]: /);
    expect(err).toContain(rule);
  });
});

describe('secret', () => {
  test('a value goes in and never comes out', async () => {
    const set = await who.berth(['secret', 'set', 'API_KEY', '--project', 'shop'], {
      stdin: `${VALUE}\n`,
    });
    expect(set).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^set API_KEY of shop \(fingerprint \w+\)\n$/),
    });
    const shown = [
      set,
      ...(await Promise.all(
        [
          ['secret', 'list', 'shop'],
          ['secret', 'list', 'shop', '--json'],
          ['secret', 'show', 'API_KEY', '--project', 'shop'],
          ['project', 'show', 'shop', '--json'],
        ].map((argv) => who.berth(argv)),
      )),
    ];
    for (const { out, err } of shown) expect(out + err).not.toContain(VALUE);
    expect(shown[1]?.out).toContain('API_KEY');
  });

  test('NAME=value is refused before the value is shown or sent', async () => {
    const { createServer } = await import('node:http');
    const seen: string[] = [];
    const server = createServer(
      (request, reply) => void reply.end(String(seen.push(request.url ?? ''))),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const env = {
      BERTH_URL: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
      BERTH_TOKEN: 'berthpat_x',
    };
    const { code, out, err } = await who.berth(
      ['secret', 'set', `API_KEY=${VALUE}`, '--project', 'shop'],
      { env, stdin: 'x' },
    );
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain('next: berth secret set API_KEY reads it from standard input');
    expect(err).not.toContain(VALUE);
    server.close();
    expect(seen).toEqual([]);
  });

  test('an empty value, a wrong scope and a missing confirmation are wrong usage', async () => {
    expect(
      await who.berth(['secret', 'set', 'X', '--project', 'shop'], { stdin: '\n' }),
    ).toMatchObject({
      code: 2,
      err: expect.stringContaining('is empty'),
    });
    expect(
      (
        await who.berth(['secret', 'set', 'X', '--scope', 'never', '--project', 'shop'], {
          stdin: 'a',
        })
      ).code,
    ).toBe(2);
    expect(await who.berth(['secret', 'unset', 'API_KEY', '--project', 'shop'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('--yes'),
    });
    expect(
      (await who.berth(['secret', 'unset', 'API_KEY', '--yes', '--project', 'shop'])).code,
    ).toBe(0);
  });

  test('the API refuses a value of more than 64 KiB with its own words, and not the value', async () => {
    const long = VALUE.repeat(4_000);
    const { code, err } = await who.berth(['secret', 'set', 'LONG', '--project', 'shop'], {
      stdin: long,
    });
    expect(code).toBe(1);
    expect(err).not.toContain(VALUE);
  });
});

describe('options from the schema', () => {
  test('sizes, numbers, yes and none become the types of the API', async () => {
    const argv = [
      'project',
      'edit',
      'shop',
      '--memory-bytes',
      '512MiB',
      '--cpus',
      '0.5',
      '--auth-required',
      'yes',
      '--health-path',
      '/up',
      '--json',
    ];
    const edited = await who.berth(argv);
    expect(edited.err).toBe('');
    expect(JSON.parse(edited.out)).toMatchObject({
      memory_bytes: 536_870_912,
      cpus: 0.5,
      auth_required: true,
      health_path: '/up',
    });
    expect(
      JSON.parse(
        (
          await who.berth([
            'project',
            'edit',
            'shop',
            '--memory-bytes',
            'none',
            '--auth-required',
            'no',
            '--json',
          ])
        ).out,
      ),
    ).toMatchObject({ memory_bytes: null, auth_required: false });
    for (const wrong of [
      ['--cpus', 'many'],
      ['--memory-bytes', 'much'],
      ['--auth-required', 'maybe'],
      ['--replace', 'never'],
      [],
    ])
      expect((await who.berth(['project', 'edit', 'shop', ...wrong])).code, wrong.join(' ')).toBe(
        2,
      );
  });

  test('a refusal of the API names each field once', async () => {
    const { code, err } = await who.berth(['project', 'edit', 'shop', '--container-port', '99999']);
    expect({ code, named: err.split('container_port').length - 1 }, err).toEqual({
      code: 1,
      named: 1,
    });
  });
});

describe('lists', () => {
  test('a list reads all pages; --limit stops early', async () => {
    const many = Array.from({ length: 230 }, (_, i) => `many-${String(i).padStart(3, '0')}`);
    for (const name of many) await createProject(served.api, { name, domain_prefix: name });
    const all = JSON.parse((await who.berth(['project', 'list', '--json'])).out) as {
      items: { name: string }[];
    };
    expect(all.items.filter((p) => p.name.startsWith('many-')).map((p) => p.name)).toEqual(many);
    const some = JSON.parse((await who.berth(['user', 'list', '--limit', '1', '--json'])).out) as {
      items: unknown[];
    };
    expect(some.items.length).toBe(1);
  });
});

describe('devices of a job', () => {
  const job = (...words: string[]) => who.berth(['job', ...words, '--project', 'shop']);
  const devices = async (): Promise<unknown> =>
    JSON.parse((await job('show', 'train', '--json')).out).devices;

  test('are given with --device, and “none” removes them', async () => {
    const given = ['--schedule', '@daily', '--device', 'nvidia.com/gpu', '--device', 'a.com/nic=2'];
    const added = await who.berth([
      'job',
      'add',
      'train',
      '--project',
      'shop',
      ...given,
      '--',
      'train',
    ]);
    expect(added.code, added.err).toBe(0);
    expect(await devices()).toEqual({ 'nvidia.com/gpu': 1, 'a.com/nic': 2 });
    expect((await job('show', 'train')).out).toContain('nvidia.com/gpu=1, a.com/nic=2');
    expect((await job('edit', 'train', '--retries', '1')).code).toBe(0);
    expect(await devices()).toEqual({ 'nvidia.com/gpu': 1, 'a.com/nic': 2 });
    expect((await job('edit', 'train', '--device', 'none')).code).toBe(0);
    expect(await devices()).toEqual({});
  });

  test('in a wrong form are refused with the form', async () => {
    const wrong = await job('edit', 'train', '--device', 'nvidia.com/gpu=one');
    expect(wrong.code).not.toBe(0);
    expect(wrong.err).toContain('--device nvidia.com/gpu=one: write KIND=COUNT or KIND');
  });
});
