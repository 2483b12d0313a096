/**
 * Each agent process has a folder of its own under .staging and .trash, so that two on one SVC_ROOT never meet there. What a
 * process that died left is found by its mark: the process id with its start time where both see the same processes, else
 * (two containers on one machine, or after a restart of the machine) a heartbeat that stopped.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Layout } from './layout.ts';
import { orNull, readJson, writeWhole } from './disk.ts';

export type WorkFolders = {
  /** Of this process; also its name. */
  process: string;
  staging: string;
  trash: string;
  isAlive(process: string): Promise<boolean>;
  /** Names of dead processes that left something. */
  dead(): Promise<string[]>;
  stop(): void;
};

type Mark = { pid: number; started: string; boot: string; space: string };
const BEAT_MS = 15_000;
const SILENT_MS = 120_000;

/** `silentMs`: a process that cannot be seen from here counts as dead after so long without a heartbeat. */
export async function createWorkFolders(layout: Layout, { silentMs = SILENT_MS }: { silentMs?: number } = {}): Promise<WorkFolders> {
  const process = randomUUID();
  const mine = await ownMark();
  const staging = join(layout.staging, process);
  const trash = join(layout.trash, process);
  const markOf = (name: string): string => join(layout.staging, name, '.process.json');
  for (const folder of [staging, trash]) await mkdir(folder, { recursive: true, mode: 0o700 });
  await writeWhole(markOf(process), JSON.stringify(mine));
  const beat = setInterval(() => void utimes(markOf(process), new Date(), new Date()).catch(() => undefined), BEAT_MS).unref();

  async function isAlive(name: string): Promise<boolean> {
    if (name === process) return true;
    const [mark, at] = [(await readJson(markOf(name))) as Mark | null, await orNull(stat(markOf(name)))];
    // Made a moment ago, perhaps: its mark is about to be written.
    if (mark === null || at === null) return isYoung(join(layout.staging, name));
    if (mark.boot === mine.boot && mark.space === mine.space) return (await startedOf(mark.pid)) === mark.started;
    return Date.now() - at.mtimeMs < silentMs;
  }
  const isYoung = async (path: string): Promise<boolean> => Date.now() - ((await orNull(stat(path)))?.mtimeMs ?? 0) < BEAT_MS;

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

async function ownMark(): Promise<Mark> {
  const read = async (path: string): Promise<string> => ((await orNull(readFile(path, 'utf8'))) ?? '').trim();
  return {
    pid: process.pid,
    started: (await startedOf(process.pid)) ?? '',
    boot: await read('/proc/sys/kernel/random/boot_id'),
    space: (await orNull(readlink('/proc/self/ns/pid'))) ?? '',
  };
}

/** States of a process that has ended and whose parent has not asked for its exit code (proc(5)): it does no more work. */
const ENDED = ['Z', 'X'];

/** Start time of a process, in the kernel's own words; null when it does not run. */
async function startedOf(pid: number): Promise<string | null> {
  const text = await orNull(readFile(`/proc/${pid}/stat`, 'utf8'));
  // After the program's name in parentheses, which may hold anything: state is the first field then, start time the twentieth.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ') ?? [];
  return ENDED.includes(fields[0] ?? '') ? null : (fields[19] ?? null);
}
