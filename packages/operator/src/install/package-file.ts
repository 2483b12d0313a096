/**
 * Puts the package of this version into PACKAGE_DIR, from which further machines install it. dpkg
 * and apt do not keep the package file, and a package cannot contain itself, so the file is rebuilt
 * from the installed files after dpkg verified them. The rebuilt package installs the same files
 * with the same scripts; only its checksum differs from the released package.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { exec, execOk } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { replaceFileSync } from '@berth/kit/write-file';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { Problem } from '../lib/command.ts';
import { PROGRAM_ENV } from '../lib/machine.ts';
import type { Change } from './changes.ts';

const NAME = 'berth';
const MINUTES = 60_000;
const output = async (...argv: string[]): Promise<string> =>
  (await execOk(argv, { env: PROGRAM_ENV, timeoutMs: 5 * MINUTES, maxOutput: 8 << 20 })).stdout;

/** Returns the change that writes the package into the folder, or a warning with the reason. */
export async function packageChange(
  folder: string,
  given: string | undefined,
): Promise<{ change?: Change; warning?: string }> {
  return given === undefined ? fromInstalled(folder) : { ...(await fromFile(folder, given)) };
}

async function fromFile(folder: string, file: string): Promise<{ change?: Change }> {
  const fields = await output(
    'dpkg-deb',
    '--show',
    '--showformat=${Package} ${Version} ${Architecture}',
    file,
  ).catch(() => {
    throw new WrongUsage(`--package: ${file} is no Debian package`);
  });
  const [name, version = '', arch = ''] = fields.trim().split(' ');
  if (name !== NAME) throw new WrongUsage(`--package: ${file} is the package ${name}, not ${NAME}`);
  const target = join(folder, fileName(version, arch));
  if (existsSync(target) && readFileSync(target).equals(readFileSync(file))) return {};
  return { change: placed(target, (draft) => copyFileSync(file, draft)) };
}

const fileName = (version: string, arch: string): string => `${NAME}_${version}_${arch}.deb`;

/** Writes to a temporary name first, so that no machine downloads an incomplete package. */
function placed(target: string, write: (draft: string) => void): Change {
  return {
    path: target,
    says: target,
    apply() {
      const draft = join(dirname(target), `.${basename(target)}.new`);
      rmSync(draft, { force: true });
      write(draft);
      chmodSync(draft, 0o644);
      replaceFileSync(draft, target);
    },
  };
}

async function fromInstalled(folder: string): Promise<{ change?: Change; warning?: string }> {
  const advice = 'The command of a join token then installs nothing on the next machine';
  const installed = await exec(
    ['dpkg-query', '-W', '-f', '${db:Status-Status} ${Version} ${Architecture}', NAME],
    {
      env: PROGRAM_ENV,
      timeoutMs: MINUTES,
    },
  ).catch(() => undefined);
  const [status, version = '', arch = ''] = installed?.stdout.trim().split(' ') ?? [];
  if (status !== 'installed')
    return {
      warning:
        'Berth was not installed as a Debian package, so there is none for other machines. ' +
        advice,
    };
  const target = join(folder, fileName(version, arch));
  const list = (await output('dpkg-query', '--control-path', NAME, 'md5sums')).trim();
  // dpkg writes `list` at every installation of the package, even of the same version.
  if (existsSync(target) && statSync(target).mtimeMs >= statSync(list).mtimeMs) return {};
  const changed = await output('dpkg', '--verify', NAME);
  if (changed.trim() !== '')
    return {
      warning:
        'files of the package were changed, so it is not given to other machines: name its file ' +
        `with --package FILE. ${advice}\n${changed.trim()}`,
    };
  const parts = await partsOfPackage();
  return { change: placed(target, (draft) => pack(parts, draft)) };
}

type Parts = {
  files: string[];
  control: string;
  scripts: string[];
  build: (tree: string, target: string) => void;
};

async function partsOfPackage(): Promise<Parts> {
  const { execFileSync } = await import('node:child_process');
  const lines = async (...argv: string[]): Promise<string[]> =>
    (await output(...argv)).split('\n').filter((line) => line !== '');
  const status = await output('dpkg-query', '-s', NAME);
  return {
    files: (await lines('dpkg-query', '-L', NAME)).filter((path) => path !== '/.'),
    control: status.replace(/^Status: .*\n/m, ''),
    scripts: await lines('dpkg-query', '--control-path', NAME),
    build: (tree, target) =>
      void execFileSync(
        'dpkg-deb',
        ['--root-owner-group', '-Zgzip', '-z1', '--build', tree, target],
        {
          env: PROGRAM_ENV,
          stdio: ['ignore', 'ignore', 'pipe'],
        },
      ),
  };
}

function pack({ files, control, scripts, build }: Parts, target: string): void {
  // Use the target's file system, because /tmp can be small and in memory.
  const tree = mkdtempSync(join(dirname(target), '.pack-'));
  try {
    chmodSync(tree, 0o755);
    for (const path of files) {
      const stats = lstatSync(path);
      if (stats.isDirectory()) mkdirSync(join(tree, path), { recursive: true, mode: 0o755 });
      else cpSync(path, join(tree, path), { verbatimSymlinks: true, preserveTimestamps: true });
    }
    mkdirSync(join(tree, 'DEBIAN'));
    writeFileSync(join(tree, 'DEBIAN/control'), control);
    for (const path of scripts) {
      const name = basename(path).replace(`${NAME}.`, '');
      // Skip `list`, because dpkg generated it.
      if (name !== 'list') copyFileSync(path, join(tree, 'DEBIAN', name));
    }
    build(tree, target);
  } catch (error) {
    throw new Problem('the package cannot be made from the installed files: ' + messageOf(error), {
      cause: error,
    });
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}
