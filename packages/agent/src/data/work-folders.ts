/**
 * Gives each agent process its own folder under .staging and .trash, so that two processes on one
 * SVC_ROOT never share a folder. A mark in the folder tells whether its process is dead. In the
 * same pid namespace, the mark's process id and start time decide. Otherwise (two containers on one
 * machine, or after a reboot), a stopped heartbeat decides.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Layout } from './layout.ts';
import { nullIfMissing, readJson, writeWhole } from '../file-system.ts';

export type WorkFolders = {
  /** Id of this process, which is also the name of its folders. */
  process: string;
  staging: string;
  trash: string;
  isAlive(process: string): Promise<boolean>;
  /** Returns the ids of dead processes whose folders still exist. */
  dead(): Promise<string[]>;
  stop(): void;
};

type Mark = { pid: number; started: string; boot: string; space: string };
const BEAT_MS = 15_000;
const SILENT_MS = 120_000;

/**
 * Creates the folders of this process. A process in another pid namespace counts as dead after
 * `silentMs` without a heartbeat.
 */
export async function createWorkFolders(
  layout: Layout,
  { silentMs = SILENT_MS }: { silentMs?: number } = {},
): Promise<WorkFolders> {
  const process = randomUUID();
  const currentMark = await markOfThisProcess();
  const staging = join(layout.staging, process);
  const trash = join(layout.trash, process);
  const markOf = (name: string): string => join(layout.staging, name, '.process.json');
  for (const folder of [staging, trash]) await mkdir(folder, { recursive: true, mode: 0o700 });
  await writeWhole(markOf(process), JSON.stringify(currentMark));
  const beat = setInterval(
    () => void utimes(markOf(process), new Date(), new Date()).catch(() => undefined),
    BEAT_MS,
  ).unref();

  async function isAlive(name: string): Promise<boolean> {
    if (name === process) return true;
    const [mark, at] = [
      (await readJson(markOf(name))) as Mark | null,
      await nullIfMissing(stat(markOf(name))),
    ];
    // A new folder might not have its mark yet.
    if (mark === null || at === null) return isYoung(join(layout.staging, name));
    if (mark.boot === currentMark.boot && mark.space === currentMark.space)
      return (await startedOf(mark.pid)) === mark.started;
    return Date.now() - at.mtimeMs < silentMs;
  }
  const isYoung = async (path: string): Promise<boolean> =>
    Date.now() - ((await nullIfMissing(stat(path)))?.mtimeMs ?? 0) < BEAT_MS;

  return {
    process,
    staging,
    trash,
    isAlive,
    async dead() {
      const names = new Set([...(await readdir(layout.staging)), ...(await readdir(layout.trash))]);
      const dead: string[] = [];
      for (const name of names) if (!(await isAlive(name))) dead.push(name);
      return dead;
    },
    stop: () => clearInterval(beat),
  };
}

async function markOfThisProcess(): Promise<Mark> {
  const read = async (path: string): Promise<string> =>
    ((await nullIfMissing(readFile(path, 'utf8'))) ?? '').trim();
  return {
    pid: process.pid,
    started: (await startedOf(process.pid)) ?? '',
    boot: await read('/proc/sys/kernel/random/boot_id'),
    space: (await nullIfMissing(readlink('/proc/self/ns/pid'))) ?? '',
  };
}

/** States of zombies and dead processes (proc(5)), which no longer run. */
const ENDED = ['Z', 'X'];

/**
 * Returns the start time of a process in clock ticks since boot; null if the process is not
 * running.
 */
async function startedOf(pid: number): Promise<string | null> {
  const text = await nullIfMissing(readFile(`/proc/${pid}/stat`, 'utf8'));
  // The program's name in parentheses can contain any character, so read the fields after it: the
  // first is the state, the twentieth the start time.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ') ?? [];
  return ENDED.includes(fields[0] ?? '') ? null : (fields[19] ?? null);
}
