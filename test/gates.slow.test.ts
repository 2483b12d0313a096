/**
 * Each gate can fail: under the real configuration files, it gets a small tree with one breach per
 * file and must name exactly those breaches. It must pass a tree without a breach.
 */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const BIN = path.join(ROOT, 'node_modules/.bin');

type Run = { code: number; output: string };
const run = (cwd: string, tool: string, ...args: string[]): Promise<Run> =>
  new Promise((resolve) => {
    execFile(path.join(BIN, tool), args, { cwd, maxBuffer: 16 << 20 }, (error, stdout, stderr) => {
      // `code` is a string (ENOENT) when the tool could not be started.
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ code, output: `${stdout}${stderr}${code === -1 ? error?.message : ''}` });
    });
  });

let dir = '';
/**
 * Creates a tree under the repository's configuration. node_modules is a link, so that names
 * resolve as they do here.
 */
async function tree(name: string, files: Record<string, string>): Promise<string> {
  const at = path.join(dir, name);
  await mkdir(at, { recursive: true });
  for (const file of [
    '.oxlintrc.json',
    'biome.json',
    'knip.json',
    'tsconfig.json',
    'package.json',
    '.gitignore',
  ])
    await cp(path.join(ROOT, file), path.join(at, file));
  await cp(path.join(ROOT, 'scripts/lint'), path.join(at, 'scripts/lint'), { recursive: true });
  await symlink(path.join(ROOT, 'node_modules'), path.join(at, 'node_modules'));
  for (const [file, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(at, file)), { recursive: true });
    await writeFile(path.join(at, file), text);
  }
  return at;
}

beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'berth-gates-'));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

describe('types', () => {
  test('tsc names each breach and passes correct code', { timeout: 60_000 }, async () => {
    const at = await tree('types', {
      'packages/kit/src/right.ts': `export const one: number = 1;\n`,
      'packages/kit/src/wrong-type.ts': `export const one: number = 'one';\n`,
      'packages/kit/src/enum.ts': `export enum Colour { Red }\n`,
      'packages/kit/src/unused.ts': `const unused = 1;\nexport {};\n`,
      'packages/kit/src/index-access.ts': `export const first = (list: string[]): string => list[0];\n`,
      'packages/kit/src/value-import.ts': `import { Options } from './type.ts';\nexport const o: Options = { a: 1 };\n`,
      'packages/kit/src/type.ts': `export type Options = { a: number };\n`,
    });
    const { code, output } = await run(at, 'tsc', '-p', 'tsconfig.json', '--pretty', 'false');
    expect(code).not.toBe(0);
    const named = [...output.matchAll(/^packages\/kit\/src\/([a-z-]+)\.ts.*error (TS\d+)/gm)]
      .map((m) => `${m[1]} ${m[2]}`)
      .sort();
    expect(named).toEqual([
      'enum TS1294',
      'index-access TS2322',
      'unused TS6133',
      'value-import TS1484',
      'wrong-type TS2322',
    ]);
  });
});

describe('lint', () => {
  /** file -> [text, the rule that must name it, or null for none] */
  const cp = 'packages/control-plane/src';
  const imports = (
    ...specifiers: string[]
  ): string => `${specifiers.map((s, i) => `import * as m${i} from '${s}';`).join('\n')}
export const used = [${specifiers.map((_, i) => `m${i}`).join(', ')}];\n`;
  const ARROW = 'eslint(no-restricted-imports)';
  const FILES: Record<string, [text: string, rule: string | null]> = {
    'packages/kit/src/floating.ts': [
      `const f = async (): Promise<void> => {};\nf();\nexport const x = 1;\n`,
      'typescript(no-floating-promises)',
    ],
    'packages/kit/src/misused.ts': [
      `const f = async (): Promise<boolean> => true;\nexport const x = (): number => {\n  if ` +
        `(f()) return 1;\n  return 2;\n};\n`,
      'typescript(no-misused-promises)',
    ],
    'packages/kit/src/any.ts': [
      `export const f = (x: any): unknown => x;\n`,
      'typescript(no-explicit-any)',
    ],
    'packages/kit/src/bang.ts': [
      `export const f = (x: string | null): string => x!;\n`,
      'typescript(no-non-null-assertion)',
    ],
    'packages/kit/src/unused.ts': [
      `export const f = (): number => {\n  const never = 1;\n  return 2;\n};\n`,
      'eslint(no-unused-vars)',
    ],
    'packages/kit/src/eqeq.ts': [
      `export const f = (a: string, b: string): boolean => a == b;\n`,
      'eslint(eqeqeq)',
    ],
    'packages/kit/src/swallow.ts': [
      `export const f = (): void => {\n  try {\n    JSON.parse('');\n  } catch {}\n};\n`,
      'eslint(no-empty)',
    ],
    'packages/kit/src/cycle-a.ts': [
      `import { b } from './cycle-b.ts';\nexport const a = (): unknown => b;\n`,
      'import(no-cycle)',
    ],
    'packages/kit/src/cycle-b.ts': [
      `import { a } from './cycle-a.ts';\nexport const b = (): unknown => a;\n`,
      'import(no-cycle)',
    ],
    'packages/kit/src/type-cycle-a.ts': [
      `import type { B } from './type-cycle-b.ts';\nexport type A = { b: B | null };\n`,
      'import(no-cycle)',
    ],
    'packages/kit/src/type-cycle-b.ts': [
      `import type { A } from './type-cycle-a.ts';\nexport type B = { a: A | null };\n`,
      'import(no-cycle)',
    ],
    'packages/kit/src/barrel.ts': [`export * from './any.ts';\n`, 'oxc(no-barrel-file)'],
    'packages/kit/src/env.ts': [
      `export const home = process.env['HOME'];\n`,
      'node(no-process-env)',
    ],
    'packages/kit/src/config.ts': [`export const home = process.env['HOME'];\n`, null],
    'packages/kit/src/draft.ts': [
      `import { rename, writeFile } from 'node:fs/promises';\nexport const f = async (): ` +
        `Promise<void> => {\n` +
        `  await writeFile('a.new', '');\n  await rename('a.new', 'a');\n};\n`,
      'berth(write-file-whole)',
    ],
    'packages/kit/src/write-file.ts': [
      `import { openSync, renameSync } from 'node:fs';\nexport const f = (): number => {\n  ` +
        `renameSync('a.new', 'a');\n` +
        `  return openSync('a', 'r');\n};\n`,
      null,
    ],
    'packages/kit/src/moves.ts': [
      `import { readFile, rename } from 'node:fs/promises';\nexport const f = async (): ` +
        `Promise<string> => {\n` +
        `  await rename('a', 'b');\n  return readFile('b', 'utf8');\n};\n`,
      null,
    ],
    'packages/cli/src/cipher.ts': [
      `import { createDecipheriv } from 'node:crypto';\nexport const f = createDecipheriv;\n`,
      'berth(cipher-in-seal)',
    ],
    [`${cp}/domain-cipher.ts`]: [
      `import * as crypto from 'node:crypto';\nexport const f = crypto.createCipheriv;\n`,
      'berth(cipher-in-seal)',
    ],
    'packages/kit/src/seal.ts': [
      `import { createCipheriv } from 'node:crypto';\nexport const f = createCipheriv;\n`,
      null,
    ],
    'packages/cli/src/cookie.ts': [
      "export const f = (headers: Record<string, string>): string[] => (headers['x'] ?? " +
        `'').split(';').map((pair) => pair.trim());\n`,
      'berth(trim-ows)',
    ],
    'packages/cli/src/header.ts': [
      'export const f = (headers: Record<string, string>): string | undefined => ' +
        `headers['x']?.trimStart();\n`,
      'berth(trim-ows)',
    ],
    'packages/cli/src/answer.ts': [
      `export const f = (text: string): string => text.trim();\n`,
      null,
    ],
    'packages/gateway/src/trim.ts': [
      `export const f = (text: string): string => text.trim();\n`,
      'berth(no-trim)',
    ],
    [`${cp}/api/trim.ts`]: [
      `export const f = (text: string): string => text.trimEnd();\n`,
      'berth(no-trim)',
    ],
    'packages/kit/src/long.ts': [
      `export const f = (a: number): number => {\n${'  a += 1;\n'.repeat(120)}  return a;\n};\n`,
      'eslint(max-lines-per-function)',
    ],
    'packages/kit/src/whole.ts': [
      `export const f = (a: number): number => {\n${'  a += 1;\n'.repeat(110)}  return a;\n};\n`,
      null,
    ],
    'packages/kit/src/choice.ts': [
      "export const f = (a: number): string => (a > 1 ? 'b' : a > 0 ? 'c' : 'd');\n",
      'eslint(no-nested-ternary)',
    ],
    'packages/kit/src/moved.ts': [
      `/** A file. */\nexport const a = 1;\n/** Of a. */\n/** Of b. */\nexport const b = 1;\n`,
      'berth(one-doc-comment)',
    ],
    'packages/kit/src/about.ts': [`/** A file. */\n/** Of a. */\nexport const a = 1;\n`, null],
    'packages/kit/src/spread.ts': [
      'export const f = (a?: number): object => ({ ...(a === undefined ? {} : { a }) });\n',
      'berth(no-conditional-spread)',
    ],
    'packages/kit/src/name.ts': [
      `export const f = (): number => {\n  const found = 1;\n  return found;\n};\n`,
      'berth(searchable-name)',
    ],
    'packages/kit/src/useless-directive.ts': [
      `// oxlint-disable-next-line eqeqeq\nexport const a = 1;\n`,
      'Unused',
    ],

    // The arrows: what each folder may import, and one import that is forbidden.
    'packages/wire/src/ok.ts': [imports('./vocabulary.ts', 'typebox', 'typebox/value'), null],
    'packages/wire/src/kit.ts': [imports('@berth/kit/log'), ARROW],
    'packages/wire/src/node.ts': [imports('node:fs'), ARROW],
    'packages/kit/src/ok.ts': [
      imports('./any.ts', 'node:fs', 'node:fs/promises', 'pino', 'pino-pretty'),
      null,
    ],
    'packages/kit/src/wire.ts': [imports('@berth/wire/errors'), ARROW],
    'packages/kit/src/library.ts': [imports('yaml'), ARROW],
    'packages/agent/src/ok.ts': [
      imports('@berth/wire/task', '@berth/kit/exec', 'node:fs', './other.ts', '../x.ts'),
      null,
    ],
    'packages/agent/src/cp.ts': [imports('@berth/control-plane/domain/deployments/plan'), ARROW],
    'packages/agent/src/relative.ts': [imports('../../proxy/src/router.ts'), ARROW],
    'packages/agent/src/dynamic.ts': [
      `export const load = (): Promise<unknown> => import('@berth/proxy/router');\n`,
      ARROW,
    ],
    'packages/agent/src/tools/testbed.ts': [imports('@berth/testbed/engine'), ARROW],
    'packages/agent/src/state/ok.ts': [
      imports('./x.ts', '../failures.ts', '@berth/kit/exec', 'node:fs'),
      null,
    ],
    'packages/agent/src/state/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/state/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/secrets/ok.ts': [
      imports('./x.ts', '../failures.ts', '@berth/kit/exec', 'node:fs', '../state/x.ts'),
      null,
    ],
    'packages/agent/src/secrets/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/secrets/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/engine/ok.ts': [
      imports('./x.ts', '../failures.ts', '@berth/kit/exec', 'node:fs', '../secrets/x.ts'),
      null,
    ],
    'packages/agent/src/engine/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/engine/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/usage/ok.ts': [
      imports('./x.ts', '../failures.ts', '@berth/kit/exec', 'node:fs', '../engine/x.ts'),
      null,
    ],
    'packages/agent/src/usage/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/usage/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/registry/ok.ts': [
      imports('./x.ts', '../failures.ts', '@berth/kit/exec', 'node:fs', '../engine/x.ts'),
      null,
    ],
    'packages/agent/src/registry/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/registry/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/link/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../engine/x.ts',
        '../secrets/x.ts',
        '../usage/x.ts',
      ),
      null,
    ],
    'packages/agent/src/link/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/link/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/disk/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../engine/x.ts',
        '../registry/x.ts',
      ),
      null,
    ],
    'packages/agent/src/disk/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/disk/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/build/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../disk/x.ts',
        '../engine/x.ts',
        '../registry/x.ts',
      ),
      null,
    ],
    'packages/agent/src/build/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/build/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/data/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../disk/x.ts',
        '../engine/x.ts',
        '../link/x.ts',
      ),
      null,
    ],
    'packages/agent/src/data/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/data/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/logs/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../engine/x.ts',
        '../link/x.ts',
        '../secrets/x.ts',
      ),
      null,
    ],
    'packages/agent/src/logs/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/logs/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/git/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../build/x.ts',
        '../link/x.ts',
        '../state/x.ts',
      ),
      null,
    ],
    'packages/agent/src/git/tasks.ts': [imports('../tasks/x.ts'), ARROW],
    'packages/agent/src/git/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/tasks/ok.ts': [
      imports(
        './x.ts',
        '../failures.ts',
        '@berth/kit/exec',
        'node:fs',
        '../build/x.ts',
        '../data/x.ts',
        '../disk/x.ts',
        '../engine/x.ts',
        '../git/x.ts',
        '../link/x.ts',
        '../logs/x.ts',
        '../registry/x.ts',
        '../secrets/x.ts',
        '../state/x.ts',
      ),
      null,
    ],
    'packages/agent/src/tasks/usage.ts': [imports('../usage/x.ts'), ARROW],
    'packages/agent/src/tasks/wiring.ts': [imports('../parts.ts'), ARROW],
    'packages/agent/src/data/volumes/ok.ts': [
      imports('../layout.ts', '../../engine/x.ts', '../../locks.ts'),
      null,
    ],
    'packages/agent/src/data/volumes/tasks.ts': [imports('../../tasks/x.ts'), ARROW],
    'packages/agent/src/data/volumes/wiring.ts': [imports('../../parts.ts'), ARROW],
    'packages/gateway/src/proxy.ts': [imports('@berth/proxy/router'), ARROW],
    'packages/proxy/src/agent.ts': [imports('@berth/agent/main'), ARROW],
    'packages/cli/src/gateway.ts': [imports('@berth/gateway/main'), ARROW],
    'packages/dashboard/src/cli.ts': [imports('@berth/cli/main'), ARROW],
    'packages/dashboard/src/pages/ok.ts': [
      imports('../parts/x.ts', '../ui/x.tsx', '../api/x.ts', './project/x.tsx'),
      null,
    ],
    'packages/dashboard/src/pages/project/app.ts': [imports('../../app/shell.tsx'), ARROW],
    'packages/dashboard/src/parts/page.ts': [imports('../pages/node.tsx'), ARROW],
    'packages/dashboard/src/parts/app.ts': [imports('../app/shell.tsx'), ARROW],
    'packages/dashboard/src/api/parts.ts': [imports('../parts/problem.tsx'), ARROW],
    'packages/operator/src/ok.ts': [
      imports('@berth/wire/joining', '@berth/kit/exec', './lib/x.ts', '@clack/prompts'),
      null,
    ],
    'packages/operator/src/install/cp.ts': [imports('@berth/control-plane/store/open'), ARROW],
    'packages/operator/src/install/relative.ts': [imports('../../../cli/src/ask.ts'), ARROW],
    'packages/testbed/src/ok.ts': [imports('@berth/wire/task', '@berth/kit/exec'), null],
    'packages/testbed/src/agent.ts': [imports('@berth/agent/main'), ARROW],
    'packages/agent/test/ok.ts': [
      imports('@berth/testbed/engine', '../src/main.ts', '@berth/kit/exec'),
      null,
    ],
    'packages/agent/test/relative.ts': [imports('../../testbed/src/engine.ts'), ARROW],
    [`${cp}/domain/ok.ts`]: [imports('./plan.ts', '@berth/wire/vocabulary'), null],
    [`${cp}/domain/flow.ts`]: [imports('../flow/deployment.ts'), ARROW],
    [`${cp}/domain/io.ts`]: [imports('node:fs'), ARROW],
    [`${cp}/domain/client.ts`]: [imports('@berth/wire/client'), ARROW],
    [`${cp}/domain/kit.ts`]: [imports('@berth/kit/log'), ARROW],
    [`${cp}/flow/ok.ts`]: [
      imports('./x.ts', '../domain/plan.ts', '@berth/wire/vocabulary', '@berth/kit/fail-point'),
      null,
    ],
    [`${cp}/flow/kit.ts`]: [imports('@berth/kit/log'), ARROW],
    [`${cp}/flow/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/flow/io.ts`]: [imports('node:child_process'), ARROW],
    [`${cp}/store/ok.ts`]: [
      imports(
        './x.ts',
        './migrations/x.ts',
        '../domain/plan.ts',
        'kysely',
        'kysely/migration',
        'better-sqlite3',
        '@berth/wire/vocabulary',
        'node:crypto',
        '@berth/kit/fail-point',
        '@berth/kit/write-file',
      ),
      null,
    ],
    [`${cp}/store/engine/migrations/ok.ts`]: [
      imports('../dialect.ts', '../../../domain/plan.ts', 'kysely'),
      null,
    ],
    [`${cp}/store/flow.ts`]: [imports('../flow/deployment.ts'), ARROW],
    [`${cp}/store/kit.ts`]: [imports('@berth/kit/log'), ARROW],
    [`${cp}/store/config.ts`]: [imports('../config.ts'), ARROW],
    [`${cp}/loops/ok.ts`]: [
      imports('../flow/deployment.ts', '../domain/plan.ts', '@berth/kit/loop', '@berth/wire/task'),
      null,
    ],
    [`${cp}/loops/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/loops/api.ts`]: [imports('../api/server.ts'), ARROW],
    [`${cp}/loops/kysely.ts`]: [imports('kysely'), ARROW],
    [`${cp}/api/ok.ts`]: [
      imports(
        '../flow/deployment.ts',
        '../routing/traefik.ts',
        '../domain/plan.ts',
        '@berth/kit/log',
        'fastify',
        './plugins/x.ts',
      ),
      null,
    ],
    [`${cp}/api/routes/ok.ts`]: [
      imports(
        '../../flow/deployment.ts',
        '../plugins/x.ts',
        '../server.ts',
        './x.ts',
        '../../routing/traefik.ts',
      ),
      null,
    ],
    [`${cp}/api/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/api/app.ts`]: [imports('../app.ts'), ARROW],
    [`${cp}/api/routes/store.ts`]: [imports('../../store/tasks.ts'), ARROW],
    [`${cp}/api/routes/app.ts`]: [imports('../../app.ts'), ARROW],
    [`${cp}/secrets/ok.ts`]: [
      imports('./x.ts', '../domain/plan.ts', '@berth/kit/log', 'node:crypto'),
      null,
    ],
    [`${cp}/secrets/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/secrets/flow.ts`]: [imports('../flow/deployment.ts'), ARROW],
    [`${cp}/forges/ok.ts`]: [
      imports('./x.ts', '../domain/plan.ts', '@berth/kit/limit', 'node:https'),
      null,
    ],
    [`${cp}/forges/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/forges/notify.ts`]: [imports('../notify/post.ts'), ARROW],
    [`${cp}/forges/wire.ts`]: [imports('@berth/wire/vocabulary'), ARROW],
    [`${cp}/notify/ok.ts`]: [
      imports('./x.ts', '../domain/plan.ts', '@berth/kit/limit', 'node:https', 'nodemailer'),
      null,
    ],
    [`${cp}/notify/flow.ts`]: [imports('../flow/deployment.ts'), ARROW],
    [`${cp}/notify/forges.ts`]: [imports('../forges/send-status.ts'), ARROW],
    [`${cp}/notify/library.ts`]: [imports('yaml'), ARROW],
    [`${cp}/routing/ok.ts`]: [
      imports(
        '../domain/plan.ts',
        '@berth/wire/vocabulary',
        '@berth/kit/log',
        'node:http',
        './x.ts',
      ),
      null,
    ],
    [`${cp}/routing/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/routing/flow.ts`]: [imports('../flow/deployment.ts'), ARROW],
    [`${cp}/monitor/ok.ts`]: [
      imports('./scan-job.ts', '../domain/plan.ts', '@berth/kit/log', 'node:fs'),
      null,
    ],
    [`${cp}/monitor/child-import.ts`]: [imports('./child/share.ts'), ARROW],
    [`${cp}/monitor/store.ts`]: [imports('../store/tasks.ts'), ARROW],
    [`${cp}/monitor/child/ok.ts`]: [
      imports(
        './share.ts',
        '../scan-job.ts',
        '../scratch.ts',
        '../../domain/plan.ts',
        '@berth/kit/pace',
      ),
      null,
    ],
    [`${cp}/monitor/child/parent.ts`]: [imports('../scanner.ts'), ARROW],
    [`${cp}/monitor/child/store.ts`]: [imports('../../store/tasks.ts'), ARROW],
    [`${cp}/loops/child.ts`]: [imports('../monitor/child/share.ts'), ARROW],
    [`${cp}/config.ts`]: [imports('./monitor/child/share.ts'), ARROW],
    [`${cp}/api/auth/ok.ts`]: [imports('../server.ts', '../../domain/plan.ts', './x.ts'), null],
    [`${cp}/api/auth/store.ts`]: [imports('../../store/tasks.ts'), ARROW],
    [`${cp}/store/identity/ok.ts`]: [
      imports('../engine/tables.ts', '../ids.ts', '../rows/x.ts', '../../domain/plan.ts'),
      null,
    ],
    [`${cp}/store/identity/flow.ts`]: [imports('../../flow/deployment.ts'), ARROW],
    [`${cp}/app.ts`]: [imports('./store/tasks.ts', './api/server.ts', './loops/index.ts'), null],
    [`${cp}/main.ts`]: [imports('./store/tasks.ts'), ARROW],
    [`${cp}/other.ts`]: [imports('@berth/agent/main'), ARROW],
  };

  test('oxlint names each breach, and no other file', { timeout: 60_000 }, async () => {
    const at = await tree(
      'lint',
      Object.fromEntries(Object.entries(FILES).map(([file, [text]]) => [file, text])),
    );
    const { code, output } = await run(
      at,
      'oxlint',
      '--type-aware',
      '--deny-warnings',
      '--format',
      'json',
    );
    expect(code).toBe(1);
    const { diagnostics } = JSON.parse(output) as {
      diagnostics: { filename: string; code?: string; message: string }[];
    };
    const rulesOf = (file: string): string[] => [
      ...new Set(
        diagnostics
          .filter((d) => d.filename === file)
          .map((d) => d.code ?? d.message.split(' ')[0] ?? ''),
      ),
    ];
    const named = Object.keys(FILES).map((file) => [file, ...rulesOf(file)]);
    expect(named).toEqual(
      Object.entries(FILES).map(([file, [, rule]]) => (rule === null ? [file] : [file, rule])),
    );
  });

  test('oxlint passes a file without a breach', { timeout: 60_000 }, async () => {
    const at = await tree('lint-right', { 'packages/kit/src/right.ts': `export const one = 1;\n` });
    expect(await run(at, 'oxlint', '--type-aware', '--deny-warnings')).toMatchObject({ code: 0 });
  });
});

describe('format', () => {
  test('biome names the unformatted file', { timeout: 60_000 }, async () => {
    const at = await tree('format', {
      'packages/kit/src/right.ts': `export const one = 'one';\n`,
      'packages/kit/src/wrong.ts': `export const one = "one"\n`,
    });
    const wrong = await run(at, 'biome', 'format', '.');
    expect(wrong.code).toBe(1);
    expect([...wrong.output.matchAll(/^(\S+\.ts) format/gm)].map((m) => m[1])).toEqual([
      'packages/kit/src/wrong.ts',
    ]);
    expect(await run(at, 'biome', 'format', 'packages/kit/src/right.ts')).toMatchObject({
      code: 0,
    });
  });
});

describe('dead code', () => {
  test('knip names the dead export, the dead dependency and the dead file of a script folder', {
    timeout: 60_000,
  }, async () => {
    const manifest = (name: string, dependencies: Record<string, string>): string =>
      JSON.stringify({
        name,
        version: '0.1.0',
        private: true,
        type: 'module',
        exports: { './*': './src/*.ts' },
        dependencies,
      });
    const at = await tree('dead', {
      'packages/kit/package.json': manifest('@berth/kit', { pino: '*', 'pino-pretty': '*' }),
      'packages/kit/src/log.ts': `import { pino } from 'pino';\nexport const log = pino();\nexport const dead = 1;\n`,
      'packages/agent/package.json': manifest('@berth/agent', { '@berth/kit': '*' }),
      'packages/agent/src/main.ts': `import { log } from '@berth/kit/log';\nexport const main = (): void => log.info('x');\n`,
      'packages/agent/src/dead-file.ts': `export const nobody = 1;\n`,
      'scripts/lib/dead.ts': `export const nobody = 1;\n`,
      'bin/berth': '',
    });
    await rm(path.join(at, 'node_modules'));
    // Separate links: @berth/kit must be the kit of this tree, not of the repository.
    await mkdir(path.join(at, 'node_modules/@berth'), { recursive: true });
    await symlink(path.join(at, 'packages/kit'), path.join(at, 'node_modules/@berth/kit'));
    await symlink(path.join(ROOT, 'node_modules/pino'), path.join(at, 'node_modules/pino'));
    const { code, output } = await run(
      at,
      'knip',
      '--reporter',
      'json',
      '--no-progress',
      '--exclude',
      'unlisted,binaries,unresolved',
    );
    expect(code).toBe(1);
    type Issue = {
      file: string;
      exports?: { name: string }[];
      files?: { name: string }[];
      dependencies?: { name: string }[];
    };
    const { issues } = JSON.parse(output.slice(output.indexOf('{'))) as { issues: Issue[] };
    const named = issues
      .flatMap((i) =>
        [...(i.exports ?? []), ...(i.files ?? []), ...(i.dependencies ?? [])].map(
          (x) => `${i.file}: ${x.name}`,
        ),
      )
      .sort();
    expect(named).toEqual([
      'packages/agent/src/dead-file.ts: nobody',
      'packages/kit/package.json: pino-pretty',
      'packages/kit/src/log.ts: dead',
      'scripts/lib/dead.ts: scripts/lib/dead.ts',
    ]);
  });
});
