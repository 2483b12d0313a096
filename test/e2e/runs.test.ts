/**
 * Commands in containers of their own, on real parts: the output, the exit code, a cancellation, a
 * time limit, and an agent that is killed while the command runs. The command runs once.
 */
import { execFile, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from '@berth/testbed/config';
import { service, type Service } from '@berth/testbed/platform';
import { freePort } from '@berth/testbed/ports';
import { type Postgres, startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { waitFor } from '@berth/testbed/wait';
import { isOpenRun, type Run } from '@berth/wire/run';
import { type Balancer, startBalancer } from './balancer.ts';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const BERTH = join(repositoryRoot, 'bin', 'berth');
const reason = await whyNot('built-in');
/** Only two control planes need it; without it, this file uses SQLite. */
const whyOne = whyNoPostgres();
type Result = { code: number | null; out: string; err: string };

describe.skipIf(reason !== undefined)(
  `runs${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: { id: string };
    let token: string;
    let pg: Postgres | undefined;
    let ofBoth: Record<string, string> = {};
    let state: string;
    beforeAll(async () => {
      state = await mkdtemp(join(tmpdir(), 'berth-runs-'));
      if (whyOne === undefined) {
        pg = await startPostgres();
        ofBoth = { DATABASE_URL: await pg.createDatabase('berth'), STATE_DIR: state };
      }
      world = await startWorld({ proxy: 'built-in', env: ofBoth });
      const { berth, git } = world;
      const { url } = await git.createRepo('shop', pageApp(1, ['STOPSIGNAL SIGKILL']));
      project = await berth.createProject({
        name: 'shop',
        git_url: url,
        domain_prefix: 'shop',
        env: { COLOR: 'blue' },
        volumes: [{ name: 'data', mount_path: '/data' }],
        replace: 'recreate',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
      await berth.api.call('putSecret', {
        params: { id: project.id, name: 'DB_PASSWORD' },
        body: { value: 'correct-horse-battery' },
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      token = (
        await berth.api.call('createToken', {
          body: {
            name: 'ci',
            role: 'developer',
            expires_at: new Date(Date.now() + 86_400_000).toISOString(),
          },
        })
      ).token;
      await mkdir(join(world.dir, 'home'), { recursive: true });
    }, 240_000);
    afterAll(async () => {
      await world?.stop();
      await pg?.stop();
      await rm(state, { recursive: true, force: true });
    });

    const env = (url = world.berth.url): NodeJS.ProcessEnv => ({
      PATH: process.env['PATH'],
      HOME: join(world.dir, 'home'),
      BERTH_URL: url,
      BERTH_TOKEN: token,
    });
    const berthChild = (args: string[], onEnd: (result: Result) => void, url?: string) => {
      const child = execFile(
        process.execPath,
        [BERTH, 'run', '-p', 'shop', ...args],
        { cwd: world.dir, env: env(url) },
        (_, out, err) => onEnd({ code: child.exitCode, out, err }),
      );
      return child;
    };
    const berthRun = (...args: string[]): Promise<Result> =>
      new Promise((resolve) => void berthChild(args, resolve));
    const start = (script: string, more: object = {}): Promise<Run> =>
      world.berth.api.call('createRun', {
        params: project,
        body: { command: ['sh', '-c', script], ...more },
      });
    const get = (run: Run): Promise<Run> => world.berth.api.call('getRun', { params: run });
    const ended = async (run: Run): Promise<Run> => {
      await waitFor('the run ends', async () => !isOpenRun((await get(run)).status), {
        deadlineMs: 90_000,
      });
      return get(run);
    };
    const output = async (run: Run): Promise<string[]> =>
      (await world.berth.api.call('runLogs', { params: run })).lines
        .filter(({ stream }) => stream !== 'system')
        .map(({ text }) => text);
    const containers = async (): Promise<string[]> => {
      const { stdout } = await world.engine.docker([
        ...['ps', '-aq', '--filter', 'label=berth.run'],
      ]);
      return stdout.split('\n').filter((id) => id !== '');
    };
    const untilPrinted = (run: Run, text: string): Promise<unknown> =>
      waitFor(`the run prints ${text}`, async () => (await output(run)).includes(text), {
        deadlineMs: 60_000,
      });

    it('prints stdout and stderr apart, with env and secrets, and ends with the exit code', async () => {
      const result = await berthRun(
        ...['-e', 'SIZE=2', '--', 'sh', '-c'],
        'echo "$COLOR $SIZE ${#DB_PASSWORD} $DB_PASSWORD"; echo oops >&2; exit 3',
      );
      expect(result.code, result.err).toBe(3);
      // The stored and the printed output have no values of secrets.
      expect(result.out).toBe('blue 2 21 ***\n');
      expect(result.err).toContain('oops\n');
      await waitFor('the container is removed', async () => (await containers()).length === 0);
    });

    it('sends standard input to the command, and ends with it', async () => {
      const bytes = randomBytes(5_000_000);
      const pipeTo = (...args: string[]): Promise<Result> =>
        new Promise((resolve) => {
          const child = berthChild(args, resolve);
          child.stdin?.on('error', () => undefined);
          child.stdin?.end(bytes);
        });
      const sum = await pipeTo('--', 'sha256sum');
      expect(sum.out, sum.err).toBe(`${createHash('sha256').update(bytes).digest('hex')}  -\n`);
      expect(sum.code).toBe(0);
      // A command that reads only a part of its input, and one that gets none.
      expect(await pipeTo('--', 'sh', '-c', 'head -c 3 | wc -c; exit 4')).toMatchObject({
        code: 4,
        out: '3\n',
      });
      expect(await pipeTo('--no-stdin', '--', 'wc', '-c')).toMatchObject({ code: 0, out: '0\n' });
    });

    it('a person who leaves ends the input of the command, and the run goes on', async () => {
      const child = spawn(
        process.execPath,
        [BERTH, 'run', '-p', 'shop', '--', 'sh', '-c', 'head -c 5; echo; wc -c; echo goes on'],
        { cwd: world.dir, env: env(), stdio: ['pipe', 'pipe', 'pipe'] },
      );
      child.stdin.write('12345');
      const newest = async (): Promise<Run | undefined> =>
        (await world.berth.api.call('projectRuns', { params: project, query: { limit: 1 } }))
          .items[0];
      await waitFor('the command runs', async () => (await containers()).length > 0, {
        deadlineMs: 60_000,
      });
      const run = (await newest()) as Run;
      await untilPrinted(run, '12345');
      child.kill('SIGKILL');
      expect(await ended(run)).toMatchObject({ status: 'succeeded' });
      expect(await output(run)).toEqual(['12345', '0', 'goes on']);
      const { lines } = await world.berth.api.call('runLogs', { params: run });
      expect(lines.map(({ text }) => text).join('\n')).toContain(
        'the standard input ended after 5 bytes',
      );
    });

    it('a program that does not exist ends with 127', async () => {
      const result = await berthRun('--', '/no/such/program');
      expect(result.code, result.err).toBe(127);
    });

    it('reads the volume of the project, and the project keeps serving', async () => {
      expect((await berthRun('--', 'sh', '-c', 'echo 42 > /data/answer')).code).toBe(0);
      const result = await berthRun('--', 'cat', '/data/answer');
      expect(result.out).toBe('42\n');
      expect((await world.berth.get('shop')).body).toContain('version 1');
    });

    it('a time limit and a cancellation stop the command', async () => {
      const late = await start('echo started; sleep 600', { timeout_seconds: 2 });
      const cancelled = await start('echo started; sleep 600');
      await untilPrinted(cancelled, 'started');
      await world.berth.api.call('cancelRun', { params: cancelled });
      expect(await ended(cancelled)).toMatchObject({ status: 'cancelled' });
      expect(await ended(late)).toMatchObject({
        status: 'failed',
        error: { code: 'command_timeout' },
      });
      await waitFor('the containers are removed', async () => (await containers()).length === 0);
    });

    it('an agent that is killed goes on with the command, which ran once', async () => {
      const node = world.berth.agents['node-1'];
      if (node === undefined) throw new Error('no agent node-1');
      const script =
        'echo ran >> /data/ran; for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done; ' +
        'cat /data/ran; exit 7';
      const run = await start(script);
      await untilPrinted(run, 'line 2');
      await node.crash();
      await node.start();
      expect(await ended(run)).toMatchObject({ status: 'failed', exit_code: 7, attempt: 1 });
      expect(await output(run)).toEqual([...[1, 2, 3, 4, 5, 6].map((n) => `line ${n}`), 'ran']);
      await waitFor('the container is removed', async () => (await containers()).length === 0);
    });

    it('a container that is gone while its agent is away is a lost run', async () => {
      const node = world.berth.agents['node-1'];
      if (node === undefined) throw new Error('no agent node-1');
      const run = await start('echo started; sleep 600');
      await untilPrinted(run, 'started');
      await node.crash();
      await world.engine.docker(['rm', '-f', ...(await containers())]);
      await node.start();
      expect(await ended(run)).toMatchObject({ status: 'lost', error: { code: 'run_lost' } });
    });

    describe('a release command', () => {
      const deployWith = async (script: string) => {
        await world.berth.api.call('patchProject', {
          params: project,
          body: { release_command: ['sh', '-c', script] },
        });
        return world.berth.deploy(project);
      };
      const migrations = async (): Promise<string[]> =>
        (await berthRun('--', 'cat', '/data/migrations')).out.split('\n').filter((l) => l !== '');
      const untilItRuns = (d: { id: string }): Promise<unknown> =>
        waitFor(
          'the release command runs',
          async () => {
            const { lines } = await world.berth.api.call('deploymentLogs', { params: d });
            return lines.some(({ step, text }) => step === 'release' && text === 'started');
          },
          { deadlineMs: 60_000 },
        );
      const agent = () => {
        const node = world.berth.agents['node-1'];
        if (node === undefined) throw new Error('no agent node-1');
        return node;
      };

      it('runs once before the new version starts', async () => {
        const d = await deployWith('echo first >> /data/migrations');
        expect(await world.berth.settled(d)).toMatchObject({ status: 'running' });
        expect(await migrations()).toEqual(['first']);
        const { phases } = await world.berth.api.call('getDeployment', { params: d });
        expect(phases.map(({ name }) => name)).toContain('release');
      });

      it('that fails leaves the old version serving: no request fails', async () => {
        let isOver = false;
        const failed: string[] = [];
        let sent = 0;
        const load = (async () => {
          while (!isOver) {
            const answer = await world.berth.get('shop').catch((error: unknown) => String(error));
            sent += 1;
            if (typeof answer === 'string' || answer.status !== 200)
              failed.push(JSON.stringify(answer));
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        })();
        const d = await deployWith('echo second >> /data/migrations; sleep 2; exit 3');
        const settled = await world.berth.settled(d);
        isOver = true;
        await load;
        expect(settled).toMatchObject({ status: 'failed', error: { code: 'release_failed' } });
        expect(settled.error?.message).toContain('exit code 3');
        expect(failed).toEqual([]);
        expect(sent).toBeGreaterThan(20);
        expect(await migrations()).toEqual(['first', 'second']);
      });

      it('goes on after its agent was killed, and ran once', async () => {
        const d = await deployWith('echo third >> /data/migrations; echo started; sleep 6');
        await untilItRuns(d);
        await agent().crash();
        await agent().start();
        expect(await world.berth.settled(d)).toMatchObject({ status: 'running' });
        expect(await migrations()).toEqual(['first', 'second', 'third']);
      });

      it('is stopped at a cancellation with its grace, and the deployment ends with it', async () => {
        const d = await deployWith('echo started; sleep 600');
        await untilItRuns(d);
        await world.berth.api.call('cancelDeployment', { params: d });
        expect(await world.berth.settled(d)).toMatchObject({ status: 'cancelled' });
        expect((await world.berth.logs(d)).join('\n')).toContain(
          'cancelled: stopping the command (1 s until SIGKILL)',
        );
        expect((await world.berth.get('shop')).status).toBe(200);
      });

      it('of which nobody knows the end is release_unknown, and is not repeated', async () => {
        const d = await deployWith('echo fourth >> /data/migrations; echo started; sleep 600');
        await untilItRuns(d);
        await agent().crash();
        await world.engine.docker(['rm', '-f', ...(await containers())]);
        await agent().start();
        expect(await world.berth.settled(d)).toMatchObject({
          status: 'failed',
          error: { code: 'release_unknown' },
        });
        expect((await migrations()).filter((line) => line === 'fourth')).toHaveLength(1);
        expect((await world.berth.get('shop')).status).toBe(200);
      });
    });

    describe.skipIf(whyOne !== undefined)(
      `the standard input through two control planes${whyOne === undefined ? '' : ` (${whyOne})`}`,
      () => {
        let second: Service;
        let ports: number[];
        let inTurn: Balancer;
        beforeAll(async () => {
          const { berth, registry, dir } = world;
          ports = [Number(new URL(berth.url).port), await freePort()];
          const address = `127.0.0.1:${ports[1]}`;
          const ready = `http://${address}/readyz`;
          second = service('control-plane-2', dir, ready, ['control-plane'], {
            LISTEN: address,
            BASE_DOMAIN: berth.baseDomain,
            PUBLIC_URL: berth.publicUrl,
            AGENT_SECRET: berth.agentSecret,
            ADMIN_EMAILS: berth.admin.email,
            ADMIN_PASSWORD: berth.admin.password,
            REGISTRY_ADDR: registry.address,
            REGISTRY_USER: registry.user ?? '',
            REGISTRY_PASSWORD: registry.password ?? '',
            PROXY_PROBE_URLS: `http://127.0.0.1:${berth.entry.port}`,
            FAILOVER_AFTER: 'none',
            ...ofBoth,
          });
          await second.start();
          inTurn = await startBalancer(ports, 'in turn');
          await node().stop();
          await node().start({ CONTROL_PLANE_URL: inTurn.url });
        });
        afterAll(async () => {
          await node().stop();
          await node().start();
          inTurn.stop();
          await second.stop();
        });
        const node = (): Service => {
          const found = world.berth.agents['node-1'];
          if (found === undefined) throw new Error('no agent node-1');
          return found;
        };

        it('reaches the command, whichever control plane a request reaches', async () => {
          const catOf = (text: string): Promise<Result> =>
            new Promise((resolve) => {
              berthChild(['--', 'cat'], resolve, inTurn.url).stdin?.end(text);
            });
          for (const text of ['hello\n', 'hello again\n'])
            expect(await catOf(text)).toMatchObject({ code: 0, out: text });
        });

        it('ends when the control plane of the person is killed: the person hears it, and the run ends', async () => {
          const front = await startBalancer(ports, 'first');
          try {
            const script = 'head -c 5; echo; wc -c; echo goes on';
            const isEnded = Promise.withResolvers<Result>();
            const child = berthChild(['--', 'sh', '-c', script], isEnded.resolve, front.url);
            child.stdin?.on('error', () => undefined);
            child.stdin?.write('12345');
            let seen = '';
            child.stdout?.on('data', (text: string) => (seen += text));
            await waitFor('the command has its input', async () => seen.includes('12345'), {
              deadlineMs: 30_000,
            });
            await world.berth.controlPlane.crash();
            const result = await isEnded.promise;
            expect(result.out).toBe('12345\n0\ngoes on\n');
            expect(result.err).toContain('the command succeeded, but its input was cut off');
            expect(result.code).toBe(1);
          } finally {
            await world.berth.controlPlane.start();
            front.stop();
          }
          const { items } = await world.berth.api.call('projectRuns', {
            params: project,
            query: { limit: 1 },
          });
          expect(items[0]).toMatchObject({ status: 'succeeded', attempt: 1 });
          await waitFor('the container is removed', async () => (await containers()).length === 0);
        });
      },
    );

    it('a run of a deleted project leaves no container', async () => {
      const run = await start('echo started; sleep 600');
      await untilPrinted(run, 'started');
      await world.berth.api.call('deleteProject', { params: project, query: { volumes: true } });
      await waitFor('the container is removed', async () => (await containers()).length === 0, {
        deadlineMs: 60_000,
      });
    });
  },
);
