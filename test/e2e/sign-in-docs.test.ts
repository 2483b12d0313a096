/** Runs the device-flow examples of docs/sign-in.md unchanged, except for the addresses. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { run, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { ADA, signIn, startSignedInWorld, type SignedInWorld } from './signed-in-world.ts';

const hasRequests =
  findProgram('python3') !== undefined &&
  (await run([findProgram('python3') ?? '', '-c', 'import requests'], { mayFail: true })).code ===
    0;
const hasShell = ['bash', 'curl', 'jq'].every((program) => findProgram(program) !== undefined);

const EXAMPLES = [
  {
    language: 'sh',
    file: 'example.sh',
    argv: ['bash', '-eu'],
    missing: hasShell ? undefined : 'no bash, curl, jq',
    more: '',
  },
  {
    language: 'python',
    file: 'example.py',
    argv: ['python3', '-u'],
    missing: hasRequests ? undefined : 'no python3 with requests',
    // The example ends with the answer in a variable.
    more: '\nprint(page.text)\n',
  },
] as const;

describe('the examples of docs/sign-in.md', () => {
  let world: SignedInWorld;
  let visitor: PlainBrowser;
  let document: string;
  beforeAll(async () => {
    document = await readFile(join(repositoryRoot, 'docs', 'sign-in.md'), 'utf8');
    if (EXAMPLES.every(({ missing }) => missing !== undefined)) return;
    world = await startSignedInWorld({ proxy: 'built-in' });
    visitor = new PlainBrowser();
    await signIn(visitor, world, world.berth.address('alpha'));
  });
  afterAll(() => world?.stop());

  for (const { language, file, argv, missing, more } of EXAMPLES)
    it.skipIf(missing !== undefined)(
      `the device flow in ${language}${missing === undefined ? '' : ` (skipped: ${missing})`}`,
      { timeout: 60_000 },
      async () => {
        const { berth, dir } = world;
        const section = document.slice(document.indexOf('the device flow (RFC 8628)'));
        const [, example = ''] = new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(section) ?? [];
        expect(example).toContain('device_code');
        const text = example
          .replaceAll('https://myproject.BASE_DOMAIN', berth.address('alpha'))
          .replaceAll('https://BASE_DOMAIN', berth.publicUrl);
        await writeFile(join(dir, file), text + more);
        // curl and browsers resolve `*.localhost` to this machine. Python asks the system, which
        // may not know it.
        const local =
          `import socket\nknown = socket.getaddrinfo\nsocket.getaddrinfo = lambda host, *rest, ` +
          `**more: known('127.0.0.1', *rest, **more)\n`;
        await mkdir(join(dir, 'python'), { recursive: true });
        await writeFile(join(dir, 'python', 'sitecustomize.py'), local);
        let output = '';
        const [program, option] = argv;
        const running = await startProcess([program, option, join(dir, file)], {
          name: file,
          env: { HOME: dir, PYTHONPATH: join(dir, 'python') },
          onOutput: (chunk) => (output += chunk),
        });
        const open = await waitFor(
          'the example prints the address to open',
          () => /Open (http\S+)/.exec(output)?.[1],
        );
        const agreed = await visitor.submit(await visitor.open(open), {}, 'Connect');
        expect(agreed.status).toBe(200);
        await waitFor('it ends', () => running.exit() !== undefined, { deadlineMs: 30_000 });
        expect({ exit: running.exit(), output }).toMatchObject({
          exit: { code: 0 },
          output: expect.stringContaining(ADA.email),
        });
        expect(output).not.toContain('berth_');
      },
    );
});
