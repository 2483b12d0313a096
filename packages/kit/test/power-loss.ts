/**
 * Writes files on an ext4 of its own and looks at what a power failure would leave: a copy of the
 * disk, without the page cache of the file system, mounted again. Runs in a mount namespace of its
 * own (`unshare --mount`), so that nothing stays mounted. Usage:
 *
 *   power-loss.ts FOLDER     prints {pasted, whole, rounds}: the texts of the file after the power failure
 *   power-loss.ts --write F  writes F whole again and again, until it is killed
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { writeFileWhole, writeFileWholeSync } from '../src/write-file.ts';

const MIB = 1024 * 1024;
const ROUNDS = 12;
/**
 * Without the heuristics of ext4 that save programs from the missing flush, and without a commit of
 * its own during the test.
 */
const OPTIONS = 'loop,noauto_da_alloc,data=writeback,commit=300';

const run = (...argv: [string, ...string[]]): void =>
  void execFileSync(argv[0], argv.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] });

const [given = '', path = ''] = process.argv.slice(2);
if (given === '--write') {
  for (let i = 0; ; i += 1) await writeFileWhole(path, contentOf(i));
}
console.log(JSON.stringify(await powerFailures(given)));

/** Complete if its first line says how long the second one is. */
function contentOf(i: number): string {
  const length = 1 + ((i * 7919) % 20_000);
  return `${length}\n${'x'.repeat(length)}`;
}

async function powerFailures(
  folder: string,
): Promise<{ pasted: string; whole: string; rounds: string[] }> {
  const [image, disk] = [join(folder, 'image'), join(folder, 'disk')];
  mkdirSync(disk);
  writeFileSync(image, '');
  truncateSync(image, 16 * MIB);
  run('mkfs.ext4', '-q', '-F', '-E', 'lazy_itable_init=0', image);
  run('mount', '-o', OPTIONS, image, disk);
  const file = join(disk, 'file');

  /**
   * The content of the file on a copy of the disk. An unrelated program flushes a file of its own
   * first, which commits all names.
   */
  let copies = 0;
  const afterPowerFailure = (): string => {
    writeFileSync(join(disk, 'unrelated'), String(copies), { flush: true });
    const [copy, at] = [join(folder, `copy-${(copies += 1)}`), join(folder, `at-${copies}`)];
    copyFileSync(image, copy);
    mkdirSync(at);
    run('mount', '-o', 'loop', copy, at);
    const text = readFileSync(join(at, 'file'), 'utf8');
    run('umount', at);
    return text;
  };
  const begin = (): void => {
    writeFileWholeSync(file, 'old');
    run('sync');
  };

  begin();
  writeFileSync(`${file}.new`, 'new');
  renameSync(`${file}.new`, file);
  const pasted = afterPowerFailure();

  begin();
  await writeFileWhole(file, 'new');
  const whole = afterPowerFailure();

  const rounds: string[] = [];
  writeFileWholeSync(file, contentOf(0));
  const writer = spawn(process.execPath, [import.meta.filename, '--write', file], {
    stdio: 'inherit',
  });
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = readFileSync(file, 'utf8');
    // Stop it at any point of a later write.
    while (readFileSync(file, 'utf8') === before)
      await new Promise((resolve) => setImmediate(resolve));
    writer.kill('SIGSTOP');
    rounds.push(afterPowerFailure());
    writer.kill('SIGCONT');
  }
  writer.kill('SIGKILL');
  await once(writer, 'exit');
  run('umount', disk);
  return { pasted, whole, rounds };
}
