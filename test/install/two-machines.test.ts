/**
 * A second machine joins by the line of docs/install.md, and runs a project that the proxy of the
 * first one publishes over https.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ADMIN,
  application,
  DOMAIN,
  firstPassword,
  type Installation,
  startInstallation,
  timed,
  trustPebble,
  whyNoInstallation,
} from './installation.ts';
import type { Machine } from './machine.ts';

const why = whyNoInstallation();
type Token = { id: string; expires_at: string; token: string; command: string; notes: string[] };
type Node = { id: string; hostname: string; role: string };

describe.skipIf(why !== undefined)(`two machines${why === undefined ? '' : ` (${why})`}`, () => {
  let installation: Installation;
  let first: Machine;
  let second: Machine;
  let used: Token;
  let late: Token;
  let site: ReturnType<Installation['site']>;
  const berth = (machine: Machine, ...args: string[]) =>
    machine.run(['berth', ...args], { mayFail: true, deadlineMs: 300_000 });
  /** As a person who pastes the line, and then the token. */
  const paste = ({ command, token }: { command: string; token: string }) =>
    second.run(['sh', '-s'], {
      mayFail: true,
      deadlineMs: 300_000,
      input: `${command} <<'END'\n${token}\nEND\n`,
    });
  const newToken = (body: object = { role: 'deploy' }): Promise<Token> =>
    site.api('/api/nodes/join-tokens', body);
  const settings = (machine: Machine, name: string): string =>
    readFileSync(join(machine.root, 'etc/berth', name), 'utf8');

  beforeAll(async () => {
    installation = await startInstallation();
    first = await installation.machine(1, 'berth-1');
    site = installation.site();
    await first.run(['apt-get', 'install', '-y', `/root/berth_${BERTH_VERSION}_amd64.deb`]);
    trustPebble(first);
    const flags = [
      '--base-domain',
      DOMAIN,
      '--admin',
      ADMIN,
      '--acme-ca-server',
      installation.pebble.directoryUrl,
    ];
    expect(await berth(first, 'install', 'all', ...flags, '--start')).toMatchObject({ code: 0 });
    await site.signIn(firstPassword(first));
    for (const name of ['stays', 'moves']) {
      const { url } = await installation.git.createRepo(name, application(`Hello from ${name}`));
      await site.api('/api/projects', { name, git_url: url, domain_prefix: name });
    }
    await site.deploy('stays', 'Hello from stays');
  }, 900_000);
  afterAll(async () => installation?.stop(), 180_000);

  test('on one host, the join command says what is missing', async () => {
    const { notes } = await newToken();
    expect(notes.map((note) => note.split(' ')[0])).toEqual(['CONTROL_PLANE_URL', 'REGISTRY_ADDR']);
    expect(notes[0]).toContain('berth install all --internal-address ADDRESS --start');
  });

  test('the first machine makes itself ready, and what runs goes on', async () => {
    const { code, stdout } = await timed('berth install all --internal-address', () =>
      berth(
        first,
        'install',
        'all',
        '--internal-address',
        installation.network.address(1),
        '--start',
      ),
    );
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining(`REGISTRY_ADDR=registry.${DOMAIN}`),
    ]);
    expect((await site.get(`stays.${DOMAIN}`)).text).toContain('Hello from stays');
    expect((await newToken()).notes).toEqual([]);
  });

  test('one line joins the second machine, without the token in an argument', async () => {
    second = await installation.machine(2, 'berth-2');
    const made = await newToken();
    used = made;
    late = await newToken({ role: 'deploy', ttl: '1m' });
    expect(made.command).not.toContain(made.token);
    const watch = second.run(['sh', '-s'], {
      deadlineMs: 300_000,
      input:
        'until [ -e /tmp/done ]; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " "; sleep ' +
        '0.05; done',
    });
    const joined = await timed('the line on the second machine', () => paste(made));
    second.write('/tmp/done', '');
    expect(joined, joined.stdout + joined.stderr).toMatchObject({ code: 0 });
    expect(joined.stdout).toContain('ready: berth-agent@deploy');
    const arguments_ = (await watch).stdout;
    expect(arguments_).toContain('install agent');
    expect(arguments_).not.toContain(made.token);
    expect(joined.stdout + joined.stderr).not.toContain(made.token);
    expect(readdirSync(join(second.root, 'etc/berth/secrets'))).toEqual(['agent-deploy']);
    expect(settings(second, 'agent-deploy.env')).toContain(
      `PUBLISH_IP=${installation.network.address(2)}\n`,
    );
  });

  test('a project runs on the second machine, over https', async () => {
    const { items } = await site.api<{ items: Node[] }>('/api/nodes');
    const [one, two] = ['berth-1', 'berth-2'].map(
      (name) =>
        items.find(({ hostname, role }) => hostname === name && role === 'deploy')?.id ?? '',
    );
    await site.api(`/api/nodes/${one}/drain`, {});
    expect(
      await timed('a project on the second machine', () =>
        site.deploy('moves', 'Hello from moves'),
      ),
    ).toBe(two);
    expect((await second.run(['docker', 'ps', '--format', '{{.Names}}'])).stdout).toContain(
      'svc-moves',
    );
  });

  test('a token that was used, has expired or is for another role gets a sentence', async () => {
    await second.run(['systemctl', 'stop', 'berth-agent@deploy']);
    // As on another machine: without the secret that this one got.
    await second.run(['rm', '-r', '/var/lib/berth-agent-deploy']);
    const again = await timed('a token that was used', () => paste(used));
    expect(again.code).toBe(1);
    expect(again.stderr).toMatch(
      /refuses the secret or join token of this machine. A join token works once, for one role, and for an hour/,
    );
    await waitFor('the short token has expired', () => Date.now() > Date.parse(late.expires_at), {
      deadlineMs: 120_000,
    });
    expect(await paste(late)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('A join token works once'),
    });
    const { token } = await newToken({ role: 'builder' });
    const wrong = await paste({
      token,
      command: 'berth install agent --role deploy --join-token-file - --start',
    });
    expect(wrong).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Get a new one: berth node join-token --role deploy'),
    });
    expect(
      await paste({
        token: 'hello',
        command: 'berth install agent --role deploy --join-token-file -',
      }),
    ).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('this is no join token of Berth'),
    });
  });

  test('a control plane that does not answer is named', async () => {
    const far = await berth(
      second,
      'install',
      'agent',
      '--role',
      'deploy',
      '--control-plane',
      `http://${installation.network.here}:9`,
    );
    expect(far).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the control plane does not answer at'),
    });
  });
});
