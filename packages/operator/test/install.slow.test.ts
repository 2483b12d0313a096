/**
 * `berth install`: what it refuses, what it writes, and what it keeps. test/install/ runs it on
 * whole machines.
 */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bcryptHash, isBcryptOf } from '../src/install/bcrypt.ts';
import { apply, compare, type Wanted } from '../src/install/changes.ts';
import { checkControlPlane, checkSystem, type Findings, isAtLeast } from '../src/install/checks.ts';
import { type ComposeSettings, wantedForCompose } from '../src/install/compose.ts';
import { parseOptions } from '../src/install/options.ts';
import {
  composeSettings,
  internalAddress,
  partsOf,
  projectDomain,
  registryHost,
  type Settings,
  settingsOf,
} from '../src/install/settings.ts';
import { stateOf, usersOf } from '../src/install/run.ts';
import { shipped } from '../src/install/shipped.ts';
import { type Extras, wantedFor } from '../src/install/wanted.ts';
import { parseEnv } from '../src/lib/etc-files.ts';
import { listeningSockets } from '../src/lib/machine.ts';

const me = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
const hidden = { mode: 0o600, ...me };
let folder: string;
const at = (name: string): string => join(folder, name);
const text = (name: string): string => readFileSync(at(name), 'utf8');
const install = async (...wanted: Wanted[]): Promise<{ says: string[]; kept: string[] }> => {
  const { changes, kept } = await compare(wanted, { path: at('.shipped'), access: hidden });
  const says: string[] = [];
  apply(changes, (line) => says.push(line.replaceAll(`${folder}/`, '')));
  return { says, kept: kept.map((line) => line.replaceAll(`${folder}/`, '')) };
};
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'berth-install-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('arguments', () => {
  test.each([[[]], [['everything']], [['all', 'gateway']]])('%j names no target', (args) => {
    expect(() => parseOptions(args)).toThrow(
      'name one of control-plane, gateway, registry, proxy, agent, all',
    );
  });
  test('a role is for agents', () => {
    expect(() => parseOptions(['all', '--role', 'deploy'])).toThrow(
      '--role is for berth install agent',
    );
    expect(() => parseOptions(['agent', '--role', 'db'])).toThrow(
      '--role must be builder or deploy, not "db"',
    );
  });
  test('all is everything', () => {
    expect([...partsOf('all', parseOptions(['all']).roles)]).toEqual([
      'control-plane',
      'gateway',
      'registry',
      'proxy',
      'builder',
      'deploy',
    ]);
  });

  test.each([
    ['10.0.0.1', 'must be a domain name, not the address 10.0.0.1'],
    ['https://apps.example.org', 'must be a domain name without scheme or port'],
    ['*.apps.example.org', 'must be the domain itself: write apps.example.org'],
    ['apps example.org', 'must be a domain name without spaces'],
    [' apps.example.org', 'must be a domain name without spaces'],
    ['localhost', 'must be a full domain name'],
    ['apps.example.org:443', 'must be a domain name without scheme or port'],
    ['apps..example.org', 'must be a domain name without scheme or port'],
    ['', 'must be a domain name'],
  ])('the domain %j is refused', (domain, message) => {
    expect(() => projectDomain(domain)).toThrow(message);
  });
  test('a domain is lower case', () =>
    expect(projectDomain('Apps.Example.ORG')).toBe('apps.example.org'));

  test.each(['127.0.0.1', '::1', '0.0.0.0', 'node-1', '10.0.0.1:8080'])(
    'the internal address %j is refused',
    (address) => {
      expect(() => internalAddress(address)).toThrow('must be an');
    },
  );
  test.each(['https://registry.example.org', 'a b'])('the registry %j is refused', (address) => {
    expect(() => registryHost(address)).toThrow('without a scheme');
  });
});

describe('everything that is missing is named at once', () => {
  const asked = (args: string[]) => settingsOf(parseOptions(args));
  test('flags, where nobody can be asked', async () => {
    await expect(
      asked([
        'all',
        '--gateway',
        'ftp://x',
        '--internal-address',
        '127.0.0.1',
        '--registry',
        'https://r',
      ]),
    ).rejects.toThrow(
      /--base-domain is missing[^]*--admin is missing[^]*--internal-address: must be[^]*--gateway: [^]*--acme-email is missing[^]*--registry: must be/,
    );
    await expect(
      composeSettings(parseOptions(['all', '--compose']).values, new Map()),
    ).rejects.toThrow(/--base-domain[^]*--admin is missing/);
    await expect(
      composeSettings(parseOptions(['all', '--compose', '--admin', 'x']).values, new Map()),
    ).rejects.toThrow(WrongUsage);
  });
  test('users, without the package', () => {
    expect(usersOf(() => undefined)).toMatchObject({
      problem: expect.stringMatching(
        /^the users berth, berth-gateway, berth-proxy, berth-registry are missing .*: install the package of Berth/,
      ),
    });
    expect(
      usersOf((name) => (name === 'berth-proxy' ? undefined : { uid: 1, gid: 1 })),
    ).toMatchObject({
      problem: expect.stringContaining('the user berth-proxy is missing'),
    });
  });
});

describe('checks', () => {
  const findings = (os: Parameters<typeof checkSystem>[0]): Findings => {
    const found: Findings = { problems: [], warnings: [] };
    checkSystem(os, found);
    return found;
  };
  test.each([
    [{ id: 'debian', like: '', version: '12', name: 'Debian 12' }, [], []],
    [{ id: 'debian', like: '', version: '', name: 'Debian sid' }, [], []],
    [
      { id: 'debian', like: '', version: '11', name: 'Debian 11' },
      ['this is Debian 11: Berth needs Debian 12 or newer'],
      [],
    ],
    [
      { id: 'ubuntu', like: 'debian', version: '24.04', name: 'Ubuntu' },
      [],
      ['this is Ubuntu: Berth is tested on Debian 12 and newer'],
    ],
  ])('%j', (os, problems, warnings) => expect(findings(os)).toEqual({ problems, warnings }));
  test('an unknown system is refused', () => {
    expect(findings({ id: 'alpine', like: '', version: '3', name: 'Alpine' }).problems[0]).toMatch(
      /^this is Alpine: .* use the image/,
    );
  });
  test('versions are compared by number', () => {
    expect(
      ['3.7.13', '3.10.0', '4.0', 'v3.7.14-rc1'].filter((one) => !isAtLeast(one, [3, 7, 13])),
    ).toEqual([]);
    expect(['3.7.9', '3.6.99', '2.11', ''].filter((one) => isAtLeast(one, [3, 7, 13]))).toEqual([]);
  });
  test.each([
    [0, []],
    [20_000, []],
    [-90_000, ['the clock of this machine is 90 s ahead of the control plane']],
    [90_000, ['the clock of this machine is 90 s behind the control plane']],
  ])('a control plane whose clock is %i ms ahead', async (ms, problems) => {
    const server = createServer(
      (_, response) =>
        void response.writeHead(200, { date: new Date(Date.now() + ms).toUTCString() }).end('{}'),
    );
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const found: Findings = { problems: [], warnings: [] };
    await checkControlPlane(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, found);
    server.close();
    expect(found.problems.map((line) => line.split("'")[0]?.replace(/(89|91) s/, '90 s'))).toEqual(
      problems,
    );
  });
  test('a control plane that does not answer', async () => {
    const found: Findings = { problems: [], warnings: [] };
    await checkControlPlane('http://127.0.0.1:1', found);
    expect(found.problems[0]).toMatch(
      /^the control plane does not answer at http:\/\/127\.0\.0\.1:1: .*--internal-address ADDRESS --start$/,
    );
  });
  test('only sockets that listen count', () => {
    const row = (local: string, state: string, inode: string): string =>
      `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        ` +
      `0 ${inode} 1 0 100 0 0 10 0`;
    const table = [
      '  sl local',
      row('0100007F:1F90', '0A', '11'),
      row('0100007F:1F90', '01', '12'),
      row('00000000:0050', '0A', '13'),
    ].join('\n');
    expect(listeningSockets(table, 8080)).toEqual(['11']);
    expect(listeningSockets(table, 80)).toEqual(['13']);
    expect(listeningSockets(table, 443)).toEqual([]);
  });
});

describe('changes', () => {
  const env = (
    values: Record<string, string>,
    ...given: string[]
  ): Extract<Wanted, { kind: 'env' }> => ({
    kind: 'env',
    path: at('a.env'),
    access: hidden,
    values,
    given: new Set(given),
  });
  const secret = (...names: string[]): Wanted => ({
    kind: 'secret',
    files: names.map((name) => ({
      path: at(name),
      access: hidden,
      env: at('a.env'),
      name: 'SECRET',
    })),
  });

  test('a second run changes nothing', async () => {
    const wanted: Wanted[] = [
      { kind: 'folder', path: at('sub'), access: { mode: 0o700, ...me } },
      secret('sub/one', 'sub/two'),
      env({ BASE_DOMAIN: 'a.example.org' }),
      {
        kind: 'htpasswd',
        path: at('htpasswd'),
        access: hidden,
        user: 'berth',
        password: at('sub/one'),
      },
      { kind: 'shipped', path: at('b.yml'), access: hidden, from: 'b.yml', text: 'b: 1\n' },
      { kind: 'edited', path: at('c.yml'), access: hidden, edit: (before) => before ?? 'c: 1\n' },
    ];
    const { says } = await install(...wanted);
    expect(says).toEqual([
      'folder sub',
      'secret sub/one',
      'secret sub/two',
      'a.env: BASE_DOMAIN=a.example.org',
      'password file htpasswd',
      'b.yml',
      'c.yml',
    ]);
    expect(text('sub/one')).toMatch(/^[0-9a-f]{64}\n$/);
    expect(text('sub/two')).toBe(text('sub/one'));
    expect(says.join(' ')).not.toContain(text('sub/one').trim());
    expect(await install(...wanted)).toEqual({ says: [], kept: [] });
  });

  test.each([1, 2, 3, 4, 5, 6])(
    'a run that was killed after change %i is completed, with the same secrets',
    async (count) => {
      const wanted: Wanted[] = [
        { kind: 'folder', path: at('sub'), access: { mode: 0o700, ...me } },
        secret('sub/one', 'sub/two'),
        env({ BASE_DOMAIN: 'a.example.org' }),
        {
          kind: 'htpasswd',
          path: at('htpasswd'),
          access: hidden,
          user: 'berth',
          password: at('sub/one'),
        },
        { kind: 'shipped', path: at('b.yml'), access: hidden, from: 'b.yml', text: 'b: 1\n' },
      ];
      const { changes } = await compare(wanted, { path: at('.shipped'), access: hidden });
      apply(changes.slice(0, count), () => {});
      writeFileSync(at('sub/.two.0123456789ab.new'), 'half');
      const before = existsSync(at('sub/one')) ? text('sub/one') : undefined;
      await install(...wanted);
      expect(text('sub/two')).toBe(before ?? text('sub/one'));
      expect(
        await isBcryptOf(text('sub/one').trim(), text('htpasswd').trim().slice('berth:'.length)),
      ).toBe(true);
      expect(existsSync(at('sub/.two.0123456789ab.new'))).toBe(false);
      expect(await install(...wanted)).toEqual({ says: [], kept: [] });
    },
  );

  test('what the operator changed stays and is named; a flag replaces it', async () => {
    writeFileSync(at('a.env'), '# mine\nLISTEN=10.0.0.9:8080\nKEEP=1\n', { mode: 0o600 });
    expect(await install(env({ LISTEN: '10.0.0.1:8080', NEW: '2' }))).toEqual({
      says: ['a.env: NEW=2'],
      kept: ['a.env: LISTEN=10.0.0.9:8080 (the default here is 10.0.0.1:8080)'],
    });
    expect(await install(env({ LISTEN: '10.0.0.1:8080' }, 'LISTEN'))).toEqual({
      says: ['a.env: LISTEN=10.0.0.1:8080'],
      kept: [],
    });
    expect(text('a.env')).toBe('# mine\nLISTEN=10.0.0.1:8080\nKEEP=1\nNEW=2\n');
  });

  test('a secret in an environment file moves to its own file', async () => {
    writeFileSync(at('a.env'), 'SECRET=by-hand\n', { mode: 0o600 });
    const { says } = await install(secret('one'), env({ SECRET_FILE: at('one') }));
    expect(says).toEqual(['secret one', 'a.env: SECRET moves to its file SECRET_FILE=one']);
    expect([text('one'), text('a.env')]).toEqual(['by-hand\n', `SECRET_FILE=${at('one')}\n`]);
  });

  test('rotated secrets stay', async () => {
    writeFileSync(at('one'), 'new,old\n', { mode: 0o600 });
    await install(secret('one', 'two'));
    expect([text('one'), text('two')]).toEqual(['new,old\n', 'new,old\n']);
  });

  test('a wrong mode is repaired', async () => {
    await install(secret('one'));
    chmodSync(at('one'), 0o644);
    expect((await install(secret('one'))).says).toEqual(['mode and owner of one']);
    expect(statSync(at('one')).mode & 0o777).toBe(0o600);
  });

  test('a link in place of a secret is named, and the file behind it keeps its mode and content', async () => {
    writeFileSync(at('victim'), 'of another user\n', { mode: 0o644 });
    symlinkSync(at('victim'), at('one'));
    await expect(install(secret('one'))).rejects.toThrow(`${at('one')} is a symbolic link`);
    await expect(
      install({
        kind: 'shipped',
        path: at('one'),
        access: hidden,
        from: 'b.yml',
        text: 'of another user\n',
      }),
    ).rejects.toThrow(`${at('one')} is a symbolic link`);
    expect([text('victim'), statSync(at('victim')).mode & 0o777]).toEqual([
      'of another user\n',
      0o644,
    ]);
  });

  test('a link that replaces a secret between question and answer is not followed', async () => {
    writeFileSync(at('one'), 'secret\n', { mode: 0o644 });
    const { changes } = await compare([secret('one')], { path: at('.shipped'), access: hidden });
    writeFileSync(at('victim'), 'x', { mode: 0o644 });
    rmSync(at('one'));
    symlinkSync(at('victim'), at('one'));
    expect(() => apply(changes, () => {})).toThrow(`${at('one')} is a symbolic link`);
    expect(statSync(at('victim')).mode & 0o777).toBe(0o644);
  });

  test('a folder in place of a secret is named', async () => {
    await install({ kind: 'folder', path: at('one'), access: { mode: 0o700, ...me } });
    await expect(install(secret('one'))).rejects.toThrow(`${at('one')} is not a regular file`);
  });

  test('an environment file never gets a wider mode', async () => {
    const wide = (values: Record<string, string>): Wanted => ({
      ...env(values),
      access: { mode: 0o640, ...me },
    });
    writeFileSync(at('a.env'), 'A=1\n', { mode: 0o600 });
    expect((await install(wide({ A: '1' }))).says).toEqual([]);
    await install(wide({ A: '1', B: '2' }));
    expect(statSync(at('a.env')).mode & 0o777).toBe(0o600);
    chmodSync(at('a.env'), 0o640);
    expect((await install(env({ A: '1' }))).says).toEqual(['mode and owner of a.env']);
    expect(statSync(at('a.env')).mode & 0o777).toBe(0o600);
  });

  test('a dry run removes no draft', async () => {
    const draft = at('.one.0123456789ab.new');
    writeFileSync(draft, 'half');
    const { mode } = statSync(folder);
    const wanted: Wanted = { kind: 'folder', path: folder, access: { mode: mode & 0o7777, ...me } };
    const { changes } = await compare([wanted], { path: at('.shipped'), access: hidden });
    expect(existsSync(draft)).toBe(true);
    expect(changes.map(({ says }) => says)).toEqual([
      `${folder} without the drafts of a killed run`,
    ]);
    apply(changes, () => {});
    expect(existsSync(draft)).toBe(false);
  });

  test('a new version replaces a file that comes with Berth, unless the operator changed it', async () => {
    const file = (content: string): Wanted => ({
      kind: 'shipped',
      path: at('b.yml'),
      access: hidden,
      from: 'b.yml',
      text: content,
    });
    await install(file('version: 1\n'));
    expect((await install(file('version: 2\n'))).says).toEqual(['b.yml']);
    writeFileSync(at('b.yml'), 'version: 2\nmine: true\n');
    const { says, kept } = await install(file('version: 3\n'));
    expect([says, kept.length, text('b.yml')]).toEqual([[], 1, 'version: 2\nmine: true\n']);
    expect(kept[0]).toMatch(/^b\.yml: it has changes of your own/);
  });

  test('other users of the password file stay', async () => {
    writeFileSync(at('one'), 'secret\n', hidden);
    writeFileSync(at('htpasswd'), `ci:${await bcryptHash('x')}\nberth:$2y$10$wrong\n`, hidden);
    await install({
      kind: 'htpasswd',
      path: at('htpasswd'),
      access: hidden,
      user: 'berth',
      password: at('one'),
    });
    expect(text('htpasswd').match(/^\w+/gm)).toEqual(['ci', 'berth']);
  });
});

describe('settings of the parts', () => {
  const users = { root: me, berth: me, gateway: me, proxy: me, registry: me };
  const settings: Settings = {
    parts: partsOf('all', new Set(['builder', 'deploy'] as const)),
    baseDomain: 'a.example.org',
    admins: 'ada@example.org',
    internalAddress: undefined,
    controlPlane: 'http://127.0.0.1:8080',
    gateway: 'http://127.0.0.1:4180',
    registry: undefined,
    acmeEmail: 'ada@example.org',
    flags: new Set(),
  };
  const extras: Extras = {
    users,
    shipped,
    madeByControlPlane: () => undefined,
    hasDatabase: false,
    needsKey: false,
  };
  const valuesOf = (
    given: Partial<Settings>,
    more: Partial<Extras> = {},
  ): Record<string, Readonly<Record<string, string>>> =>
    Object.fromEntries(
      wantedFor({ ...settings, ...given }, { ...extras, ...more }).flatMap((one) =>
        one.kind === 'env' ? [[one.path, one.values]] : [],
      ),
    );

  test('one machine alone: nothing listens for others, and the registry is local', () => {
    const found = valuesOf({});
    expect(found['/etc/berth/control-plane.env']).toMatchObject({
      REGISTRY_ADDR: '127.0.0.1:5000',
      AUTH_SERVICE_URL: 'http://127.0.0.1:4180',
    });
    expect(found['/etc/berth/control-plane.env']).not.toHaveProperty('LISTEN');
    expect(found['/etc/berth/proxy.env']).not.toHaveProperty('REGISTRY_URL');
    expect(found['/etc/berth/agent-deploy.env']).toMatchObject({
      HOST_IP: '127.0.0.1',
      PUBLISH_IP: '127.0.0.1',
    });
  });

  test('before a second machine: the control plane listens for it, and the registry has its https host', () => {
    const found = valuesOf({ internalAddress: '10.0.0.1', controlPlane: 'http://10.0.0.1:8080' });
    expect(found['/etc/berth/control-plane.env']).toMatchObject({
      LISTEN: '10.0.0.1:8080',
      CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
      REGISTRY_ADDR: 'registry.a.example.org',
      TRUSTED_PROXIES: 'loopback,10.0.0.1',
    });
    expect(found['/etc/berth/proxy.env']).toMatchObject({ REGISTRY_URL: 'http://127.0.0.1:5000' });
    // Containers that run stay where the proxy reaches them.
    expect(found['/etc/berth/agent-deploy.env']).toMatchObject({
      HOST_IP: '127.0.0.1',
      CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
    });
  });

  test('an agent on another machine has a join token and no secret of others', () => {
    const wanted = wantedFor(
      { ...settings, parts: new Set(['deploy'] as const), controlPlane: 'http://10.0.0.1:8080' },
      { ...extras, joinToken: 'berthjoin_x', ownAddress: '10.0.0.2', proxyAddresses: ['10.0.0.1'] },
    );
    expect(
      wanted.flatMap((one) => (one.kind === 'secret' ? one.files.map(({ path }) => path) : [])),
    ).toEqual(['/etc/berth/secrets/agent-deploy/JOIN_TOKEN']);
    const env = wanted.find((one) => one.kind === 'env');
    expect(env?.kind === 'env' && env.values).toMatchObject({
      PUBLISH_IP: '10.0.0.2',
      PROXY_IPS: '10.0.0.1',
    });
  });

  test('keys that the control plane made itself are not replaced', () => {
    const wanted = wantedFor(settings, {
      ...extras,
      hasDatabase: true,
      needsKey: true,
      madeByControlPlane: (file) => `${file}-of-before`,
    });
    const made = wanted.flatMap((one) =>
      one.kind === 'secret' && one.make !== undefined ? [one.make()] : [],
    );
    expect(made).toEqual(['jwt-secret-of-before', 'secrets-key-of-before']);
  });

  test('no new key over a database that has one', () => {
    const makeKey = (more: Partial<Extras>): string | undefined => {
      const key = wantedFor(settings, { ...extras, ...more }).find(
        (one) => one.kind === 'secret' && one.files[0]?.name === 'SECRETS_KEY',
      );
      return key?.kind === 'secret' ? key.make?.() : undefined;
    };
    expect(() => makeKey({ hasDatabase: true, needsKey: true })).toThrow(
      'the database exists, and SECRETS_KEY is nowhere: put the key into ' +
        '/etc/berth/secrets/control-plane/SECRETS_KEY. If it is lost: ' +
        'docs/disasters.md "The key is gone"',
    );
    expect(Buffer.from(makeKey({}) ?? '', 'base64')).toHaveLength(32);
    expect(makeKey({ needsKey: true, madeByControlPlane: () => 'of before' })).toBe('of before');
  });
  test('a database needs its key; a new PostgreSQL database has none', () => {
    const state = (lines: string): boolean[] => {
      const { hasDatabase, needsKey } = stateOf(parseEnv(lines), folder);
      return [hasDatabase, needsKey];
    };
    expect(state('')).toEqual([false, false]);
    expect(state('DATABASE_URL=postgres://db/berth')).toEqual([true, false]);
    expect(state('DATABASE_URL=postgres://db/berth\nSECRETS_KEY_FILE=/x')).toEqual([true, true]);
    writeFileSync(at('berth.db'), '');
    expect(state('')).toEqual([true, true]);
    expect(state(`DATABASE_URL=sqlite:${at('berth.db')}`)).toEqual([true, true]);
  });
  test('a link in place of a key that the control plane made is not read', () => {
    writeFileSync(at('victim'), 'of another user');
    symlinkSync(at('victim'), at('jwt-secret'));
    expect(() => stateOf(parseEnv(''), folder).madeByControlPlane('jwt-secret')).toThrow(
      `${at('jwt-secret')} is a symbolic link`,
    );
  });
  test('only root reads environment files', () => {
    const other = { uid: 900, gid: 900 };
    const wanted = wantedFor(settings, {
      ...extras,
      users: { ...users, root: { uid: 0, gid: 0 }, berth: other },
    });
    for (const one of wanted)
      if (one.kind === 'env')
        expect(one).toMatchObject({ access: { mode: 0o600, uid: 0, gid: 0 } });
  });

  test('compose: its files, and the settings that it asks for', () => {
    const answers = {
      baseDomain: 'a.example.org',
      admins: 'ada@example.org',
      acmeEmail: 'ada@example.org',
      internalAddress: undefined,
    };
    const wanted = (given: Partial<ComposeSettings> = {}): Wanted[] =>
      wantedForCompose({
        ...answers,
        acmeCaServer: undefined,
        acmeChallenge: undefined,
        engineGid: 999,
        flags: new Set(),
        ...given,
      });
    const env = (given: Partial<ComposeSettings> = {}): unknown =>
      wanted(given).flatMap((one) => (one.kind === 'env' ? [one.values] : []))[0];
    expect(env()).toEqual({
      BASE_DOMAIN: 'a.example.org',
      ACME_EMAIL: 'ada@example.org',
      ADMIN_EMAILS: 'ada@example.org',
      ENGINE_GID: '999',
    });
    expect(env({ internalAddress: '10.0.0.1', acmeChallenge: 'http-01' })).toMatchObject({
      INTERNAL_IP: '10.0.0.1',
      REGISTRY_ADDR: 'registry.a.example.org',
      ACME_CHALLENGE_OPTION: 'httpchallenge.entrypoint=web',
    });
    const files = wanted().flatMap((one) => (one.kind === 'shipped' ? [one.path] : []));
    expect(files).toEqual(
      expect.arrayContaining([
        '/etc/berth/compose/compose.yml',
        '/etc/berth/compose/compose/prepare.mjs',
        '/etc/berth/compose/traefik/dynamic/middlewares.yml',
      ]),
    );
    const names = parseEnv(shipped('compose/env.example').replaceAll(/^#(?=[A-Z_]+=)/gm, ''));
    for (const name of Object.keys(
      env({
        internalAddress: '10.0.0.1',
        acmeChallenge: 'http-01',
        acmeCaServer: 'https://ca',
      }) as object,
    ))
      expect([name, names.has(name)]).toEqual([name, true]);
    expect(() => wanted({ acmeChallenge: 'dns-01' })).toThrow('dns-01 needs a DNS provider');
  });

  test('no secret is in an environment file', () => {
    const names = Object.values(valuesOf({}, { registryPassword: 'hidden' })).flatMap((values) =>
      Object.entries(values),
    );
    expect(
      names.filter(([name]) => /SECRET|PASSWORD|TOKEN|KEY/.test(name) && !name.endsWith('_FILE')),
    ).toEqual([]);
    expect(parseEnv('').size).toBe(0);
  });
});
