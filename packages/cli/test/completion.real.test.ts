/** Completion in the real shells, with names of the real control plane. */
import { beforeAll, describe, expect, test } from 'vitest';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { createWorld } from '../../control-plane/test/api/deployed.ts';
import { found, programs, type Terminal, useBundle, whyNoTerminal } from './programs.ts';
import { ADMIN, PASSWORD, serveOnce } from './support.ts';

const served = serveOnce();
useBundle();
const user = programs();
const stranger = programs();

beforeAll(async () => {
  await createProject(served.api, { name: 'warehouse', domain_prefix: 'warehouse' });
  await createWorld(served.api);
  expect((await user.run(['login', served.url, '--email', ADMIN], { stdin: PASSWORD })).code).toBe(
    0,
  );
}, 60_000);

const PROMPT = 'ready> ';
const SHELLS = {
  bash: {
    start: 'exec bash --norc --noprofile -i',
    setup: `PS1='${PROMPT.slice(0, 3)}'"${PROMPT.slice(3)}"; source <(berth completion bash)`,
  },
  zsh: {
    start: 'exec zsh -f -i',
    setup:
      `PS1='${PROMPT.slice(0, 3)}'"${PROMPT.slice(3)}"; autoload -U compinit; compinit -u -D; ` +
      'source <(berth completion zsh)',
  },
  fish: {
    start: 'exec fish --no-config -i',
    setup:
      `function fish_prompt; echo -n '${PROMPT.slice(0, 3)}'"${PROMPT.slice(3)}"; end; berth ` +
      'completion fish | source',
  },
};

describe.each(Object.entries(SHELLS))('%s', (name, { start, setup }) => {
  const missing =
    whyNoTerminal ?? (found(name) ? undefined : `no ${name}: apt-get install ${name}`);

  async function opened(who: typeof user): Promise<Terminal> {
    const terminal = who.shell(start);
    terminal.type(`${setup}\n`);
    await terminal.shows(PROMPT);
    return terminal;
  }
  /** Ctrl-U empties the line. */
  async function completes(terminal: Terminal, typed: string, expected: string): Promise<void> {
    terminal.type(`${typed}\t`);
    await terminal.shows(expected);
    terminal.type('\u0015');
  }

  test.skipIf(missing !== undefined)(
    `completes nouns, verbs, options and names of the server${missing === undefined ? '' : ` (skipped: ${missing})`}`,
    async () => {
      const terminal = await opened(user);
      const { host } = new URL(served.url);
      const words = [
        ['berth plac', 'placement'],
        ['berth node unc', 'node uncordon'],
        ['berth deploy --det', '--detach'],
        ['berth hook create --forge forg', 'forgejo'],
        ['berth status ware', 'warehouse'],
        ['berth user show adm', ADMIN],
        [`berth context use ${host.slice(0, -2)}`, `use ${host}`],
      ] as const;
      // The three shells ask the same program, so one of them tries every kind of word.
      for (const [typed, rest] of name === 'bash' ? words : words.slice(3))
        await completes(terminal, typed, rest);
      terminal.type('exit\n');
      await terminal.ended;
    },
  );

  test.skipIf(missing !== undefined)(
    'says nothing where it has no names: nobody is signed in',
    async () => {
      const terminal = await opened(stranger);
      terminal.type('berth status ware\t');
      // The next key is handled after the completion.
      terminal.type('X');
      await terminal.shows('status wareX');
      expect(terminal.text()).not.toMatch(/signed in|login|Error/);
      terminal.type('\u0015exit\n');
      await terminal.ended;
    },
  );
});
