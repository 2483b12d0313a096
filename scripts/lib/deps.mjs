// Installs the dependencies of package-lock.json with the npm 11 of Node 24: the npm of an older
// Node resolves older versions.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { nodeProgram, npmProgram, root, toolsDir } from './places.mjs';
import { childEnvironment, firstLines, run } from './run.mjs';
import { printLine, step } from './progress.mjs';

const stampFile = join(toolsDir, 'stamp-deps.json');

/** Whether node_modules matches the lockfile, by the stamp or by npm's own record. */
export function depsAreCurrent(versions) {
  if (!existsSync(join(root, 'node_modules', '.package-lock.json'))) return false;
  const wanted = stamp(versions);
  if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === wanted) return true;
  // Someone ran npm by hand: do not fetch the same packages again.
  if (!installedAsLocked()) return false;
  writeFileSync(stampFile, wanted);
  return true;
}

/** Installs the dependencies. @returns what is missing, or undefined on success */
export async function provideDeps(versions) {
  const locked = existsSync(join(root, 'package-lock.json'));
  const why = locked ? 'they differ from package-lock.json' : 'there is no package-lock.json yet';
  return step(
    `installing the dependencies (npm ${locked ? 'ci' : 'install'}: ${why})`,
    async () => {
      let result = await npm(locked ? ['ci'] : ['install']);
      if (!result.ok && locked && result.output.includes('EUSAGE')) {
        // Some registries lack packages of other platforms. A lockfile that was made with such a
        // registry leaves those packages out, and `npm ci` then refuses it everywhere. This command
        // installs the locked versions and does not change the file.
        printLine(
          '  npm ci found packages that are not in package-lock.json; using npm install --no-save',
        );
        result = await npm(['install', '--no-save']);
      }
      if (!result.ok) {
        printLine(`  npm failed:\n${firstLines(result.output, 12)}`);
        return {
          part: 'deps',
          why: "Berth's dependencies",
          how: `run with network access: ${npmProgram} ci`,
        };
      }
      writeFileSync(stampFile, stamp(versions));
      return undefined;
    },
  );
}

function npm(args) {
  const env = childEnvironment();
  env.PATH = `${dirname(nodeProgram)}:${env.PATH}`;
  return run([nodeProgram, npmProgram, ...args, '--loglevel=error', '--no-progress'], {
    cwd: root,
    env,
    patience: 'installing',
  });
}

function stamp(versions) {
  const lockfile = join(root, 'package-lock.json');
  const hash = existsSync(lockfile)
    ? createHash('sha256').update(readFileSync(lockfile)).digest('hex')
    : 'none';
  return (
    JSON.stringify({
      lock: hash,
      node: versions.node,
      npm: versions.npm,
      platform: `${process.platform}-${process.arch}`,
    }) + `\n`
  );
}

/**
 * Compares npm's record of installed packages with the lockfile. Missing packages must be optional
 * (other platforms).
 */
function installedAsLocked() {
  const lockfile = join(root, 'package-lock.json');
  if (!existsSync(lockfile)) return false;
  const locked = JSON.parse(readFileSync(lockfile, 'utf8')).packages;
  const installed = JSON.parse(
    readFileSync(join(root, 'node_modules', '.package-lock.json'), 'utf8'),
  ).packages;
  const names = Object.keys(locked).filter(
    (name) => name.startsWith('node_modules/') || name.includes('/node_modules/'),
  );
  return (
    names.every((name) =>
      installed[name] === undefined
        ? locked[name].optional === true
        : same(installed[name], locked[name]),
    ) && Object.keys(installed).every((name) => locked[name] !== undefined)
  );
}

function same(installed, locked) {
  return (
    installed.version === locked.version &&
    installed.integrity === locked.integrity &&
    installed.link === locked.link
  );
}
