// Runs child processes for the set-up: argv arrays, captured output, and a progress line every 10
// s.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { printLine } from './progress.mjs';

/** System folders of Debian, which the PATH of a non-login shell may lack. */
const systemFolders = [
  '/usr/local/sbin',
  '/usr/sbin',
  '/sbin',
  '/usr/local/bin',
  '/usr/bin',
  '/bin',
];

/** Returns the absolute path of a program, or undefined. */
export function findProgram(name, extraFolders = []) {
  const folders = [
    ...extraFolders,
    ...(process.env.PATH ?? '').split(delimiter).filter(Boolean),
    ...systemFolders,
  ];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

/**
 * Returns the environment for children. An npm started by npm would otherwise use the outer npm's
 * folders as its settings.
 * @param {Record<string, string | undefined>} extra
 */
export function childEnvironment(extra = {}) {
  const env = { ...process.env };
  for (const name of Object.keys(env)) {
    if (/^npm_(lifecycle|package|command)/.test(name)) delete env[name];
  }
  for (const name of [
    'npm_execpath',
    'npm_node_execpath',
    'npm_config_user_agent',
    'npm_config_local_prefix',
    'npm_config_global_prefix',
    'npm_config_prefix',
    'npm_config_npm_version',
    'npm_config_node_gyp',
    'INIT_CWD',
  ]) {
    delete env[name];
  }
  const path = [...(env.PATH ?? '').split(delimiter).filter(Boolean), ...systemFolders];
  return { ...env, PATH: [...new Set(path)].join(delimiter), ...extra };
}

/**
 * Runs a program to its end. Does not throw when the program fails or does not exist.
 * @param {string[]} argv
 * @param {{cwd?: string, env?: Record<string, string | undefined>, deadlineMs?: number, patience?:
 *   string}} [options] `patience`: what the progress line says while it runs for more than 10 s.
 * @returns {Promise<{ok: boolean, code: number | null, output: string, stdout: string}>} output:
 *   both streams
 */
export function run(argv, options = {}) {
  const [program, ...args] = argv;
  return new Promise((resolve) => {
    const started = Date.now();
    let output = '';
    let stdout = '';
    let timer;
    let patience;
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: options.env ?? childEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const done = (code, why = '') => {
      clearTimeout(timer);
      clearInterval(patience);
      resolve({ ok: code === 0, code, output: output + why, stdout });
    };
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      output += chunk;
    });
    child.stderr.on('data', (chunk) => {
      output += chunk;
    });
    child.once('error', (error) => done(null, error.message));
    child.once('close', (code) => done(code));
    timer = setTimeout(() => {
      output += `\ntimed out after ${Math.round((options.deadlineMs ?? 0) / 1000)} s`;
      child.kill('SIGKILL');
    }, options.deadlineMs ?? 600_000);
    if (options.patience !== undefined) {
      patience = setInterval(
        () =>
          printLine(`  still ${options.patience} (${Math.round((Date.now() - started) / 1000)} s)`),
        10_000,
      );
    }
  });
}

/** Returns the last lines of a program's output, indented, for a message about its failure. */
export function lastLines(output, count = 8) {
  return output
    .trimEnd()
    .split('\n')
    .slice(-count)
    .map((line) => `    ${line}`)
    .join('\n');
}

/**
 * Returns the first lines of a program's output, indented: npm prints the error first and its usage
 * last.
 */
export function firstLines(output, count = 8) {
  return output
    .trim()
    .split('\n')
    .slice(0, count)
    .map((line) => `    ${line}`)
    .join('\n');
}
