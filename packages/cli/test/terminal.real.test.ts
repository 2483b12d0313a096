/**
 * The command line as a process: prompts and keys in a terminal, signals, closed pipes, and many
 * processes with one session.
 */
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, request as send } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { programs, useBundle, whyNoTerminal } from './programs.ts';
import { ADMIN, PASSWORD, serveOnce } from './support.ts';

const served = serveOnce();
useBundle();
const ada = programs();
const CTRL_C = '\u0003';
const ENTER = '\r';

const tokensIn = (home: string): string => join(home, '.local/state/berth/tokens');
const tokenFiles = (home: string): string[] =>
  (existsSync(tokensIn(home)) ? readdirSync(tokensIn(home)) : []).filter((name) =>
    name.endsWith('.json'),
  );
type Stored = { refresh_token: string; expires_at: number };
const stored = (home: string): Stored =>
  JSON.parse(readFileSync(join(tokensIn(home), tokenFiles(home)[0] ?? ''), 'utf8')) as Stored;
const change = (home: string, set: Partial<Stored>): void =>
  writeFileSync(
    join(tokensIn(home), tokenFiles(home)[0] ?? ''),
    JSON.stringify({ ...stored(home), ...set }),
  );
const hasProject = async (name: string): Promise<boolean> =>
  (await served.api.call('getProject', { params: { id: name } })).status === 200;

function folder(name: string): string {
  const at = join(ada.home, name);
  mkdirSync(at);
  for (const args of [
    ['init', '-q', '-b', 'main'],
    ['remote', 'add', 'origin', `https://git.example.com/${name}.git`],
  ])
    execFileSync('git', args, { cwd: at });
  return at;
}

beforeAll(async () => {
  expect((await ada.run(['login', served.url, '--email', ADMIN], { stdin: PASSWORD })).code).toBe(
    0,
  );
}, 60_000);

describe.skipIf(whyNoTerminal !== undefined)(
  `in a terminal${whyNoTerminal === undefined ? '' : ` (skipped: ${whyNoTerminal})`}`,
  () => {
    const eve = programs();

    test('login asks for the password without showing it, in 40 columns', async () => {
      const terminal = eve.terminal(['login', served.url, '--email', ADMIN], { columns: 40 });
      await terminal.shows('Password of');
      terminal.type(`${PASSWORD}${ENTER}`);
      expect(await terminal.ended).toBe(0);
      expect(terminal.text()).toContain('signed in to');
      expect(terminal.text()).not.toContain(PASSWORD);
    });

    test('Ctrl-C at the password signs nobody in and exits with 130', async () => {
      const mallory = programs();
      const terminal = mallory.terminal(['login', served.url, '--email', ADMIN]);
      await terminal.shows('Password of');
      terminal.type(CTRL_C);
      expect(await terminal.ended).toBe(130);
      expect(tokenFiles(mallory.home)).toEqual([]);
    });

    test('deploy in a new folder asks for name and port, creates the project and links the folder; Ctrl-C detaches', async () => {
      const at = folder('new-shop');
      const terminal = ada.terminal(['deploy'], { cwd: at, columns: 40 });
      await terminal.shows('Name of a new project');
      await terminal.shows('new-shop');
      terminal.type(ENTER);
      await terminal.shows('Port that the application');
      terminal.type(ENTER);
      await terminal.shows('build ');
      await terminal.resize(30);
      terminal.type(CTRL_C);
      await terminal.shows('continues');
      expect(await terminal.ended).toBe(130);
      expect(
        terminal.raw().lastIndexOf('\u001b[?25h'),
        'the cursor is shown again',
      ).toBeGreaterThan(terminal.raw().lastIndexOf('\u001b[?25l'));
      expect(JSON.parse(readFileSync(join(at, '.berth.json'), 'utf8'))).toEqual({
        url: served.url,
        project: 'new-shop',
      });
    });

    test('Ctrl-C at the name creates nothing and exits with 130', async () => {
      const terminal = ada.terminal(['deploy'], { cwd: folder('no-shop') });
      await terminal.shows('Name of a new project');
      terminal.type(CTRL_C);
      expect(await terminal.ended).toBe(130);
      expect(await hasProject('no-shop')).toBe(false);
    });

    test.each([
      [ENTER, {}, 130, true],
      [CTRL_C, {}, 130, true],
      ['y', { NO_COLOR: '1' }, 0, false],
    ] as const)(
      'a deletion asks first: the key %j with %j exits with %i',
      async (key, env, code, remains) => {
        const name = `doomed-${Object.keys(env).length}-${code}-${key.charCodeAt(0)}`;
        await createProject(served.api, { name, domain_prefix: name });
        const terminal = ada.terminal(['project', 'delete', name], { env });
        await terminal.shows(`Delete ${name}`);
        terminal.type(key);
        expect(await terminal.ended).toBe(code);
        if (remains) expect(terminal.text()).toContain('nothing was changed');
        expect((await served.api.call('getProject', { params: { id: name } })).json).toMatchObject({
          deleting: !remains,
        });
        if (Object.keys(env).length > 0)
          expect(terminal.raw(), 'no colours').not.toMatch(/\p{Cc}\[3\dm/u);
      },
    );

    test('TERM=dumb: nothing is asked, and the command says what to give', async () => {
      const terminal = ada.terminal(['secret', 'set', 'KEY', '--project', 'new-shop'], {
        env: { TERM: 'dumb' },
      });
      expect(await terminal.ended).toBe(2);
      expect(terminal.text()).toContain('standard input');
    });

    test('Ctrl-C while a browser is waited for exits with 130 and says so', async () => {
      const gateway = createServer((request, reply) => {
        const url = `http://${request.headers.host}`;
        const answers: Record<string, object> = {
          '/.well-known/oauth-authorization-server': {
            device_authorization_endpoint: `${url}/code`,
            token_endpoint: `${url}/token`,
          },
          '/code': {
            device_code: 'd',
            user_code: 'ABCD-EFGH',
            verification_uri: `${url}/\u001b]0;title\u0007device`,
            interval: 60,
          },
        };
        reply.end(JSON.stringify(answers[request.url ?? ''] ?? { error: 'authorization_pending' }));
      });
      await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
      onTestFinished(() => void gateway.close());
      const terminal = eve.terminal([
        'login',
        `http://127.0.0.1:${(gateway.address() as { port: number }).port}`,
      ]);
      await terminal.shows('Waiting for your confirmation');
      terminal.type(CTRL_C);
      await terminal.shows('you are not signed in');
      expect(await terminal.ended).toBe(130);
      expect(terminal.raw(), 'the gateway does not change the title of the terminal').not.toContain(
        '\u001b]0;',
      );
    });
  },
);

describe('pipes and signals', () => {
  test.each(['project list --json', 'events', '--help'])(
    'a reader that has enough ends the command without an error: berth %s',
    async (line) => {
      const { stdout, stderr } = await promisify(execFile)(
        'bash',
        ['-c', `berth ${line} | head -c 1; echo "\${PIPESTATUS[0]}"`],
        {
          cwd: ada.home,
          env: ada.env,
        },
      );
      expect({ code: stdout.trim().slice(1), stderr }).toEqual({ code: '0', stderr: '' });
    },
  );

  test('a value from a closed standard input is empty and refused', async () => {
    expect(
      await ada.run(['secret', 'set', 'KEY', '--project', 'new-shop'], { stdin: null }),
    ).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining('is empty'),
    });
  });
});

describe('one session and many processes', () => {
  test('twenty processes with an expired token: nobody is signed out', async () => {
    change(ada.home, { expires_at: 0 });
    const results = await Promise.all(Array.from({ length: 20 }, () => ada.run(['whoami'])));
    expect(results.map(({ code, err }) => ({ code, err }))).toEqual(
      results.map(() => ({ code: 0, err: '' })),
    );
  });

  /** A proxy that holds the answers of renewals until `release`. `asked`: that many have come. */
  async function slowRenewals(
    count: number,
  ): Promise<{ url: string; asked: Promise<void>; release: () => void }> {
    let came = 0;
    const asked = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const proxy = createServer((request, reply) => {
      const isRenewal = request.url === '/api/auth/refresh';
      const onward = send(
        `${served.url}${request.url}`,
        { method: request.method, headers: request.headers },
        (answer) => {
          const pass = (): void =>
            void answer.pipe(reply.writeHead(answer.statusCode ?? 500, answer.headers));
          if (!isRenewal) return pass();
          if (++came === count) asked.resolve();
          void released.promise.then(pass);
        },
      );
      request.pipe(onward);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void proxy.close());
    return {
      url: `http://127.0.0.1:${(proxy.address() as { port: number }).port}`,
      asked: asked.promise,
      release: released.resolve,
    };
  }

  test('Ctrl-C, SIGTERM and SIGHUP during a renewal: the new token is stored before the process ends', async () => {
    const { url, asked, release } = await slowRenewals(3);
    const started = await Promise.all(
      (
        [
          ['SIGINT', 130],
          ['SIGTERM', 143],
          ['SIGHUP', 129],
        ] as const
      ).map(async ([signal, code]) => {
        const who = programs();
        expect((await who.run(['login', url, '--email', ADMIN], { stdin: PASSWORD })).code).toBe(0);
        change(who.home, { expires_at: 0 });
        return {
          who,
          signal,
          code,
          before: stored(who.home).refresh_token,
          ...who.start(['whoami']),
        };
      }),
    );
    await asked;
    for (const { child, signal } of started) child.kill(signal);
    // Longer than the command waits for its last sentence.
    setTimeout(release, 800);
    for (const { who, signal, code, before, ended } of started) {
      expect((await ended).code, signal).toBe(code);
      expect(stored(who.home).refresh_token, signal).not.toBe(before);
    }
    expect(
      (await Promise.all(started.map(({ who }) => who.run(['whoami'])))).map(({ code }) => code),
    ).toEqual([0, 0, 0]);
  });
});
