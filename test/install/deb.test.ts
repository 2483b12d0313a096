/**
 * The Debian package in a fresh Debian with a real systemd: install, run, upgrade, remove (data
 * stays), install again, purge.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { repositoryRoot, toolsDir } from '@berth/testbed/config';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Machine, startMachine, whyNoMachine } from './machine.ts';

const why = whyNoMachine();
const SECRET = 'package-'.repeat(5);
const SETTINGS: Record<string, string> = {
  'control-plane.env':
    `BASE_DOMAIN=berth.test\nAGENT_SECRET=${SECRET}\nGATEWAY_SECRET=${SECRET}` +
    `\nADMIN_EMAILS=ada@berth.test\nADMIN_PASSWORD=a-long-password\n`,
  'gateway.env':
    `CONTROL_PLANE_URL=http://127.0.0.1:8080\nBASE_DOMAIN=berth.test\nGATEWAY_SECRET=${SECRET}` +
    `\nSESSION_SECRET=${SECRET}\n`,
  'relay.env': 'CONTROL_PLANE_URL=http://127.0.0.1:8080\nLISTEN=127.0.0.1:8082\n',
  'agent-builder.env': `NODE_ROLE=builder\nCONTROL_PLANE_URL=http://127.0.0.1:8080\nAGENT_SECRET=${SECRET}\n`,
  'agent-deploy.env': `NODE_ROLE=deploy\nCONTROL_PLANE_URL=http://127.0.0.1:8080\nAGENT_SECRET=${SECRET}\n`,
};
const UNITS = [
  'berth-control-plane',
  'berth-gateway',
  'berth-relay',
  'berth-agent@builder',
  'berth-agent@deploy',
];

describe.skipIf(why !== undefined)(
  `the Debian package${why === undefined ? '' : ` (${why})`}`,
  () => {
    let machine: Machine;
    let scratch: string;
    let deb: string;
    beforeAll(async () => {
      scratch = mkdtempSync(join(tmpdir(), 'berth-deb-test-'));
      mkdirSync(join(scratch, 'node/bin'), { recursive: true });
      cpSync(join(toolsDir, 'node/bin/node'), join(scratch, 'node/bin/node'), {
        dereference: true,
      });
      writeFileSync(join(scratch, 'node/LICENSE'), 'licence of Node, for this test only\n');
      const build = (folder: string): Promise<unknown> =>
        run(
          [
            process.execPath,
            'scripts/build.ts',
            '--out',
            join(scratch, folder, 'berth'),
            '--node',
            join(scratch, 'node'),
            '--deb',
            'gzip',
          ],
          {
            cwd: repositoryRoot,
            env: { SOURCE_DATE_EPOCH: '1700000000', BERTH_COMMIT: 'c0ffee' },
            deadlineMs: 300_000,
          },
        );
      [machine] = await Promise.all([startMachine(), build('one').then(() => build('two'))]);
      deb = join(scratch, `one/berth_${BERTH_VERSION}_amd64.deb`);
      machine.write('/root/berth.deb', readFileSync(deb));
    }, 900_000);
    afterAll(async () => {
      await machine?.stop();
      rmSync(scratch, { recursive: true, force: true });
    }, 120_000);
    const here = (path: string): boolean => existsSync(join(machine.root, path));
    const state = async (unit: string): Promise<string> =>
      (await machine.run(['systemctl', 'is-active', unit], { mayFail: true })).stdout.trim();
    const answers = async (path: string): Promise<boolean> =>
      (await machine.run(['curl', '-sf', `http://127.0.0.1:${path}`], { mayFail: true })).code ===
      0;
    const journal = async (): Promise<string> =>
      (await machine.run(['journalctl', '--no-pager', '-n', '40'], { mayFail: true })).stdout;
    const untilAllRun = async (): Promise<void> => {
      try {
        for (const path of ['8080/readyz', '4180/readyz', '8082/readyz'])
          await waitFor(`${path} answers`, () => answers(path), {
            deadlineMs: 180_000,
            intervalMs: 500,
          });
        for (const role of ['builder', 'deploy'])
          await waitFor(
            `agent ${role} is registered`,
            async () =>
              (await machine.run(['journalctl', '-u', `berth-agent@${role}`])).stdout.includes(
                'node registered',
              ),
            { deadlineMs: 180_000, intervalMs: 500 },
          );
      } catch (error) {
        throw new Error(await journal(), { cause: error });
      }
    };
    const signIn = (): Promise<unknown> =>
      machine.run([
        ...(['curl', '-sf', '-H', 'content-type: application/json'] as const),
        ...[
          '-d',
          '{"email":"ada@berth.test","password":"a-long-password"}',
          'http://127.0.0.1:8080/api/auth/login',
        ],
      ]);

    test('two builds give the same package', () => {
      expect(readFileSync(deb).equals(readFileSync(join(scratch, 'two', basename(deb))))).toBe(
        true,
      );
    });

    test('installs, and starts nothing before there are settings', async () => {
      await machine.run(['dpkg', '-i', '/root/berth.deb']);
      expect((await machine.run(['berth', '--version'])).stdout).toBe(`${BERTH_VERSION}\n`);
      expect(
        (await machine.run(['stat', '-c', '%U:%G %a %n', '/var/lib/berth', '/etc/berth'])).stdout,
      ).toBe('berth:berth 700 /var/lib/berth\nroot:berth 750 /etc/berth\n');
      await machine.run(['systemctl', 'start', 'berth-control-plane'], { mayFail: true });
      expect(await state('berth-control-plane')).toBe('inactive');
      expect(
        (await machine.run(['systemctl', 'is-enabled', 'berth-agent'], { mayFail: true })).stdout,
      ).toBe('disabled\n');
    });

    test('every process runs in its sandbox', async () => {
      for (const [name, text] of Object.entries(SETTINGS))
        machine.write(`/etc/berth/${name}`, text, 0o600);
      await machine.run(['systemctl', 'enable', '--now', ...UNITS]);
      await untilAllRun();
      await signIn();
      expect(here('/var/lib/berth/berth.db')).toBe(true);
    });

    test('the gateway of an earlier version, which had a dynamic user, keeps its state', async () => {
      const folder = '/etc/systemd/system/berth-gateway.service.d';
      mkdirSync(join(machine.root, folder), { recursive: true });
      machine.write(
        `${folder}/earlier.conf`,
        '[Service]\nUser=\nSupplementaryGroups=\nDynamicUser=yes\n',
      );
      const restart = async (): Promise<void> => {
        await machine.run(['systemctl', 'daemon-reload']);
        await machine.run(['systemctl', 'restart', 'berth-gateway']);
        await waitFor('the gateway answers', () => answers('4180/readyz'), {
          deadlineMs: 180_000,
          intervalMs: 500,
        });
      };
      const owner = async (path: string): Promise<string> =>
        (await machine.run(['stat', '-c', '%F %U', path], { mayFail: true })).stdout.trim();
      await restart();
      expect(await owner('/var/lib/berth-gateway')).toMatch(/^symbolic link/);
      await machine.run(['rm', '-r', folder]);
      await restart();
      expect(await owner('/var/lib/berth-gateway')).toBe('directory berth-gateway');
      const { stdout: files } = await machine.run([
        'find',
        '/var/lib/berth-gateway',
        '-type',
        'f',
        '-printf',
        '%u %f\n',
      ]);
      expect(
        files.split('\n').filter((line) => line !== '' && !line.startsWith('berth-gateway ')),
      ).toEqual([]);
      expect(files).toContain('policy');
      expect(here('/var/lib/private/berth-gateway')).toBe(false);
    });

    test('an upgrade restarts what runs', async () => {
      const before = await machine.run(['systemctl', 'show', '-p', 'MainPID', '--value', ...UNITS]);
      await machine.run(['dpkg', '-i', '/root/berth.deb']);
      const after = await machine.run(['systemctl', 'show', '-p', 'MainPID', '--value', ...UNITS]);
      const pids = (text: string): string[] => text.split('\n').filter((line) => line !== '');
      expect(pids(after.stdout)).toHaveLength(UNITS.length);
      expect(
        pids(after.stdout).filter((pid) => pid === '0' || pids(before.stdout).includes(pid)),
      ).toEqual([]);
      await untilAllRun();
    });

    test('remove stops everything, and says what it keeps', async () => {
      const { stdout } = await machine.run(['dpkg', '-r', 'berth']);
      expect(stdout).toContain(
        'berth: kept: settings and secrets in /etc/berth, data in /var/lib/berth',
      );
      for (const unit of UNITS) expect([unit, await state(unit)]).toEqual([unit, 'inactive']);
      for (const path of [
        '/etc/berth/control-plane.env',
        '/var/lib/berth/berth.db',
        '/var/lib/berth/secrets-key',
      ])
        expect([path, here(path)]).toEqual([path, true]);
      expect(here('/usr/lib/berth')).toBe(false);
    });

    test('installed again, everything runs with the same data', async () => {
      await machine.run(['dpkg', '-i', '/root/berth.deb']);
      await machine.run(['systemctl', 'start', ...UNITS]);
      await untilAllRun();
      await signIn();
    });

    test('purge names what it deletes, and keeps volumes', async () => {
      machine.write('/svc/data/volume-of-a-project', 'precious');
      const { stdout } = await machine.run(['dpkg', '-P', 'berth']);
      const deleted = [...stdout.matchAll(/^berth: deleting (\S+) \(/gm)]
        .map((match) => match[1] ?? '')
        .toSorted();
      expect(deleted).toEqual(
        [
          '/etc/berth',
          '/var/lib/berth',
          ...['agent-builder', 'agent-deploy', 'gateway', 'relay'].map(
            (name) => `/var/lib/berth-${name}`,
          ),
        ]
          .concat(['/var/lib/private/berth-relay'])
          .toSorted(),
      );
      for (const path of deleted) expect([path, here(path)]).toEqual([path, false]);
      expect(stdout).toContain('berth: kept: /svc/data');
      expect(here('/svc/data/volume-of-a-project')).toBe(true);
      expect((await machine.run(['getent', 'passwd', 'berth'], { mayFail: true })).code).not.toBe(
        0,
      );
      expect(
        (
          await machine.run([
            'systemctl',
            'list-units',
            '--all',
            '--plain',
            '--no-legend',
            'berth*',
          ])
        ).stdout.trim(),
      ).toBe('');
    });
  },
);
