/** A person at a machine of their own: a home folder, a browser, `git` and `berth`. */
import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { childEnvironment, findProgram, repositoryRoot } from '@berth/testbed/config';
import { hermeticGit } from '@berth/testbed/git-repo';
import type { Account, IdentityProvider } from '@berth/testbed/identity-provider';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import type { Forge } from './forge.ts';

/** Size of a terminal. */
export type Terminal = { columns: number; rows: number };
export type RunLine = {
  /** Folder below the home folder. */
  folder?: string;
  onOutput?: (chunk: string) => void;
  /** Runs the line in a real terminal of this size (a pty of script(1)). */
  terminal?: Terminal;
};
export type Person = {
  home: string;
  /** Runs a line in bash. Returns the exit code and the output. */
  run(line: string, options?: RunLine): Promise<{ code: number | null; output: string }>;
  /** Runs `berth login` and confirms in the browser the code that it shows. */
  login(
    publicUrl: string,
    people: IdentityProvider,
    options?: RunLine & { onConfirmed?: () => void },
  ): Promise<number | null>;
  /**
   * Makes a folder with an application and the address of its repository, as `git init` and an
   * editor do.
   */
  createFolder(name: string, files: Record<string, string>, forge: Forge): Promise<void>;
};

export async function createPerson(home: string, account: Account): Promise<Person> {
  await mkdir(home, { recursive: true, mode: 0o700 });
  // Without a display, `berth login` opens no browser on the screen of whoever runs this.
  const noDisplay = { DISPLAY: '', WAYLAND_DISPLAY: '', BROWSER: '' };
  const given = childEnvironment({
    ...hermeticGit,
    ...noDisplay,
    HOME: home,
    SHELL: '/bin/bash',
    LC_ALL: 'C.UTF-8',
  });
  const env = {
    ...given,
    PATH: [join(repositoryRoot, 'bin'), dirname(process.execPath), given['PATH']].join(delimiter),
  };
  const setpriv = findProgram('setpriv');
  const bound = setpriv === undefined ? [] : [setpriv, '--pdeathsig', 'KILL', '--'];
  const script = join(home, '.line');
  const person: Person = {
    home,
    async run(line, { folder = '.', onOutput, terminal } = {}) {
      const size =
        terminal === undefined ? '' : `stty cols ${terminal.columns} rows ${terminal.rows} -echo\n`;
      // A single command takes the place of bash, so that it ends with a killed demo, too.
      await writeFile(script, `${size}${line.includes('&&') ? '' : 'exec '}${line}\n`);
      const inTerminal = [
        'script',
        '--quiet',
        '--return',
        '--flush',
        '--command',
        `bash '${script}'`,
        '/dev/null',
      ];
      const [program = '', ...args] = [
        ...bound,
        ...(terminal === undefined ? ['bash', script] : inTerminal),
      ];
      const child = spawn(program, args, {
        cwd: join(home, folder),
        env: terminal === undefined ? env : { ...env, TERM: 'xterm-256color', NO_COLOR: '' },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream.setEncoding('utf8').on('data', (chunk: string) => {
          output += chunk;
          onOutput?.(chunk);
        });
      return new Promise((resolve, reject) =>
        child.once('error', reject).once('close', (code) => resolve({ code, output })),
      );
    },
    async login(publicUrl, people, options = {}) {
      let seen = '';
      const onOutput = (chunk: string): void => {
        seen += chunk;
        options.onOutput?.(chunk);
      };
      const running = person.run(`berth login ${publicUrl}`, { ...options, onOutput });
      const shown = /Open (\S+) and enter the code ([B-Z]{4}-[B-Z]{4})/;
      const [, page, code] = await waitFor(
        'berth login shows a code',
        () => shown.exec(stripVTControlCharacters(seen)),
        {
          deadlineMs: 60_000,
        },
      );
      const browser = new PlainBrowser();
      const consent = await people.signIn(
        browser,
        await browser.open(`${page}?code=${code}`),
        account,
      );
      await browser.submit(consent, {}, 'Connect');
      options.onConfirmed?.();
      return (await running).code;
    },
    async createFolder(name, files, forge) {
      const folder = join(home, name);
      await mkdir(folder);
      for (const [path, content] of Object.entries(files))
        await writeFile(join(folder, path), content);
      const settings = {
        'user.name': account.name ?? account.email,
        'user.email': account.email,
        ...forge.gitConfig,
      };
      const origin = await forge.createRepo(name);
      const lines = [
        'git init --quiet --initial-branch main',
        ...Object.entries(settings).map(
          ([key, value]) => `git config ${key} ${JSON.stringify(value)}`,
        ),
        `git remote add origin ${origin}`,
      ];
      const { code, output } = await person.run(lines.join(' && '), { folder: name });
      if (code !== 0) throw new Error(`cannot make the repository of ${name}: ${output}`);
    },
  };
  return person;
}
