/**
 * The command line as people run it: real processes against real parts. Sign-in by the device flow,
 * a new folder that goes live, a failure, the fix by a push, a rollback; then commands in CI and in
 * a terminal.
 */
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { hermeticGit } from '@berth/testbed/git-repo';
import {
  type Account,
  type IdentityProvider,
  startIdentityProvider,
} from '@berth/testbed/identity-provider';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import { readYaml } from '@berth/testbed/yaml';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const ADA: Account = {
  email: 'ada@example.org',
  password: 'Engine-of-Analysis-1843',
  name: 'Ada Lovelace',
  picture: null,
  emailVerified: true,
};
const BERTH = join(repositoryRoot, 'bin', 'berth');
const SCRIPT = '/usr/bin/script';
const reason = await whyNot();

type Result = { code: number | null; out: string; err: string };

describe.skipIf(reason !== undefined)(
  `the command line${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let idp: IdentityProvider;
    let git: GitServer;
    let home: string;
    let folder: string;
    const browser = new PlainBrowser();
    const env = (): NodeJS.ProcessEnv => ({
      PATH: process.env['PATH'],
      HOME: home,
      ...hermeticGit,
      GIT_AUTHOR_NAME: 'Ada',
      GIT_AUTHOR_EMAIL: ADA.email,
      GIT_COMMITTER_NAME: 'Ada',
      GIT_COMMITTER_EMAIL: ADA.email,
    });

    beforeAll(async () => {
      idp = await startIdentityProvider({ accounts: [ADA] });
      world = await startWorld({
        proxy: 'built-in',
        env: { DEFAULT_ROLE: 'developer' },
        gateway: {
          env: (publicUrl) => {
            idp.allowRedirect(`${publicUrl}/_oauth/callback/oidc`);
            return {
              OIDC_ISSUER: idp.issuer,
              OIDC_CLIENT_ID: idp.clientId,
              OIDC_CLIENT_SECRET: idp.clientSecret,
            };
          },
        },
      });
      git = await startGitServer({ root: join(world.dir, 'forge'), push: true });
      home = join(world.dir, 'home');
      folder = join(home, 'shop');
      await mkdir(home);
    }, 180_000);
    afterAll(async () => {
      await git?.stop();
      await world?.stop();
      await idp?.stop();
    });

    function berth(
      argv: readonly string[],
      given: { stdin?: string; cwd?: string; onErr?: (text: string) => void } = {},
    ): Promise<Result> {
      return new Promise((resolve, reject) => {
        const child = spawn(process.execPath, [BERTH, ...argv], {
          cwd: given.cwd ?? home,
          env: env(),
        });
        let [out, err] = ['', ''];
        child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
        child.stderr.setEncoding('utf8').on('data', (text: string) => {
          err += text;
          given.onErr?.(err);
        });
        child.on('error', reject);
        child.on('close', (code) => resolve({ code, out, err }));
        child.stdin.end(given.stdin ?? '');
      });
    }
    /** Runs the lines as the runner of a forge does: from a file, ending with the first error. */
    async function runScript(script: string, variables: Record<string, string>): Promise<Result> {
      const path = join(world.dir, 'runner', 'script');
      await writeFile(path, script);
      return new Promise((resolve, reject) => {
        const child = spawn('bash', ['-e', '-o', 'pipefail', path], {
          cwd: folder,
          env: variables,
        });
        let [out, err] = ['', ''];
        child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
        child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
        child.on('error', reject);
        child.on('close', (code) => resolve({ code, out, err }));
      });
    }
    const gitIn = async (...args: string[]): Promise<void> =>
      void (await promisify(execFile)('git', args, { cwd: folder, env: env() }));
    async function push(files: Record<string, string>, message: string): Promise<void> {
      for (const [path, content] of Object.entries(files)) {
        await mkdir(join(folder, path, '..'), { recursive: true });
        await writeFile(join(folder, path), content);
      }
      await gitIn('add', '.');
      await gitIn('commit', '-q', '-m', message);
      await gitIn('push', '-q', 'origin', 'HEAD:main');
    }

    it('login: the command shows a code, a person confirms it in a browser, and the command is signed in', async () => {
      let address: string | undefined;
      const running = berth(['login', world.berth.publicUrl, '--no-browser'], {
        onErr: (text) =>
          (address ??= /Open (\S+) and enter the code (\S+)\n/.exec(text)?.slice(1).join(' ')),
      });
      const [page = '', code = ''] = (
        await waitFor('the command shows a code', () => address, { deadlineMs: 20_000 })
      ).split(' ');
      expect(code).toMatch(/^[B-Z]{4}-[B-Z]{4}$/);
      const form = await browser.open(`${page}?code=${code}`);
      const consent = await idp.signIn(browser, form, ADA);
      expect(consent.body).toContain('berth/');
      expect((await browser.submit(consent, {}, 'Connect')).status).toBe(200);
      expect(await running).toMatchObject({
        code: 0,
        out: `signed in to ${world.berth.publicUrl} as ${ADA.email} (developer)\n`,
      });
    });

    it('a new folder goes live: project create, then deploy prints its address', async () => {
      const { url } = await git.createRepo('shop', pageApp(1));
      await promisify(execFile)('git', ['clone', '-q', url, folder], { cwd: home, env: env() });
      const created = await berth(
        ['project', 'create', '--drain-seconds', '0', '--stop-grace-seconds', '1'],
        { cwd: folder },
      );
      expect(created, created.err).toMatchObject({
        code: 0,
        out: expect.stringContaining('created shop'),
      });
      const { code, out, err } = await berth(['deploy'], { cwd: folder });
      expect({ code, out }, err).toEqual({ code: 0, out: `${world.berth.address('shop')}\n` });
      for (const step of ['build', 'place', 'start', 'route'])
        expect(err).toMatch(new RegExp(`^${step} +done: \\S`, 'm'));
      expect(err).toContain('the entry point of the reverse proxy serves the new route');
      expect((await world.berth.get('shop')).body).toContain('version 1');
    });

    it('a failure says where, why, with which lines, what still serves and what to do; the fix by a push goes live', async () => {
      const { Dockerfile = '' } = pageApp(2, ['RUN echo about to fail && false']);
      await push({ Dockerfile, 'www/index.html': 'version 2\n' }, 'broken');
      const failed = await berth(['deploy'], { cwd: folder });
      expect({ code: failed.code, out: failed.out }).toEqual({ code: 1, out: '' });
      for (const text of [
        'failed at build: build_step_failed',
        'about to fail',
        'still serves at',
        'correct it in the repository, push, then berth deploy',
      ])
        expect(failed.err).toContain(text);
      expect((await world.berth.get('shop')).body).toContain('version 1');

      await push(pageApp(3), 'fixed');
      const fixed = await berth(['deploy', '--json'], { cwd: folder });
      expect(fixed.code, fixed.err).toBe(0);
      expect(JSON.parse(fixed.out.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({
        type: 'result',
        status: 'running',
        generation: 3,
      });
      expect((await world.berth.get('shop')).body).toContain('version 3');
    });

    it('rollback brings the version before back without a build', async () => {
      const { code, out, err } = await berth(['rollback'], { cwd: folder });
      expect({ code, out }, err).toEqual({ code: 0, out: `${world.berth.address('shop')}\n` });
      expect(err).not.toMatch(/^build /m);
      expect((await world.berth.get('shop')).body).toContain('version 1');
    });

    /** The lines that the file runs: `run` of GitHub and Gitea, `script` of GitLab. */
    async function scriptOf(file: string): Promise<string> {
      const content = (await readYaml(join(repositoryRoot, 'examples/ci', file))) as {
        deploy?: { script: string[] };
        jobs?: { deploy: { steps: { run?: string }[] } };
      };
      return (
        content.deploy?.script.join('\n') ??
        content.jobs?.deploy.steps.flatMap((step) => step.run ?? []).join('\n') ??
        ''
      );
    }

    it('in CI: the files of the three forges run the same lines', async () => {
      const [github, ...others] = await Promise.all(
        [
          'github/.github/workflows/deploy.yml',
          'gitea/.gitea/workflows/deploy.yml',
          'gitlab/.gitlab-ci.yml',
        ].map(scriptOf),
      );
      const plain = (script: string): string =>
        script
          .replaceAll(/"?\$RUNNER_TEMP(\/[a-z/.]+)?"?/g, '/tmp$1')
          .replace('$GITHUB_SHA', '$CI_COMMIT_SHA')
          .replace(/--note ".*"/, '')
          .trim();
      for (const other of others) expect(plain(other)).toBe(plain(github ?? ''));
    });

    const withoutCurl = findProgram('curl') === undefined ? ' (skipped: no curl)' : '';
    it.skipIf(withoutCurl !== '').each(['github/.github/workflows/deploy.yml'])(
      `in CI: examples/ci/%s deploys the commit of the pipeline${withoutCurl}`,
      async (file) => {
        const { bundleIsCurrent, provideBundle } = (await import(
          pathToFileURL(join(repositoryRoot, 'scripts/lib/bundle.mjs')).href
        )) as {
          bundleIsCurrent: () => boolean;
          provideBundle: () => Promise<unknown>;
        };
        if (!bundleIsCurrent()) expect(await provideBundle()).toBeUndefined();
        const runner = join(world.dir, 'runner');
        await mkdir(runner, { recursive: true });
        const archive = join(runner, 'berth-cli.tar.gz');
        await promisify(execFile)('tar', [
          '-czf',
          archive,
          '--exclude=cache',
          '-C',
          join(repositoryRoot, '.tools'),
          'cli',
        ]);
        await push({ 'www/index.html': `version ${file}\n` }, `for ${file}`);
        const sha = (
          await promisify(execFile)('git', ['rev-parse', 'HEAD'], { cwd: folder, env: env() })
        ).stdout.trim();
        const token = (await berth(['token', 'create', file])).out.trim();
        const script = (await scriptOf(file)).replaceAll(' /tmp', ` ${runner}`);
        const result = await runScript(script, {
          PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
          HOME: runner,
          RUNNER_TEMP: runner,
          BERTH_URL: world.berth.publicUrl,
          BERTH_PROJECT: 'shop',
          BERTH_CLI_URL: `file://${archive}`,
          BERTH_TOKEN: token,
          GITHUB_SHA: sha,
          GITHUB_RUN_ID: '7',
        });
        expect(result, result.err).toMatchObject({
          code: 0,
          out: `${world.berth.address('shop')}\n`,
        });
        expect((await world.berth.get('shop')).body).toBe(`version ${file}\n`);
      },
    );

    const tokenFile = async (): Promise<string> => {
      const tokens = join(home, '.local/state/berth/tokens');
      const [name = ''] = (await readdir(tokens)).filter((file) => file.endsWith('.json'));
      return join(tokens, name);
    };
    const expire = async (set: Record<string, unknown> = {}): Promise<void> => {
      const path = await tokenFile();
      await writeFile(
        path,
        JSON.stringify({
          ...(JSON.parse(await readFile(path, 'utf8')) as object),
          expires_at: 0,
          ...set,
        }),
      );
    };

    it('a killed process that lost the new refresh token: the device token opens a new session', async () => {
      const { refresh_token } = JSON.parse(await readFile(await tokenFile(), 'utf8')) as {
        refresh_token: string;
      };
      await expire();
      expect((await berth(['whoami'])).code).toBe(0);
      // The old token again: as if the process had died between the answer and the file.
      await expire({ refresh_token });
      expect((await berth(['whoami'])).code).toBe(0);
    });

    it('Ctrl-C during deploy detaches with 130, and the deployment goes on', async () => {
      const child = spawn(process.execPath, [BERTH, 'deploy'], { cwd: folder, env: env() });
      let err = '';
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        if (!err.includes('build ') && (err + text).includes('build ')) child.kill('SIGINT');
        err += text;
      });
      expect(await new Promise((resolve) => child.on('close', resolve)), err).toBe(130);
      const id = /berth cancel (\S+);/.exec(err)?.[1] ?? '';
      if (!existsSync(SCRIPT)) return;
      // In a terminal, the steps are drawn in place and the address follows.
      const { stdout } = await promisify(execFile)(
        SCRIPT,
        ['-qefc', `${process.execPath} ${BERTH} deployment watch ${id}`, '/dev/null'],
        {
          cwd: folder,
          env: { ...env(), TERM: 'xterm' },
        },
      );
      expect(stdout).toContain('\u001b[?25l');
      expect(stdout.lastIndexOf('\u001b[?25h')).toBeGreaterThan(stdout.lastIndexOf('\u001b[?25l'));
      expect(
        stdout
          .trimEnd()
          .replaceAll('\u001b[?25h', '')
          .trimEnd()
          .endsWith(world.berth.address('shop')),
      ).toBe(true);
    });

    it('logout revokes the device token', async () => {
      expect((await berth(['logout'])).code).toBe(0);
      expect((await berth(['whoami'])).code).toBe(4);
    });
  },
);
