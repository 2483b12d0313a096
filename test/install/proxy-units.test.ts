/** The units of the proxy and the registry, with the real programs, under a real systemd. */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { traefikConfig } from '@berth/operator/lib/traefik-config';
import { findProgram, findTraefik, repositoryRoot } from '@berth/testbed/config';
import { FILES } from '@berth/testbed/file-provider';
import { run } from '@berth/testbed/process';
import { registryProgram } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packagedUnits } from '../../scripts/lib/artefact/units.ts';
import { type Machine, startMachine, whyNoMachine } from './machine.ts';

const why =
  whyNoMachine() ??
  (findTraefik() === undefined ||
  registryProgram() === undefined ||
  findProgram('htpasswd') === undefined
    ? 'Traefik, docker-registry or htpasswd is missing'
    : undefined);
const UNITS = ['berth-proxy', 'berth-registry'];
const LONG = { deadlineMs: 120_000, intervalMs: 300 };

describe.skipIf(why !== undefined)(
  `units of proxy and registry${why === undefined ? '' : ` (${why})`}`,
  () => {
    let machine: Machine;
    const inside = (...argv: [string, ...string[]]) => machine.run(argv, { mayFail: true });
    const status = async (...argv: string[]): Promise<string> =>
      (
        await inside('curl', '-s', '-o', '/dev/null', '-w', '%{http_code} %{redirect_url}', ...argv)
      ).stdout.trim();
    const journal = async (unit: string): Promise<string> =>
      (await inside('journalctl', '--no-pager', '-u', unit)).stdout;

    beforeAll(async () => {
      machine = await startMachine();
      for (const user of ['berth', ...UNITS])
        await machine.run([
          'adduser',
          '--quiet',
          '--system',
          '--group',
          '--home',
          `/var/lib/${user}`,
          '--no-create-home',
          user,
        ]);
      for (const folder of [
        'etc/berth/traefik/dynamic',
        'etc/berth/secrets/registry',
        'usr/local/bin',
      ])
        mkdirSync(join(machine.root, folder), { recursive: true });
      await machine.run(['chown', 'root:berth', '/etc/berth']);
      await machine.run(['chmod', '0750', '/etc/berth']);
      machine.write('/usr/local/bin/traefik', readFileSync(findTraefik() ?? ''), 0o755);
      await machine.run(['rm', '-f', '/usr/bin/docker-registry']);
      machine.write('/usr/bin/docker-registry', readFileSync(registryProgram() ?? ''), 0o755);
      const deploy = (path: string): string =>
        readFileSync(join(repositoryRoot, 'deploy', path), 'utf8');
      const settings = {
        acmeEmail: 'ops@berth.test',
        acmeCaServer: 'https://127.0.0.1:9/dir',
        routesFrom: 'http://127.0.0.1:8080',
      };
      machine.write(
        '/etc/berth/traefik/traefik.yml',
        traefikConfig(deploy('traefik/traefik.yml'), settings),
      );
      for (const file of FILES)
        machine.write(`/etc/berth/traefik/dynamic/${file}`, deploy(`traefik/dynamic/${file}`));
      machine.write(
        '/etc/berth/proxy.env',
        'BASE_DOMAIN=berth.test\nAUTH_SERVICE_URL=http://127.0.0.1:4180\nCONTROL_PLANE_URL=http://127.0.0.1:8080\nREGISTRY_URL=http://127.0.0.1:5000\n',
      );
      machine.write('/etc/berth/registry.yml', deploy('registry/registry.yml'));
      machine.write('/etc/berth/registry.env', '');
      machine.write(
        '/etc/berth/secrets/registry/htpasswd',
        (await run(['htpasswd', '-Bbn', 'berth', 'secret'])).stdout,
        0o600,
      );
      await machine.run(['chown', '-R', 'berth-registry:', '/etc/berth/secrets/registry']);
      for (const [name, text] of packagedUnits())
        machine.write(`/etc/systemd/system/${name}`, text);
      await machine.run(['systemctl', 'daemon-reload']);
      await machine.run(['systemctl', 'start', ...UNITS]);
    }, 900_000);
    afterAll(() => machine?.stop(), 120_000);

    test('the proxy serves ports 80 and 443 as its own user, and nothing else', async () => {
      const ask = ['--resolve', 'berth.test:80:127.0.0.1', 'http://berth.test/x'];
      await waitFor(
        'plain http is redirected',
        async () => (await status(...ask)) === '301 https://berth.test/x',
        LONG,
      );
      const pid = (await inside('systemctl', 'show', '-P', 'MainPID', 'berth-proxy')).stdout.trim();
      expect((await inside('stat', '-c', '%U', `/proc/${pid}`)).stdout.trim()).toBe('berth-proxy');
      expect(readFileSync(join(machine.root, `proc/${pid}/cmdline`), 'utf8')).toMatch(
        /^\/usr\/local\/bin\/traefik\0/,
      );
      for (const port of ['8080', '8081'])
        expect(await status('-m', '2', `http://127.0.0.1:${port}/`), port).toBe('000');
    });

    test('acme.json that a copy made readable gets mode 0600 at the next start', async () => {
      await waitFor(
        'acme.json',
        async () => (await inside('stat', '/var/lib/berth-proxy/acme.json')).code === 0,
        LONG,
      );
      await machine.run(['chmod', '0644', '/var/lib/berth-proxy/acme.json']);
      await machine.run(['systemctl', 'restart', 'berth-proxy']);
      expect(
        (await inside('stat', '-c', '%a %U', '/var/lib/berth-proxy/acme.json')).stdout.trim(),
      ).toBe('600 berth-proxy');
      expect(await journal('berth-proxy')).not.toContain('too open');
      expect((await inside('stat', '-c', '%a', '/var/lib/berth-proxy')).stdout.trim()).toBe('700');
    });

    test('the registry wants its password, here and through the proxy', async () => {
      const here = 'http://127.0.0.1:5000/v2/';
      await waitFor('the registry answers', async () => (await status(here)) === '401', LONG);
      expect(await status('-u', 'berth:secret', here)).toBe('200');
      const through = [
        '-k',
        '--resolve',
        'registry.berth.test:443:127.0.0.1',
        'https://registry.berth.test/v2/',
      ];
      await waitFor(
        'the proxy leads there',
        async () => (await status(...through)) === '401',
        LONG,
      );
      expect(await status('-u', 'berth:secret', ...through)).toBe('200');
      // Where an upload goes must lead through the proxy too.
      const { stdout } = await inside(
        'curl',
        '-s',
        '-i',
        '-u',
        'berth:secret',
        '-X',
        'POST',
        ...through.slice(0, -1),
        `${through.at(-1)}x/blobs/uploads/`,
      );
      expect(stdout).toMatch(/^location: \/v2\/x\/blobs\/uploads\//im);
    });

    test('without Traefik, the journal says what to install', async () => {
      await machine.run(['mv', '/usr/local/bin/traefik', '/usr/local/bin/other']);
      await inside('systemctl', 'restart', 'berth-proxy');
      await waitFor(
        'the journal',
        async () => (await journal('berth-proxy')).includes('no Traefik: install 3.7.13 or newer'),
        LONG,
      );
      const env = readFileSync(join(machine.root, 'etc/berth/proxy.env'), 'utf8');
      machine.write('/etc/berth/proxy.env', `${env}TRAEFIK_BIN=/usr/local/bin/other\n`);
      await inside('systemctl', 'reset-failed', 'berth-proxy');
      await machine.run(['systemctl', 'restart', 'berth-proxy']);
      await waitFor(
        'it runs again',
        async () => (await status('http://127.0.0.1/')) === '404',
        LONG,
      );
    });
  },
);
