// Unpacks programs that lie beside the checkout (`../shared/bin/NAME-VERSION-linux-amd64.xz`) into
// .tools. Tests use them, and the demo uses Gitea. Set-up fetches neither: without the file, the
// tests that need the program are skipped.
import { spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { root, toolsDir } from './places.mjs';
import { findProgram, lastLines, run } from './run.mjs';
import { printLine, step } from './progress.mjs';

const packedDir = join(root, '..', 'shared', 'bin');

/** `check`: arguments with which the program prints its version. */
const programs = [
  {
    name: 'traefik',
    part: 'Traefik',
    variable: 'TRAEFIK_BIN',
    check: ['version'],
    why: 'is the reverse proxy of end-to-end tests; without it they are skipped',
    how: 'put traefik 3.7.13 or newer on PATH, or set TRAEFIK_BIN',
  },
  {
    name: 'gitea',
    part: 'Gitea',
    variable: 'GITEA_BIN',
    check: ['--version'],
    why: 'is the forge of the push-to-deploy tests; without it they are skipped',
    how: 'put gitea 1.26 or newer on PATH, or set GITEA_BIN',
  },
];

/**
 * Returns the packed file of a program, or undefined when there is none or this machine cannot run
 * it.
 */
function packedFile(name) {
  if (process.platform !== 'linux' || process.arch !== 'x64' || !existsSync(packedDir))
    return undefined;
  const found = readdirSync(packedDir).filter(
    (file) => file.startsWith(`${name}-`) && file.endsWith('-linux-amd64.xz'),
  );
  return found.length === 0 ? undefined : join(packedDir, found.toSorted().at(-1));
}

const place = (name) => join(toolsDir, name);
/** A program that a variable names is used instead. */
const isNamed = ({ variable }) => (process.env[variable] ?? '') !== '';

/** Whether a packed program is not in .tools yet, or is newer than the one there. */
export const packedIsCurrent = () => outdated().length === 0;

function outdated() {
  return programs.filter((program) => {
    const packed = isNamed(program) ? undefined : packedFile(program.name);
    if (packed === undefined) return false;
    const unpacked = statSync(place(program.name), { throwIfNoEntry: false });
    return unpacked === undefined || statSync(packed).mtimeMs > unpacked.mtimeMs;
  });
}

/**
 * Unpacks what is not current. Prints why something cannot be unpacked; missingPacked() then names
 * it.
 */
export async function providePacked() {
  for (const { name, check } of outdated()) {
    const packed = packedFile(name);
    await step(`unpacking ${basename(packed)} into .tools`, async () => {
      const failure = await unpackProgram(packed, place(name), check);
      if (failure !== undefined) printLine(`  ${failure}`);
    });
  }
}

/** Returns what tests will lack. */
export function missingPacked() {
  return programs.filter(isMissing).map(({ name, part, why, how }) => {
    const packed = packedFile(name);
    return {
      part,
      why,
      how:
        packed !== undefined && !hasXz()
          ? `install xz (Debian: xz-utils), which unpacks ${packed}`
          : how,
    };
  });
}

function isMissing(program) {
  return isNamed(program)
    ? !existsSync(process.env[program.variable])
    : findProgram(program.name, [toolsDir]) === undefined;
}

const hasXz = () => findProgram('xz') !== undefined;

/**
 * Unpacks one program and runs it once. A program that is in use is replaced safely.
 * @returns {Promise<string | undefined>} why it failed
 */
export async function unpackProgram(packed, target, check) {
  if (!hasXz()) return 'xz is not installed (Debian: xz-utils)';
  const unpacked = `${target}.new`;
  mkdirSync(dirname(target), { recursive: true });
  try {
    const failure = await decompress(packed, unpacked);
    if (failure !== undefined) return `cannot unpack ${packed}: ${failure}`;
    chmodSync(unpacked, 0o755);
    const answer = await runFresh([unpacked, ...check]);
    if (!answer.ok)
      return `${basename(packed)} does not run on this machine:\n${lastLines(answer.output, 3)}`;
    renameSync(unpacked, target);
    return undefined;
  } finally {
    rmSync(unpacked, { force: true });
  }
}

/**
 * Runs a program that was written just now. Where another thread starts a process at that moment,
 * the process has the file open for an instant, and Linux runs no file that is open for writing.
 */
async function runFresh(argv) {
  const deadline = performance.now() + 5000;
  for (;;) {
    try {
      return await run(argv, { deadlineMs: 30_000 });
    } catch (error) {
      if (error.code !== 'ETXTBSY' || performance.now() > deadline) throw error;
    }
    await sleep(20);
  }
}

function decompress(packed, target) {
  const file = openSync(target, 'w');
  return new Promise((resolve) => {
    let said = '';
    const child = spawn(findProgram('xz'), ['-dc', '--', packed], {
      stdio: ['ignore', file, 'pipe'],
    });
    child.stderr.on('data', (chunk) => (said += chunk));
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code) =>
      resolve(code === 0 ? undefined : said.trim() || `xz ended with ${code}`),
    );
  }).finally(() => closeSync(file));
}
