/**
 * Whether a folder of the shared storage can be a dataset. Looked at by another process with a deadline: a share that hangs takes that one with
 * it, not the API. A process that hangs in the kernel cannot be killed: it is left behind, and counts until it is gone, so that there are never many.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { FolderLook, LookAtFolder } from '../domain/folder-look.ts';

const CHILD = fileURLToPath(new URL('./child/look-child.ts', import.meta.url));
const ANSWER_MS = 5_000;
const MOST = 4;

/** Its stdout is the answer. */
type StartLook = (basePath: string, nfsPath: string) => ChildProcess;
const startChild: StartLook = (basePath, nfsPath) =>
  spawn(process.execPath, [CHILD, basePath, nfsPath], { stdio: ['ignore', 'pipe', 'inherit'], env: {} });

/** `basePath`: null where there is no shared storage. */
export function createLook(basePath: string | null, answerMs = ANSWER_MS, start = startChild): LookAtFolder {
  const places = createPlaces(answerMs);
  const busy = `${MOST} looks at the shared storage are under way or hang, and no more are begun; try again later`;
  const late = `the shared storage did not answer within ${answerMs / 1000} s`;
  return async (nfsPath) => {
    if (basePath === null) return { rule: 'no_share', message: 'there is no shared storage here: DATASET_NFS_BASE_PATH is not set' };
    if (!(await places.take())) return { rule: 'unreachable', message: busy };
    const seen = await ask(() => start(basePath, nfsPath), answerMs, places);
    // null is an answer: nothing is wrong with it.
    return seen === undefined ? { rule: 'unreachable', message: late } : seen;
  };
}

type Places = {
  /** False: at once when all are taken by looks that hang, else when none got free in time. */
  take(): Promise<boolean>;
  /** Who has it was given up and is still there. */
  hangs(): void;
  /** `hung`: it was said that it hangs. */
  free(hung: boolean): void;
};

function createPlaces(waitMs: number): Places {
  let taken = 0;
  let hanging = 0;
  const waiting = new Set<(got: boolean) => void>();
  const turn = (): Promise<boolean> =>
    new Promise((resolve) => {
      const end = (got: boolean): void => {
        clearTimeout(late);
        waiting.delete(end);
        resolve(got);
      };
      const late = setTimeout(end, waitMs, false);
      waiting.add(end);
    });
  return {
    async take() {
      if (hanging === MOST) return false;
      if (taken === MOST) return turn();
      taken += 1;
      return true;
    },
    hangs() {
      hanging += 1;
      if (hanging === MOST) for (const end of waiting) end(false);
    },
    free(hung) {
      if (hung) hanging -= 1;
      const [next] = waiting;
      // Or it is the next one's at once.
      if (next === undefined) taken -= 1;
      else next(true);
    },
  };
}

/** undefined: no answer in time. */
function ask(start: () => ChildProcess, answerMs: number, places: Places): Promise<FolderLook | undefined> {
  return new Promise((resolve, reject) => {
    const child = started(start, places);
    let answer = '';
    let hung = false;
    const late = setTimeout(() => {
      hung = true;
      places.hangs();
      child.kill('SIGKILL');
      child.unref();
      child.stdout?.destroy();
      resolve(undefined);
    }, answerMs);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (answer += text));
    child.once('error', (error) => {
      clearTimeout(late);
      // One that could not be started never exits.
      if (child.pid === undefined) places.free(hung);
      reject(error);
    });
    child.once('exit', () => places.free(hung));
    child.once('close', (code, signal) => {
      clearTimeout(late);
      // Nobody listens to what it says by now.
      if (hung) return;
      if (code === 0) resolve(JSON.parse(answer) as FolderLook);
      else reject(new Error(`the look at the shared storage ended with ${signal ?? code}`));
    });
  });
}

function started(start: () => ChildProcess, places: Places): ChildProcess {
  try {
    return start();
  } catch (error) {
    places.free(false);
    throw error;
  }
}
