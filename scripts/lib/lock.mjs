// Lets one set-up run at a time: a lock file with the holder's process id, which is stale when that
// process is gone.
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { printLine } from './progress.mjs';

/**
 * Waits (at most 15 minutes) until no other set-up runs in `toolsDir`, then runs `work`.
 * @template T
 * @param {string} toolsDir
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withLock(toolsDir, work) {
  mkdirSync(toolsDir, { recursive: true });
  const lock = join(toolsDir, 'setup.lock');
  const mine = `${lock}.${process.pid}`;
  writeFileSync(mine, `${process.pid} ${startTime(process.pid)}\n`);
  try {
    const deadline = Date.now() + 15 * 60_000;
    for (let isPrinted = false; !take(mine, lock); await sleep(200)) {
      const holder = read(lock);
      if (holder !== '' && !lives(holder)) {
        dropStale(lock, holder);
        continue;
      }
      if (Date.now() > deadline)
        throw new Error(
          `another set-up (process ${holder.split(' ')[0]}) has held ${lock} for 15 minutes`,
        );
      if (!isPrinted) printLine(`waiting for another set-up (process ${holder.split(' ')[0]})`);
      isPrinted = true;
    }
    try {
      return await work();
    } finally {
      rmSync(lock, { force: true });
    }
  } finally {
    rmSync(mine, { force: true });
  }
}

/** Creates the file with its content in one step (link()), or fails when it exists. */
function take(mine, lock) {
  try {
    linkSync(mine, lock);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

/**
 * Removes a stale lock. Two waiters may see the same one: the slower must not remove the new lock
 * of the faster.
 */
function dropStale(lock, holder) {
  const aside = `${lock}.stale.${process.pid}`;
  try {
    renameSync(lock, aside);
    if (read(aside) !== holder) linkSync(aside, lock);
  } catch (error) {
    if (error.code !== 'ENOENT' && error.code !== 'EEXIST') throw error;
  } finally {
    rmSync(aside, { force: true });
  }
}

function read(file) {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (error.code === 'ENOENT') return '';
    throw error;
  }
}

function lives(holder) {
  const [pid, since] = holder.split(' ');
  try {
    process.kill(Number(pid), 0);
  } catch (error) {
    if (error.code === 'ESRCH') return false;
    if (error.code !== 'EPERM') throw error;
  }
  return startTime(Number(pid)) === since;
}

/**
 * Returns a process' start time in clock ticks since boot (process ids are reused); `-` where /proc
 * is missing.
 */
function startTime(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return '-';
    throw error;
  }
}
