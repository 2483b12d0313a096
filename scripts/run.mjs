#!/usr/bin/env node
// node scripts/run.mjs NAME [OPTION…]: runs scripts/NAME.ts with Node 24, after setting up what is
// missing. The npm scripts call it (package.json), so it runs on Node 20 with nothing installed. It
// passes on the arguments, the terminal and the signals. lib/help.mjs has what each script does and
// its options.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { setup } from './setup.mjs';
import { answerHelp } from './lib/help.mjs';
import { nodeProgram, root } from './lib/places.mjs';
import { childEnvironment } from './lib/run.mjs';
import { printLine } from './lib/progress.mjs';

const signalNumbers = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 };
/** These scripts use parts that only tests need. */
const WITH_TEST_PARTS = [
  'test.ts',
  'faults.ts',
  'sim.ts',
  'bench.ts',
  'backup-rounds.ts',
  'release.ts',
];

/**
 * Sets up, then runs a TypeScript file with Node 24. BERTH_CAPABILITIES holds the result of the
 * set-up as JSON. Ends this process with the exit code of that one (128 + signal number when a
 * signal ended it).
 * @param {string} script name in scripts/
 * @param {string[]} options its arguments
 */
async function handOver(script, options) {
  answerHelp(script, options);
  const capabilities = await setup({ tests: WITH_TEST_PARTS.includes(script) });
  if (capabilities.node === undefined || !capabilities.deps) {
    printLine(
      `${script} cannot run without ` +
        (capabilities.node === undefined ? 'Node 24' : 'its dependencies'),
    );
    process.exit(1);
  }
  const file = join(root, 'scripts', script);
  if (!existsSync(file)) {
    printLine(`${file} does not exist`);
    process.exit(1);
  }
  const env = childEnvironment({ BERTH_CAPABILITIES: JSON.stringify(capabilities) });
  env.PATH = [dirname(nodeProgram), join(root, 'node_modules', '.bin'), env.PATH].join(delimiter);
  const child = spawn(nodeProgram, [file, ...options], {
    stdio: 'inherit',
    env,
    cwd: root,
  });
  // The child receives a terminal's Ctrl-C by itself: this process must not die of it before the
  // child has cleaned up. A signal to this process alone (kill, npm, a supervisor) is passed on.
  process.on('SIGINT', () => {
    if (process.stdin.isTTY !== true) child.kill('SIGINT');
  });
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('error', (error) => {
    printLine(`cannot start ${nodeProgram}: ${error.message}`);
    process.exit(1);
  });
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (signalNumbers[signal] ?? 0)));
}

const [name, ...options] = process.argv.slice(2);
await handOver(`${name}.ts`, options);
