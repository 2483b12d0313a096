/**
 * `berth exec` and `berth tunnel` with all real parts: the command line as a process, a control
 * plane, an agent, and a container of a real engine.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Project } from '@berth/wire/project';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();
const BERTH = join(repositoryRoot, 'bin', 'berth');
const MIB = 1_048_576;
const shaOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

type Result = { code: number | null; out: Buffer; err: string };

describe.skipIf(reason !== undefined)(
  `exec sessions${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    let token = '';
    let home = '';

    beforeAll(async () => {
      world = await startWorld({ proxy: 'built-in', agentEnv: { ALLOW_EXEC: 'true' } });
      home = join(world.dir, 'home');
      await mkdir(home);
      const { url } = await world.git.createRepo('shop', pageApp(1));
      project = await world.berth.createProject({
        name: 'shop',
        git_url: url,
        domain_prefix: 'shop',
        drain_seconds: 0,
      });
      const d = await world.berth.settled(await world.berth.deploy(project));
      expect(d.status, JSON.stringify(d.error)).toBe('running');
      const { api } = world.berth;
      const expires_at = new Date(Date.now() + 3_600_000).toISOString();
      const body = { name: 'ci', role: 'admin' as const, expires_at };
      const created = await api.call('createToken', { body });
      token = created.token;
    }, 300_000);
    afterAll(async () => {
      await world?.stop();
    }, 60_000);

    const allow = (is: boolean) =>
      world.berth.api.call('patchProject', {
        params: { id: project.id },
        body: { allow_exec: is },
      });
    const environment = (): NodeJS.ProcessEnv => ({
      PATH: process.env['PATH'],
      HOME: home,
      BERTH_URL: new URL(world.berth.controlPlane.readyUrl).origin,
      BERTH_TOKEN: token,
    });
    function start(argv: readonly string[]): {
      child: ChildProcessWithoutNullStreams;
      done: Promise<Result>;
    } {
      const child = spawn(process.execPath, [BERTH, ...argv], {
        cwd: home,
        env: environment(),
      });
      const out: Buffer[] = [];
      let err = '';
      child.stdout.on('data', (bytes: Buffer) => out.push(bytes));
      child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
      child.stdin.on('error', () => undefined);
      const done = new Promise<Result>((resolve, reject) => {
        child.on('error', reject);
        child.on('close', (code) => resolve({ code, out: Buffer.concat(out), err }));
      });
      return { child, done };
    }
    const exec = (argv: readonly string[], stdin: Buffer | string = '') => {
      const { child, done } = start(['exec', '--project', 'shop', '--', ...argv]);
      child.stdin.end(stdin);
      return done;
    };
    /** Returns the commands in the container that have `text` in their arguments. */
    const inside = async (text: string): Promise<string[]> => {
      const filter = `label=berth.project=${project.id}`;
      const { stdout } = await world.engine.docker(['ps', '-q', '--filter', filter]);
      const ps = await world.engine.docker(['top', stdout.trim(), '-eo', 'pid,args']);
      return ps.stdout.split('\n').filter((line) => line.includes(text));
    };

    it('are refused while the project does not allow them', { timeout: 60_000 }, async () => {
      const { code, err } = await exec(['true']);
      expect(code).toBe(1);
      expect(err).toContain('berth project edit shop --allow-exec');
      await allow(true);
    });

    it('keep streams apart, and end with the exit code', { timeout: 60_000 }, async () => {
      const { code, out, err } = await exec(['sh', '-c', 'echo out; echo err >&2; exit 3']);
      expect([code, out.toString(), err]).toEqual([3, 'out\n', 'err\n']);
      const missing = await exec(['no-such-program']);
      expect(missing.code).not.toBe(0);
      expect(missing.out.toString() + missing.err).toContain('no-such-program');
    });

    it('pass 1 MiB of bytes both ways as they are', { timeout: 120_000 }, async () => {
      const bytes = randomBytes(MIB);
      const { code, out, err } = await exec(['cat'], bytes);
      expect([code, out.length, err]).toEqual([0, MIB, '']);
      expect(shaOf(out)).toBe(shaOf(bytes));
    });

    it('open a terminal with the size of the own one', { timeout: 60_000 }, async () => {
      const line = `stty rows 33 cols 101; exec ${process.execPath} ${BERTH} exec -p shop -- sh`;
      const child = spawn('/usr/bin/script', ['-qec', line, '/dev/null'], { env: environment() });
      let shown = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text));
      child.stdin.on('error', () => undefined);
      const closed = new Promise<number | null>((resolve) => child.on('close', resolve));
      await waitFor('the prompt', () => shown.includes('# '));
      child.stdin.write('stty size; tty && exit 4\n');
      expect(await closed, shown).toBe(4);
      expect(shown).toContain('33 101');
      expect(shown).toContain('/dev/pts/');
    });

    it('end the command when the person leaves', { timeout: 60_000 }, async () => {
      const { child, done } = start(['exec', '--project', 'shop', '--', 'sleep', '7117']);
      await waitFor('the command', async () => (await inside('sleep 7117')).length > 0);
      child.kill('SIGKILL');
      await done;
      await waitFor('its end', async () => (await inside('sleep 7117')).length === 0, {
        deadlineMs: 30_000,
      });
    });

    it('lead a local port to the port of the container', { timeout: 60_000 }, async () => {
      const { child, done } = start(['tunnel', 'shop']);
      let said = '';
      child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()));
      const address = await waitFor(
        'the local port',
        () => /^127\.0\.0\.1:(\d+) leads to port 8080 of shop/.exec(said)?.[1],
      );
      for (let i = 0; i < 3; i++) {
        const answer = await fetch(`http://127.0.0.1:${address}/`);
        expect(await answer.text()).toBe('version 1\n');
      }
      child.kill('SIGINT');
      expect((await done).code).toBe(130);
    });

    it('end within seconds when the project is switched off', { timeout: 60_000 }, async () => {
      const { done } = start(['exec', '--project', 'shop', '--', 'sleep', '7227']);
      await waitFor('the command', async () => (await inside('sleep 7227')).length > 0);
      await allow(false);
      const { code, err } = await done;
      expect(code).toBe(1);
      expect(err).toContain('does not allow exec');
      await waitFor('its end', async () => (await inside('sleep 7227')).length === 0);
      await allow(true);
    });

    it('end with a sentence when the agent is killed', { timeout: 120_000 }, async () => {
      const { done } = start(['exec', '--project', 'shop', '--', 'sleep', '7337']);
      await waitFor('the command', async () => (await inside('sleep 7337')).length > 0);
      const agent = world.berth.agents['node-1'];
      await agent?.crash();
      const { code, err } = await done;
      expect(code).toBe(1);
      expect(err).toContain('the agent of the node left');
      await agent?.start();
      await waitFor('a session of the new agent', async () => (await exec(['true'])).code === 0, {
        deadlineMs: 60_000,
      });
    });

    it('are refused by a node whose setting is off', { timeout: 120_000 }, async () => {
      const agent = world.berth.agents['node-1'];
      await agent?.stop();
      await agent?.start({ ALLOW_EXEC: 'false' });
      await waitFor(
        'the refusal',
        async () => (await exec(['true'])).err.includes('set ALLOW_EXEC=true'),
        { deadlineMs: 60_000 },
      );
      await agent?.stop();
      await agent?.start();
    });

    it('leave who, where, what and how much in the audit log, and no content', async () => {
      const { items } = await world.berth.api.call('audit', { query: { action: 'execEnd' } });
      const details = items.map(({ detail }) => detail ?? '');
      expect(details).toContainEqual(
        expect.stringMatching(/^exit 0; 1048576 bytes in, 1048576 bytes out, .*\["cat"\]$/),
      );
      expect(details).toContainEqual(expect.stringMatching(/^exit 3; .* web 1 on node-1: \["sh"/));
    });
  },
);
