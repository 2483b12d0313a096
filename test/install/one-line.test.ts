/**
 * A fresh Debian becomes an installation by the line of docs/install.md: the script and the files of
 * a release that `npm run release -- files` made, from a web server.
 */
import { createReadStream, existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { repositoryRoot } from '@berth/testbed/config';
import { type Finished, run } from '@berth/testbed/process';
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
const FLAGS = ['--base-domain', DOMAIN, '--admin', ADMIN];

describe.skipIf(why !== undefined)(`one line${why === undefined ? '' : ` (${why})`}`, () => {
  let installation: Installation;
  let machine: Machine;
  let server: Server;
  let release: string;
  /** Files whose last byte the server changes: a damaged copy. */
  const damaged = new Set<string>();

  /** `curl -fsSL RELEASE/install.sh | sh -s -- OPTIONS` */
  const line = (...options: string[]): Promise<Finished> =>
    machine.run(['sh', '-c', `curl -fsSL ${url()}/install.sh | sh -s -- "$@"`, 'sh', ...options], {
      mayFail: true,
      deadlineMs: 600_000,
      env: { CURL_CA_BUNDLE: `/etc/docker/certs.d/registry.${DOMAIN}/ca.crt` },
    });
  const url = (): string =>
    `http://${installation.network.here}:${(server.address() as AddressInfo).port}`;

  beforeAll(async () => {
    installation = await startInstallation();
    release = join(installation.scratch, 'release');
    server = createServer((request, response) => {
      const file = join(release, basename(request.url ?? ''));
      if (!existsSync(file)) return void response.writeHead(404).end();
      if (!damaged.has(basename(file))) return void createReadStream(file).pipe(response);
      response.end(Buffer.concat([readFileSync(file).subarray(0, -1), Buffer.from('?')]));
    });
    await new Promise<void>((resolve) =>
      server.listen(0, installation.network.here, () => resolve()),
    );
    const { stdout } = await run(
      [
        process.execPath,
        ...['scripts/release.ts', 'files', '--out', release, '--arch', 'amd64'],
        ...['--node', join(installation.scratch, 'node'), '--deb', 'gzip', '--url', url()],
      ],
      { cwd: repositoryRoot, deadlineMs: 600_000 },
    );
    expect(stdout).toMatch(/^missing: a signature/m);
    machine = await installation.machine(1, 'berth-1', { bare: true });
  }, 900_000);
  afterAll(async () => {
    server.close();
    await installation?.stop();
  }, 180_000);

  test('names every problem at once, before its first change', async () => {
    const listener = machine.run(['systemd-socket-activate', '-l', '80', 'true'], {
      mayFail: true,
    });
    await waitFor('port 80 is taken', async () =>
      (await machine.run(['cat', '/proc/net/tcp6'])).stdout.includes(':0050 '),
    );
    const { code, stderr } = await line('--base-domain', 'Apps.Example.org');
    await machine.run(['pkill', 'systemd-socket']);
    await listener;
    expect(code).toBe(1);
    expect(stderr).toContain('Nothing was changed');
    expect(stderr).toContain('port 80, which the proxy needs, is in use by systemd-socket');
    expect(stderr).toContain('--base-domain Apps.Example.org: must be a domain in lower case');
    expect(stderr).toContain('--admin is missing');
    const without = await line('--admin', ADMIN);
    const [a, b, c, d] = installation.network.address(1).split('.');
    expect(without.stderr).toContain(`--base-domain ${a}-${b}-${c}-${d}.sslip.io works at once`);
    expect(existsSync(join(machine.root, 'usr/lib/berth'))).toBe(false);
  });

  test('a machine with other parts of Berth, and one with compose, is refused', async () => {
    await machine.run(['mkdir', '-p', '/etc/berth/compose']);
    machine.write('/etc/berth/agent-deploy.env', '');
    machine.write('/etc/berth/compose/compose.yml', '');
    const { code, stderr } = await line(...FLAGS, '--acme-emial', 'x');
    await machine.run(['rm', '-r', '/etc/berth']);
    expect(code).toBe(1);
    expect(stderr).toContain('this machine is a node of another control plane');
    expect(stderr).toContain('compose runs Berth on this machine');
    expect(stderr).toContain('--acme-emial: unknown option');
  });

  test('--dry-run names the steps and changes nothing', async () => {
    const { code, stdout } = await line(...FLAGS, '--dry-run');
    expect(code).toBe(0);
    expect(stdout).toMatch(/put traefik_3\.\d+\.\d+_linux_amd64 at \/usr\/local\/bin\/traefik/);
    expect(stdout).toContain(`berth install all --base-domain ${DOMAIN} --admin ${ADMIN} --start`);
    for (const path of ['usr/local/bin/traefik', 'usr/lib/berth', 'var/cache/berth-install'])
      expect(existsSync(join(machine.root, path)), path).toBe(false);
  });

  test('a damaged file is not used, and the next run goes on', async () => {
    const deb = readdirSync(release).find((name) => name.endsWith('.deb')) ?? '';
    damaged.add(deb);
    const { code, stderr } = await line(...FLAGS);
    damaged.clear();
    expect(code).toBe(1);
    expect(stderr).toContain(`${deb} does not have the sum of SHA256SUMS`);
    expect(existsSync(join(machine.root, 'usr/local/bin/traefik')), 'came before it').toBe(true);
    expect(existsSync(join(machine.root, 'usr/lib/berth'))).toBe(false);
  });

  test('one line: Berth answers over https, and a project is live', async () => {
    trustPebble(machine);
    const done = await timed('the line', () =>
      line(...FLAGS, '--acme-ca-server', installation.pebble.directoryUrl),
    );
    expect(done, done.stdout + done.stderr).toMatchObject({ code: 0 });
    expect(done.stdout).toContain(`Berth is ready: https://${DOMAIN}`);
    expect(done.stdout).toContain(`sign in as ${ADMIN}`);
    const site = installation.site();
    await site.signIn(firstPassword(machine));
    const { url: git_url } = await installation.git.createRepo('hello', application('Hello'));
    await site.api('/api/projects', { name: 'hello', git_url, domain_prefix: 'hello' });
    await timed('the first project', () => site.deploy('hello', 'Hello'));
  });

  test('a second run needs no options, and changes nothing', async () => {
    const password = firstPassword(machine);
    const { code, stdout } = await line();
    expect(code, stdout).toBe(0);
    expect(stdout).toContain('nothing to change');
    expect(stdout).toContain(`sign in as ${ADMIN}`);
    expect(stdout).not.toContain('traefik_');
    expect(firstPassword(machine)).toBe(password);
  });

  test('a release without an address asks for it', async () => {
    const script = readFileSync(join(repositoryRoot, 'deploy/install.sh'), 'utf8');
    const { code, stderr } = await machine.run(['sh', '-s', '--', ...FLAGS], {
      mayFail: true,
      input: script,
    });
    expect(code).toBe(1);
    expect(stderr).toContain('--release is missing');
  });
});
