/**
 * One host by the package: a fresh Debian 12 ends with a project live over https, by the commands
 * of docs/install.md.
 */
import { BERTH_VERSION } from '@berth/wire/version';
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
const READY = [
  'bash',
  '-c',
  'exec 3<>/dev/tcp/127.0.0.1/4180; printf "GET /readyz HTTP/1.0\\r\\n\\r\\n" >&3; grep -q " ' +
    '200 " <&3',
] as const;

describe.skipIf(why !== undefined)(
  `one host with packages${why === undefined ? '' : ` (${why})`}`,
  () => {
    let installation: Installation;
    let machine: Machine;
    let site: ReturnType<Installation['site']>;
    const berth = (...args: string[]) =>
      machine.run(['berth', ...args], { mayFail: true, deadlineMs: 300_000 });
    const flags: string[] = [];
    beforeAll(async () => {
      installation = await startInstallation();
      machine = await timed('a fresh Debian 12 with an engine', () =>
        installation.machine(1, 'berth-1'),
      );
      site = installation.site();
      flags.push(
        '--base-domain',
        DOMAIN,
        '--admin',
        ADMIN,
        '--acme-ca-server',
        installation.pebble.directoryUrl,
      );
    }, 900_000);
    afterAll(async () => installation?.stop(), 180_000);

    test('the package installs', async () => {
      await timed('apt-get install', () =>
        machine.run(['apt-get', 'install', '-y', `/root/berth_${BERTH_VERSION}_amd64.deb`]),
      );
      expect((await machine.run(['stat', '-c', '%U:%G %a', '/etc/berth'])).stdout.trim()).toBe(
        'root:berth 750',
      );
    });

    test('what is missing or wrong is named, and nothing is written', async () => {
      expect(await berth('install', 'all')).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('--base-domain is missing'),
      });
      expect(
        await berth('install', 'all', '--base-domain', '*.berth.test', '--admin', ADMIN),
      ).toMatchObject({ code: 2 });
      const asUser = await machine.run(
        ['runuser', '-u', 'nobody', '--', 'berth', 'install', 'all', ...flags],
        { mayFail: true },
      );
      expect(asUser).toMatchObject({ code: 1, stderr: expect.stringContaining('this needs root') });
      await machine.run([
        'systemd-run',
        '--unit=other',
        'perl',
        '-MIO::Socket::INET',
        '-e',
        'my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 1) or die; sleep 600',
      ]);
      await machine.run(['systemctl', 'stop', 'docker.socket', 'docker']);
      const refused = await berth('install', 'all', ...flags);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toMatch(
        /port 8080, which the control-plane needs, is in use by perl \(process \d+, other\.service\): stop it/,
      );
      expect(refused.stderr).toContain(
        'the container engine does not answer: systemctl enable --now docker',
      );
      await machine.run(['systemctl', 'stop', 'other']);
      await machine.run(['systemctl', 'start', 'docker']);
      expect((await machine.run(['ls', '-A', '/etc/berth'])).stdout).toBe('');
    });

    test('a dry run writes nothing and shows no secret', async () => {
      const { code, stdout } = await berth('install', 'all', ...flags, '--dry-run');
      expect([code, stdout]).toEqual([
        0,
        expect.stringContaining(`would write: /etc/berth/control-plane.env: BASE_DOMAIN=${DOMAIN}`),
      ]);
      expect(stdout).not.toMatch(/[0-9a-f]{32}/);
      expect((await machine.run(['ls', '-A', '/etc/berth'])).stdout).toBe('');
    });

    test('one command installs everything, and a project is live with a certificate', async () => {
      trustPebble(machine);
      const { code, stdout, stderr } = await timed('berth install all --start', () =>
        berth('install', 'all', ...flags, '--start'),
      );
      expect([code, stderr]).toEqual([
        0,
        expect.stringContaining(`no DNS for ${DOMAIN} and *.${DOMAIN}`),
      ]);
      expect(stdout).toContain('ready: berth-agent@deploy');
      expect(stdout).toContain(`Berth runs: https://${DOMAIN}`);
      expect(stdout).not.toContain(firstPassword(machine));
      await timed('the first project over https', async () => {
        await site.signIn(firstPassword(machine));
        const { url } = await installation.git.createRepo(
          'hello',
          application('Hello from one host'),
        );
        await site.api('/api/projects', { name: 'hello', git_url: url, domain_prefix: 'hello' });
        await site.deploy('hello', 'Hello from one host');
      });
    });

    test('a clean-up frees the disk of the registry without further settings, and builds go on', async () => {
      type CleanUps = { unavailable?: string; current: unknown; items: { state: string }[] };
      const cleanUps = async (): Promise<CleanUps> =>
        JSON.parse((await site.get(DOMAIN, '/api/clean-up')).text) as CleanUps;
      expect((await cleanUps()).unavailable).toBeUndefined();
      const file = (): Promise<string> =>
        machine.run(['cat', '/etc/berth/registry.yml']).then(({ stdout }) => stdout);
      const before = await file();
      await site.api('/api/clean-up', {});
      const ended = await waitFor(
        'the clean-up has ended',
        async () => {
          const { current, items } = await cleanUps();
          return current === null ? items[0] : undefined;
        },
        { deadlineMs: 180_000 },
      );
      expect(ended).toMatchObject({
        state: 'done',
        error: null,
        missing: 0,
        bytes_after: expect.any(Number),
      });
      expect(await file()).toBe(before);
      await site.deploy('hello', 'Hello from one host');
    });

    test('six restarts of the only gateway fail no request at a project with a login', async () => {
      const changed = await site.get(DOMAIN, '/api/projects/hello', {
        method: 'PATCH',
        body: { auth_required: true },
      });
      expect([changed.status, changed.text]).toEqual([200, expect.any(String)]);
      const visitor = installation.site();
      const statusNow = async (): Promise<number> => (await visitor.get(`hello.${DOMAIN}`)).status;
      const asksForLogin = await waitFor(
        'the project asks for a login',
        async () => {
          const status = await statusNow();
          return status === 302 || status === 401 ? status : undefined;
        },
        { deadlineMs: 60_000 },
      );
      const statuses = new Map<number, number>();
      let done = false;
      const visitors = Array.from({ length: 8 }, async () => {
        while (!done) {
          const status = await statusNow();
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
        }
      });
      try {
        for (let round = 0; round < 6; round++) {
          await machine.run(['systemctl', 'restart', 'berth-gateway']);
          await waitFor(
            'the gateway is ready',
            async () => (await machine.run(READY, { mayFail: true })).code === 0,
            { deadlineMs: 60_000 },
          );
        }
      } finally {
        done = true;
        await Promise.all(visitors);
      }
      console.log(
        'restarts of the gateway: ' +
          [...statuses].map(([status, count]) => `${count} requests got ${status}`).join(', '),
      );
      const { stdout: proxy } = await machine.run([
        'journalctl',
        '-o',
        'cat',
        '-u',
        'berth-proxy',
        '-n',
        '200',
      ]);
      expect(proxy.split('\n').filter((line) => line.includes('/verify'))).toEqual([]);
      expect([...statuses.keys()]).toEqual([asksForLogin]);
    });

    test('a second run changes nothing and keeps what the operator added', async () => {
      const pids = (): Promise<string> =>
        machine
          .run([
            'systemctl',
            'show',
            '-p',
            'MainPID',
            '--value',
            'berth-control-plane',
            'berth-proxy',
          ])
          .then(({ stdout }) => stdout);
      const before = await pids();
      const { code, stdout } = await berth('install', 'all', '--start');
      expect([code, stdout.split('\n')[0]]).toEqual([0, 'nothing to change']);
      expect(await pids()).toBe(before);
      expect((await machine.run(['cat', '/etc/berth/proxy.env'])).stdout).toContain(
        'LEGO_CA_CERTIFICATES=/etc/pebble-ca.pem',
      );
    });
  },
);
